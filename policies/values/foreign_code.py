"""Code of others, called so that whatever it raises is an error of its own, and harms nothing else."""

import functools
import inspect
import signal
from collections.abc import Callable
from types import CodeType, TracebackType
from typing import Any, ParamSpec, TypeVar

import msgspec

from .json_values import is_finite, name_numbers

P = ParamSpec("P")
T = TypeVar("T")


def isolated(call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Call code of others that waits for nothing, and return what it returns.

    Raises what it raises, as an Exception whatever it was: SystemExit, KeyboardInterrupt and a cancel are errors of
    that code. Only what a handler of the program's own signals raised meanwhile, such as Ctrl-C, comes out as it is.
    """
    try:
        return call(*args, **kwargs)
    except Exception:
        raise
    except BaseException as raised:
        if is_signal(raised):
            raise
        raise as_error(raised) from raised


def as_error(raised: BaseException) -> Exception:
    """Turn an exception from foreign code into an error of a run, whatever it was; a group of one becomes that one.

    One without a `repr` is replaced, too: a task group of trio's that it leaves would end the whole program.
    """
    while isinstance(raised, BaseExceptionGroup) and len(raised.exceptions) == 1:
        raised = raised.exceptions[0]
    if isinstance(raised, Exception) and _has_repr(raised):
        return raised
    error = RuntimeError(f"`{type(raised).__name__}` was raised: {error_text(raised)}".removesuffix(": "))
    error.__cause__ = raised
    return error


def _has_repr(error: Exception) -> bool:
    try:
        return bool(isolated(repr, error))
    except Exception:
        return False


def error_text(error: object, how: Callable[[object], str] = str) -> str:
    """The text of an exception or foreign object, half characters escaped; one that says so if it raises."""
    try:
        return isolated(how, error).encode("utf-8", "backslashreplace").decode()
    except Exception:
        return f"a `{type(error).__name__}` that cannot be shown"


def named_error(error: BaseException) -> str:
    """An exception with its type, for a line of a record or a log."""
    return f"{type(error).__name__}: {error_text(error)}".removesuffix(": ")


def to_jsonable(value: Any) -> Any:
    """The value as JSON would have it; what has no such form becomes text, whatever an object of others raises."""
    try:
        line = isolated(msgspec.json.encode, value, enc_hook=as_data)
        if b"null" in line and not isolated(is_finite, value, as_data):
            return isolated(name_numbers, value, as_data)
        return msgspec.json.decode(line)
    except Exception:
        return error_text(value)


def as_data(value: Any) -> Any:
    """Pydantic's models by their own account, anything else as text."""
    dump = getattr(value, "model_dump", None)
    return dump(mode="json") if callable(dump) else error_text(value)


def is_signal(raised: BaseException) -> bool:
    """Whether a handler of the program's signals raised it: it only happened to hit the code that was called."""
    if isinstance(raised, BaseExceptionGroup):
        return any(map(is_signal, raised.exceptions))
    if not isinstance(raised, KeyboardInterrupt | SystemExit):
        return False
    frames = list(_frames(raised.__traceback__))
    if not _handlers().isdisjoint(frame.tb_frame.f_code for frame in frames):
        return True
    ctrl_c = isinstance(raised, KeyboardInterrupt) and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    # Python's own handler has no frame: it raises between two instructions of whatever runs.
    return ctrl_c and bool(frames) and not _raises_itself(frames[-1])


def _frames(trace: TracebackType | None) -> Any:
    while trace is not None:
        yield trace
        trace = trace.tb_next


def _handlers() -> set[CodeType]:
    """The code of the handlers that are set now."""
    found = set()
    for number in signal.valid_signals():
        handler: Any = signal.getsignal(number)
        while isinstance(handler, functools.partial):
            handler = handler.func
        code = getattr(inspect.unwrap(handler) if callable(handler) else None, "__code__", None)
        if code is not None:
            found.add(code)
    return found


def _raises_itself(trace: TracebackType) -> bool:
    """Whether the code that was called says `raise` there, or calls what raises."""
    import dis

    at = next((one for one in dis.get_instructions(trace.tb_frame.f_code) if one.offset == trace.tb_lasti), None)
    return at is not None and at.opname in ("RAISE_VARARGS", "RERAISE")
