"""Log lines as an event and its fields, in JSON for machines or in text for people.

`log.info("claim prepared", extra={"device": "gpu-0"})` gives `claim prepared device=gpu-0` or one JSON object. Fields bound with `bind`
appear on every line written below it, whichever room writes them.
"""

from __future__ import annotations

import contextlib
import contextvars
import json
import logging
import sys
import time
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator

LogFormat = Literal["text", "json"]

_bound: contextvars.ContextVar[dict[str, Any]] = contextvars.ContextVar("log_fields", default={})  # noqa: B039 - never mutated
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


@contextlib.contextmanager
def bind(**fields: Any) -> Iterator[None]:  # noqa: ANN401 - any JSON-able value
    """Add fields to every line logged in this context and in the tasks started from it."""
    token = _bound.set({**_bound.get(), **fields})
    try:
        yield
    finally:
        _bound.reset(token)


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """The fields of a line: what was bound, then what the line itself carries."""
    return {**_bound.get(), **{key: value for key, value in vars(record).items() if key not in _STANDARD}}


class TextFormatter(logging.Formatter):
    """`2026-12-01T05:00:00.123Z INFO gpu_dra.node: claim prepared claim=default/a device=gpu-0`."""

    def format(self, record: logging.LogRecord) -> str:
        """One line; a traceback, where there is one, follows."""
        fields = "".join(f" {key}={_quoted(value)}" for key, value in fields_of(record).items())
        line = f"{_timestamp(record)} {record.levelname} {record.name}: {record.getMessage()}{fields}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    """One JSON object a line: ts, level, logger, msg, the fields, and error with its traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        entry = {
            "ts": _timestamp(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": record.getMessage(),
            **fields_of(record),
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str, ensure_ascii=False)


def configure(*, log_format: LogFormat, level: str) -> None:
    """Send everything to standard error in one format, libraries included."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
    for library in ("asyncio", "aiohttp", "grpc"):  # their details drown ours
        logging.getLogger(library).setLevel(logging.WARNING)


def _timestamp(record: logging.LogRecord) -> str:
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{int(record.msecs):03d}Z"


def _quoted(value: object) -> str:
    text = str(value)
    return json.dumps(text, ensure_ascii=False) if not text or any(c in text for c in ' "=\n') else text
