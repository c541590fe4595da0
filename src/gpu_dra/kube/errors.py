"""What the API server answered, in terms of what the caller can do."""

from __future__ import annotations

from gpu_dra.core.errors import Conflict, NotReady, Refused


class NotFound(Refused):
    """404: no such object (or no such API)."""


class Invalid(Refused):
    """422 or 400: the server will never take this object; the message lists the fields it named."""


class Forbidden(Refused):
    """403: a right is missing; the message says verb, resource and user."""


class AlreadyExists(Conflict):
    """409 on create."""


class WriteConflict(Conflict):
    """409 on update or delete: the object changed meanwhile."""


class Gone(NotReady):
    """410: the resourceVersion is too old; list again."""


class Unauthorized(NotReady):
    """401 even after the credentials were read again."""


class TooManyRequests(NotReady):
    """429: the server asks to wait."""

    def __init__(self, message: str, *, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Unavailable(NotReady):
    """5xx, connection refused or lost, time-out: the server cannot answer now."""
