"""Where the supervisor logs: structlog if the program configured it, else the logger `proctor`."""

from __future__ import annotations

import logging
import sys
import traceback
from functools import partial
from typing import Any

from proctor.policies.events.calls import ToolCall
from proctor.policies.values.foreign_code import isolated, named_error

from .redaction import Redactor

logging.getLogger("proctor").addHandler(logging.NullHandler())


def logger(redactor: Redactor | None = None, **bound: Any) -> Any:
    """A logger with these fields bound, without secrets; silent until the program asks for logs."""
    return _Redacted(bound, redactor or Redactor())


class _Redacted:
    """Passes entries on to another logger without their secrets; a logger that raises hurts no run."""

    def __init__(self, bound: dict[str, Any], redactor: Redactor) -> None:
        self._bound = bound
        self._log: Any = None
        self._redactor = redactor

    def __getattr__(self, level: str) -> Any:
        if self._silent(level):
            return _discarded
        if self._log is None:
            self._log = _logger(self._bound)
        log, redact = self._log, self._redactor.redact

        def write(event: str, **fields: Any) -> None:
            _write(log, level, redact(event), **redact(fields, str(fields.get("session_id", ""))))

        return write

    def _silent(self, level: str) -> bool:
        """Whether nobody would see the entry; a structlog that the program has configured decides that itself."""
        if _is_configured() or level.upper() not in _LEVELS:
            return False
        return not logging.getLogger("proctor").isEnabledFor(_LEVELS[level.upper()])


_LEVELS = logging.getLevelNamesMapping()


def _discarded(event: str, **fields: Any) -> None:
    """Discard an entry."""


def _write(log: Any, level: str, event: str, /, **fields: Any) -> None:
    """Write an entry, as far as what writes it does not raise."""
    try:
        isolated(getattr(log, level), event, **fields)
    except Exception:  # of the program's own processors, or of a closed file
        logging.getLogger("proctor").exception("%s could not be logged", event)


class _OnStandardError:
    """Writes entries there."""

    def __getattr__(self, level: str) -> Any:
        import structlog

        renderer = structlog.processors.KeyValueRenderer(key_order=["event"])
        log = structlog.wrap_logger(structlog.PrintLogger(sys.stderr), processors=[renderer])
        return partial(_write, log, level)


def audible(log: Any) -> Any:
    """This logger, or one on standard error where the program has set up no log: for what must be seen."""
    handlers = (*logging.getLogger("proctor").handlers, *logging.getLogger().handlers)
    is_set_up = _is_configured() or any(not isinstance(one, logging.NullHandler) for one in handlers)
    return log if is_set_up or sys.stderr is None else _OnStandardError()


def _is_configured() -> bool:
    """Whether the program has configured structlog, which takes long to import: only then is it there unasked."""
    is_configured = getattr(sys.modules.get("structlog"), "is_configured", None)
    return is_configured is not None and bool(is_configured())


def _logger(bound: dict[str, Any]) -> Any:
    import structlog

    if structlog.is_configured():
        return structlog.get_logger("proctor", **bound)
    return structlog.wrap_logger(
        logging.getLogger("proctor"),
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.processors.format_exc_info,
            structlog.processors.KeyValueRenderer(key_order=["event"]),
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        **bound,
    )


class RunLog:
    """A logger for what happens in one run: its ids are in every entry."""

    __slots__ = ("_log", "_run_id", "_session_id")

    def __init__(self, log: Any, run_id: str, session_id: str) -> None:
        self._log = log
        self._run_id = run_id
        self._session_id = session_id

    def log(self, level: str, event: str, call: ToolCall | None = None, **fields: Any) -> None:
        """Log what happened, to a call where it was one."""
        if call is not None:
            fields.update(tool_name=call.name, tool_call_id=call.id)
        getattr(self._log, level)(event, run_id=self._run_id, session_id=self._session_id, **fields)

    def failed(self, event: str, error: Exception) -> None:
        """Log that something failed, and of what."""
        self.log("error", event, None, **failure(error))


class Outage:
    """Logs what fails when it begins to fail, and not again at every try until it is `over`."""

    def __init__(self, log: Any, event: str) -> None:
        self._log = log
        self._event = event
        self._logged: dict[str, str] = {}

    def met(self, **fields: str) -> None:
        """Log a failure, unless the one before was the same."""
        if fields != self._logged:
            self._log.warning(self._event, **fields)
        self._logged = fields

    def over(self) -> None:
        """What failed works."""
        self._logged = {}


def failure(error: BaseException) -> dict[str, str]:
    """The fields that tell an error: what was raised where, never with the values of local variables."""
    return {"error": named_error(error), "exception": "".join(traceback.format_exception(error)).rstrip()}
