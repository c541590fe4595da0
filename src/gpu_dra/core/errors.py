"""The error tree, named for what the caller can do about it.

Every foreign exception (pynvml, grpc, aiohttp, kubernetes, OSError) becomes one of these at exactly one place per library, with the
original as `__cause__`. A message names the object, the fact and the way out, for someone at 3 a.m.
"""


class GpuDraError(Exception):
    """Base of everything this product raises on purpose."""


class Refused(GpuDraError):
    """The request can never work as it stands. Do not retry; tell whoever wrote it."""


class NotReady(GpuDraError):
    """It will work later; the message says what it waits for. Retry."""


class Conflict(GpuDraError):
    """Somebody else holds it; the message names the holder."""


class Broken(GpuDraError):
    """Our own state or the host is damaged. Set aside, report, go on."""
