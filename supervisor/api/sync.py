"""One run from code that is not asynchronous: a script, a notebook, a thread of a server."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import anyio
from anyio.from_thread import start_blocking_portal
from sniffio import AsyncLibraryNotFoundError, current_async_library

from proctor.policies.policy import Policy
from proctor.policies.rules.nets.machine import Mappers, OnResults, Validators
from proctor.policies.stream.calls import RunContext

from ..launch.history import Continuation
from ..machine.boundary.result import RunResult
from ..ports.adapters import Adapter, Approver, Publisher, Store
from ..redaction import Redaction
from .once import run_once


def run_once_sync(
    adapter: Adapter,
    prompt: str,
    *,
    policies: Sequence[Policy] | None = None,
    policy: Policy | None = None,
    store: Store | None = None,
    context: RunContext | None = None,
    approver: Approver | None = None,
    publishers: Sequence[Publisher] = (),
    session_id: str | None = None,
    run_id: str | None = None,
    continuation: Continuation = "auto",
    metadata: Mapping[str, Any] | None = None,
    validators: Validators | None = None,
    on_results: OnResults | None = None,
    mappers: Mappers | None = None,
    redaction: Redaction | None = None,
    timeout_s: float | None = None,
) -> RunResult:
    """Do what `run_once` does, and block until it is done. If an event loop already runs in this thread, it is
    blocked too.

    Ctrl-C, or `timeout_s` seconds, end the run; the call then waits until the end is recorded.

    Args:
        adapter: the agent.
        prompt: the agent's task.
        policies: the policies, merged left to right; `()` for a run under no policy.
        policy: one policy, instead of `policies`.
        store: where the run is recorded; by default in memory.
        context: who runs what; what rules name in `when`.
        approver: answers held calls in this process.
        publishers: receive every stored event.
        session_id: the session to continue; by default a new one.
        run_id: the run's id; by default a new one.
        continuation: how to continue a session: `native` (the agent's own resume), `replay`, `none`; `auto`
            chooses what fits, and `replay` if the client does not have its own session.
        metadata: anything to record with the run.
        validators: callables that judge calls under a net, by the net's name.
        on_results: callables that receive what such calls returned, by the net's name.
        mappers: callables that give calls more names for a net, by the net's name.
        redaction: what is removed from the record as a secret; by default the usual patterns.
        timeout_s: the most seconds it may take; by default unbounded.

    Raises:
        KeyboardInterrupt: Ctrl-C.
        TimeoutError: it took longer than `timeout_s`.
        PolicyViolationError, PolicyError, UsageError, StoreError, ProviderError: as `run_once`.
    """
    order = partial(
        run_once,
        adapter,
        prompt,
        policies=policies,
        policy=policy,
        store=store,
        context=context,
        approver=approver,
        publishers=publishers,
        session_id=session_id,
        run_id=run_id,
        continuation=continuation,
        metadata=metadata,
        validators=validators,
        on_results=on_results,
        mappers=mappers,
        redaction=redaction,
    )

    async def within() -> RunResult:
        with anyio.fail_after(timeout_s):
            return await order()

    if not _loop_runs():
        return anyio.run(within)
    with _interruptible(), start_blocking_portal() as portal:
        run = portal.start_task_soon(within)
        try:
            return run.result()
        except KeyboardInterrupt:
            run.cancel()  # leaving the portal waits for what is left
            raise


def _loop_runs() -> bool:
    with suppress(RuntimeError):
        asyncio.get_running_loop()  # also in a callback, where no task is under way
        return True
    with suppress(AsyncLibraryNotFoundError):
        current_async_library()
        return True
    return False


@contextmanager
def _interruptible() -> Iterator[None]:
    """Ctrl-C is a KeyboardInterrupt at once: the loop that stands still could not hear of it before the run's end."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or before in (None, signal.SIG_IGN, signal.SIG_DFL):
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
