"""Code of others, called so that whatever it raises ends nothing but itself."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio
from sniffio import current_async_library

from proctor.policies.values.foreign import is_signal

from ...errors import StoreError, as_error

T = TypeVar("T")


class SelfCancelledError(RuntimeError):
    """Code of others ended itself with a cancel."""


async def contained(call: Callable[[], Awaitable[T]]) -> T:
    """Call code of others and give what it gives.

    Raises what it raises, as an Exception whatever it was: a cancel of its own making (SelfCancelledError),
    KeyboardInterrupt and SystemExit are errors of that code. Only a cancel of the waiting task goes through.
    """
    given: list[T] = []
    raised: list[Exception] = []

    async def guarded() -> None:
        try:
            given.append(await call())
        except BaseException as error:
            raised.append(own_error(error))

    # A group of its own: on asyncio, a task that ends with a cancel nobody ordered ends its whole group.
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(guarded)
    if raised:
        raise raised[0]
    if not given:
        raise SelfCancelledError("it was cancelled by its own code")
    return given[0]


def own_error(raised: BaseException) -> Exception:
    """What code of others raised in this very task, as an error of its own. Raises a cancel of the waiting task.
    What a handler of the program's signals raised goes on to the event loop.
    """
    if is_signal(raised):
        pass_on(raised)
    if not _is_cancel(raised):
        return as_error(raised)
    if anyio.current_effective_deadline() == -math.inf:
        raise raised
    return SelfCancelledError("it was cancelled by its own code")


def tool_error(raised: BaseException) -> BaseException:
    """What a tool raised that a framework runs in a task of its own: a cancel and the program's signals as they are,
    all else as an Exception, as on asyncio a task that raises SystemExit ends the event loop.
    """
    return raised if _is_cancel(raised) or is_signal(raised) else as_error(raised)


def pass_on(raised: BaseException) -> None:
    """Have the event loop raise what a handler of the program's signals raised: it is nobody's here."""

    def again() -> None:
        raise raised

    if current_async_library() == "trio":
        from trio.lowlevel import current_trio_token

        current_trio_token().run_sync_soon(again)
    else:
        asyncio.get_running_loop().call_soon(again)


def _is_cancel(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return any(_is_cancel(one) for one in error.exceptions)
    return isinstance(error, anyio.get_cancelled_exc_class())


def silence(seconds: float) -> StoreError:
    """The error of a store that does not answer."""
    return StoreError(f"the store has not answered for {seconds:g} seconds")
