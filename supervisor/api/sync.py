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
from proctor.policies.rules.nets.machine import OnResults, Validators
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
    redaction: Redaction | None = None,
    timeout_s: float | None = None,
) -> RunResult:
    """What `run_once` does, awaited here; also where an event loop runs already, which then stands still.

    Ctrl-C, and the end of `timeout_s` seconds, end the run and wait until it has ended and is recorded.

    Args:
        adapter: the agent.
        prompt: what it is to do.
        policies: the policies, merged left to right.
        policy: one policy, where `policies` is not given.
        store: where the run is recorded; in memory if not given.
        context: who runs what; what rules name in `when`.
        approver: answers held calls in this process.
        publishers: are handed every stored event.
        session_id: the session to go on with; a new one if not given.
        run_id: the run's id; a new one if not given.
        continuation: how a session goes on: `native` (the agent's own resume), `replay`, `none`; `auto`: what fits,
            and `replay` where the client does not have its own session.
        metadata: anything to record with the run.
        validators: callables that are asked about calls under a net, by the net's name.
        on_results: callables that are told what such calls returned, by the net's name.
        redaction: what is taken out of the record as a secret; the usual patterns if not given.
        timeout_s: seconds it may take; without a bound if not given.

    Raises:
        KeyboardInterrupt: Ctrl-C.
        TimeoutError: its time was up.
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
