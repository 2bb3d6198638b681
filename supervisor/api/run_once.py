"""One run, from its start to its result."""

from __future__ import annotations

import asyncio
import signal
import threading
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

import anyio
import msgspec
from anyio.from_thread import start_blocking_portal
from sniffio import AsyncLibraryNotFoundError, current_async_library

from proctor.policies.events.calls import ToolCall, input_digest

from ..arguments import check_store, check_text
from ..errors import UsageError
from ..launch.history import as_sub_run, parents_store
from ..launch.launch import new_id, run_info
from ..ports.stored_types import GOING_ON, ApprovalRequest, Cancel
from ..redaction import Redactor
from ..store.memory_store import MemoryStore
from .active_runs import RunHandle
from .supervisor import Supervisor

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from proctor.policies.events.run_context import RunContext
    from proctor.policies.policy import Policy
    from proctor.policies.rules.petri_net import Mappers, OnResults, Validators

    from ..launch.history import Continuation
    from ..machine.interface import RunResult
    from ..ports.adapter import Adapter, Approver, Publisher
    from ..ports.store import Store
    from ..redaction import Redaction


LOOK_AGAIN_S = 0.5


async def run_once(
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
) -> RunResult:
    """Run a prompt under policies and return the result.

    Without an approver and without a store, nobody can answer a request for approval: such a call is refused at
    once, and preflight says so. If the run has begun, an error carries the result so far as its `partial`.

    Args:
        adapter: the agent.
        prompt: the agent's task.
        policies: the policies, merged left to right; `()` for a run under no policy.
        policy: one policy, instead of `policies`.
        store: where the run is recorded; by default in memory, or with the run with budgets that starts it.
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

    Raises:
        PolicyViolationError: preflight refused, or a policy cancelled the run.
        PolicyError, UsageError: an argument makes no sense.
        StoreError: it cannot be recorded.
        ProviderError: the agent's client failed; the provider's own errors come out unchanged.
    """
    store = parents_store() if store is None else store
    answerable = approver is not None or store is not None
    store = MemoryStore() if store is None else store
    supervisor = Supervisor(
        store, approver=approver, publishers=publishers, answerable=answerable, redaction=redaction
    )
    async with supervisor:
        handle = await supervisor.start(
            adapter,
            prompt,
            policies=policies,
            policy=policy,
            context=context,
            session_id=session_id,
            run_id=run_id,
            continuation=continuation,
            metadata=metadata,
            validators=validators,
            on_results=on_results,
            mappers=mappers,
        )
        await handle.wait_finished()
    return await handle.wait()


