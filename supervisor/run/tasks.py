"""Foreign code in a task of its own, which can be abandoned if it ignores its cancel.

Only this file has tasks outside a task group: a group would wait for ever for code that swallows every cancel.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import copy_context
from functools import partial, wraps
from typing import Any, Generic, ParamSpec, TypeVar

import anyio
from anyio.lowlevel import checkpoint
from sniffio import current_async_library

from proctor.policies.values.foreign_code import as_error, is_signal

from ..errors import StoreError

P = ParamSpec("P")
T = TypeVar("T")


class SelfCancelledError(RuntimeError):
    """Foreign code cancelled itself."""


async def call_isolated(call: Callable[[], Awaitable[T]]) -> T:
    """Call foreign code and return its result.

    Raises what it raises, as an Exception whatever it was: a cancel of its own making (SelfCancelledError),
    KeyboardInterrupt and SystemExit are errors of that code. Only a cancel of the waiting task goes through.
    """
    given: list[T] = []
    raised: list[Exception] = []

    async def guarded() -> None:
        try:
            given.append(await awaitable(call()))
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


def calls_store(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Have a cancel that a store raises in this function be a StoreError: it would seem to be one of the task that
    calls it, which would end without a word.
    """

    @wraps(function)
    async def calling(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await function(*args, **kwargs)
        except anyio.get_cancelled_exc_class() as raised:
            if _is_ordered():
                raise
            raise store_cancelled() from raised

    return calling


def _is_ordered() -> bool:
    """Whether a cancel of this task is under way: of a scope around it, or of asyncio's own."""
    task = asyncio.current_task() if current_async_library() == "asyncio" else None
    return anyio.current_effective_deadline() == -math.inf or (task is not None and task.cancelling() > 0)


def awaitable(returned: Awaitable[T]) -> Awaitable[T]:
    """What a call of foreign code returned. Raises TypeError if it cannot be awaited."""
    if not isinstance(returned, Awaitable):
        raise TypeError(f"it returned a value of type `{type(returned).__name__}`: write it as an `async def`")
    return returned


def own_error(raised: BaseException) -> Exception:
    """The error of foreign code in this task, as an Exception. Raises a cancel of the waiting task, and passes what a
    signal handler raised on to the event loop.
    """
    if is_signal(raised):
        pass_on(raised)
    if not _is_cancel(raised):
        return as_error(raised)
    if anyio.current_effective_deadline() == -math.inf:
        raise raised
    return SelfCancelledError("it was cancelled by its own code")


def tool_error(raised: BaseException) -> BaseException:
    """The error of a tool that a framework runs in a task of its own: a cancel and the program's signals as they are,
    anything else as an Exception, because on asyncio a task that raises SystemExit ends the event loop.
    """
    return raised if _is_cancel(raised) or is_signal(raised) else as_error(raised)


def pass_on(raised: BaseException) -> None:
    """Have the event loop raise what a handler of the program's signals raised."""

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


def store_timeout(seconds: float) -> StoreError:
    """The error for a store that does not answer."""
    return StoreError(f"the store has not answered for {seconds:g} seconds")


def store_cancelled() -> StoreError:
    """The error for a store that raises a cancel which nobody ordered."""
    return StoreError("the store cancelled a call by itself")


class OneShotEvent:
    """Like `anyio.Event`, which holds a queue of its own on asyncio: thousands of idle runs wait for several."""

    __slots__ = ("_event", "_futures", "_set")

    def __init__(self) -> None:
        self._set = False
        self._event: anyio.Event | None = None
        self._futures: tuple[asyncio.Future[None], ...] = ()

    def set(self) -> None:
        """Wake all waiters, now and from now on."""
        self._set = True
        if self._event is not None:
            self._event.set()
        futures, self._futures = self._futures, ()
        for future in futures:
            if not future.done():
                future.set_result(None)

    def is_set(self) -> bool:
        return self._set

    async def wait(self) -> None:
        if self._set:
            await checkpoint()
        elif current_async_library() == "asyncio":
            future = asyncio.get_running_loop().create_future()
            self._futures = (*self._futures, future)
            try:
                await future
            except BaseException:
                self._futures = tuple(one for one in self._futures if one is not future)
                raise
        else:
            if self._event is None:
                self._event = anyio.Event()
            await self._event.wait()


RELEASE_S = 5.0
"""How long foreign code may take to end after a cancel."""

_tasks: set[Any] = set()
"""The running tasks: asyncio itself keeps only weak references."""
_forget = _tasks.discard  # one object for all tasks, as each idle run keeps two of them


def spawn(run: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a coroutine function in a task outside every group. It must not raise, and no scope cancels it.

    Lighter than a task of a group, which costs anyio two KiB on asyncio: there is one for each idle run.
    """
    if current_async_library() == "trio":
        from trio.lowlevel import spawn_system_task

        spawn_system_task(run, context=copy_context())
    else:
        _start(asyncio.get_running_loop(), run)


def _start(loop: asyncio.AbstractEventLoop, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
    task = asyncio.Task(run(), loop=loop)  # an eager factory would run it at once, in here
    _tasks.add(task)
    task.add_done_callback(_forget)
    loop.call_soon(_begun, task, run)  # called right after its first step


def _begun(task: asyncio.Task[None], run: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Start a task again that was cancelled before its first step: nothing of it ran, and its waiters would wait for
    ever.
    """
    if task.cancelled():
        _start(task.get_loop(), run)


class DetachedTask(Generic[T]):
    """Calls something at once; `done` is set when it has ended, with its `result` or `error`, and `over` called."""

    __slots__ = ("_over", "_scope", "done", "error", "result")

    def __init__(
        self, call: Callable[[], Awaitable[T]], *, over: Callable[[DetachedTask[T]], None] = lambda _: None
    ) -> None:
        self._over = over
        self._scope = anyio.CancelScope()
        self.done = OneShotEvent()
        self.result: T | None = None
        self.error: Exception | None = None
        spawn(partial(self._run, call))

    def cancel(self) -> None:
        if not self.done.is_set():
            self._scope.cancel()

    async def released(self, within_s: float) -> bool:
        """Whether it ends within so many seconds, or within `RELEASE_S` of a cancel. False: it is abandoned."""
        if within_s and not self.done.is_set():
            with anyio.move_on_after(within_s):
                await self.done.wait()
        if not self.done.is_set():
            self.cancel()
            with anyio.move_on_after(RELEASE_S):
                await self.done.wait()
        return self.done.is_set()

    async def _run(self, call: Callable[[], Awaitable[T]]) -> None:
        try:
            with self._scope:
                going = awaitable(call())
                del call  # it is not needed while what it began goes on, which may be long
                self.result = await going
        except BaseException as raised:
            self.error = own_error(raised)
        finally:
            self.done.set()
            self._over(self)


async def call_within(seconds: float, call: Callable[[], Awaitable[T]]) -> T:
    """Call foreign code and return its result; raises as `call_isolated` does, and TimeoutError if it has not ended
    after so many seconds. It is cancelled then, and left behind if it is deaf to that.
    """
    task = DetachedTask(call)
    try:
        await checkpoint()  # whatever does not wait has ended then, which costs less than a time limit
        if not task.done.is_set():
            with anyio.move_on_after(seconds):
                await task.done.wait()
    except BaseException:  # the waiting task was cancelled
        with anyio.CancelScope(shield=True):
            await task.released(0)
        raise
    if not task.done.is_set():
        task.cancel()
        raise TimeoutError(f"no answer within {seconds:g} seconds")
    if task.error is not None:
        raise task.error
    return task.result  # type: ignore[return-value]  # it has ended


class BackgroundTasks:
    """Runs each in a task of its own; `failed` is called with an error of one, unless it cancelled itself."""

    __slots__ = ("_failed", "_going")

    def __init__(self, failed: Callable[[Exception], None]) -> None:
        self._failed = failed
        self._going: tuple[DetachedTask[Any], ...] = ()

    def start(self, call: Callable[[], Awaitable[None]]) -> None:
        """Start one; if it has not ended by `end` and ignores a cancel, it is abandoned."""
        self._going = (*self._going, DetachedTask(call, over=self._is_over))

    def cancel(self) -> None:
        for task in self._going:
            task.cancel()

    async def end(self) -> None:
        """Cancel those that run, and wait until they have ended or are abandoned."""
        if self._going:
            await checkpoint()  # most are about to end, which costs less than a cancel
        going = self._going
        self.cancel()
        for task in going:
            await task.released(0)

    def _is_over(self, task: DetachedTask[Any]) -> None:
        self._going = tuple(one for one in self._going if one is not task)
        if task.error is not None and not isinstance(task.error, SelfCancelledError):
            self._failed(task.error)
