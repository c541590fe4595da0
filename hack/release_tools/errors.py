"""What a release can fail with."""


class ReleaseError(Exception):
    """The release cannot be made; the message is for the person who asked for it."""