async def create_run(
    store: Store,
    prompt: str,
    *,
    run_id: str | None = None,
    session_id: str | None = None,
    context: RunContext | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> str:
    """Record a run for `execute_run` to start; returns its id.

    Args:
        store: where it is recorded.
        prompt: what the agent is to do.
        run_id: its id; by default a new one.
        session_id: the session to continue; by default a new one.
        context: who runs what.
        metadata: anything to record with the run.

    Raises:
        StoreError: the id is taken, or it cannot be recorded.
    """
    check_store(store)
    info = run_info(prompt, run_id=run_id, session_id=session_id, context=context, metadata=metadata)
    info = await as_sub_run(info, store)
    await store.create_run(msgspec.structs.replace(info, created_at=datetime.now(UTC)))
    return info.run_id


async def execute_run(
    store: Store,
    adapter: Adapter,
    run_id: str,
    *,
    policies: Sequence[Policy] | None = None,
    policy: Policy | None = None,
    continuation: Continuation = "auto",
    context: RunContext | None = None,
    approver: Approver | None = None,
    publishers: Sequence[Publisher] = (),
    validators: Validators | None = None,
    on_results: OnResults | None = None,
    mappers: Mappers | None = None,
    redaction: Redaction | None = None,
) -> RunResult:
    """Run what `create_run` recorded and return the result.

    Args:
        store: where it was recorded.
        adapter: the agent.
        run_id: the run.
        policies: the policies, merged left to right; `()` for a run under no policy.
        policy: one policy, instead of `policies`.
        continuation: how to continue its session, as for `run_once`.
        context: who runs what; what rules name in `when`.
        approver: answers held calls in this process.
        publishers: receive every stored event.
        validators: callables that judge calls under a net, by the net's name.
        on_results: callables that receive what such calls returned, by the net's name.
        mappers: callables that give calls more names for a net, by the net's name.
        redaction: what is removed from the record as a secret; by default the usual patterns.

    Raises:
        UsageError: there is no such run, it was started before, or an argument makes no sense.
        PolicyViolationError, PolicyError, StoreError, ProviderError: as `run_once`.
    """
    async with Supervisor(store, approver=approver, publishers=publishers, redaction=redaction) as supervisor:
        handle = await supervisor.execute(
            adapter,
            run_id,
            policies=policies,
            policy=policy,
            continuation=continuation,
            context=context,
            validators=validators,
            on_results=on_results,
            mappers=mappers,
        )
        await handle.wait_finished()
    return await handle.wait()


async def cancel_for_approval(
    store: Store,
    target: Adapter | RunHandle,
    run_id: str,
    request: ApprovalRequest | Mapping[str, Any],
    *,
    by: str = "",
    timeout_s: float = 60,
) -> ApprovalRequest:
    """End a run, in any process, so that a call can be approved first.

    Once approved, a run of the same session may make that call once, with that input (`continuation` is
    `replay` if the provider cannot resume).

    Args:
        store: where the run is.
        target: the run's handle if this process has it, else its adapter.
        run_id: the run.
        request: the request, or a mapping with `tool_name`, `tool_call_id`, `tool_input`, `policy_name` and
            `violation_kind`.
        by: the person who ordered it, if any.
        timeout_s: seconds to wait for the run's end.

    Returns:
        The request as recorded.

    Raises:
        UsageError: there is no such run, it is not running, or it did not end in time.
    """
    check_store(store)
    check_text(by=by)
    run = await store.run(run_id)
    if run is None:
        raise UsageError(f"there is no run `{run_id}`")
    if run.status not in GOING_ON:
        raise UsageError(f"run `{run_id}` is not running: it is {run.status}")
    if isinstance(target, RunHandle) and target.run_id != run_id:
        raise UsageError(f"`target` is the handle of run `{target.run_id}`, not of run `{run_id}`")
    wanted = Redactor().redact(_request(request, run_id, run.session_id), run.session_id)
    if isinstance(target, RunHandle):
        await target.cancel_for_approval(wanted, by=by)
    else:
        order = Cancel(scope="run", value=run_id, by=by, reason="waiting for approval", approval=wanted)
        await store.instruct(msgspec.structs.replace(order, at=datetime.now(UTC)))
    token = 0
    with anyio.move_on_after(timeout_s):
        while True:
            token = await store.wait(token, LOOK_AGAIN_S)
            now = await store.run(run_id)
            if now is None or now.status not in GOING_ON:
                return wanted
    raise UsageError(f"run `{run_id}` did not end within {timeout_s:g} seconds; no supervisor seems to own it")


def _request(given: ApprovalRequest | Mapping[str, Any], run_id: str, session_id: str) -> ApprovalRequest:
    if isinstance(given, ApprovalRequest):
        if given.run_id not in ("", run_id):
            raise UsageError(f"the request for approval is of run `{given.run_id}`, not of run `{run_id}`")
        return msgspec.structs.replace(
            given, approval_id=f"{run_id}.{new_id('resume')}", run_id=run_id, session_id=session_id
        )
    try:
        call = ToolCall(
            id=str(given["tool_call_id"]),
            name=str(given["tool_name"]),
            input=dict(given.get("tool_input", {})),
        )
    except KeyError as missing:
        raise UsageError(f"the request for approval lacks {missing}") from None
    except (TypeError, ValueError):
        raise UsageError("the request for approval, and its `tool_input`, are mappings") from None
    return ApprovalRequest(
        approval_id=f"{run_id}.{new_id('resume')}",
        run_id=run_id,
        session_id=session_id,
        call=call,
        input_digest=input_digest(call.input),
        policy_name=str(given.get("policy_name", "")),
        violation_kind=str(given.get("violation_kind", "")),
    )


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
