"""One run, from its start to its result."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any, Unpack

import anyio
import msgspec
from anyio.from_thread import start_blocking_portal
from sniffio import AsyncLibraryNotFoundError, current_async_library

from proctor.policies.events.calls import ToolCall, input_digest
from proctor.policies.events.run_context import RunContext

from .. import arguments
from ..errors import UsageError
from ..launch.history import as_child_run, store_and_approver
from ..launch.launch import new_id, run_info
from ..machine.interface import RunResult
from ..ports.adapter import Adapter, Approver, Publisher
from ..ports.store import Store, wait_again
from ..ports.stored_types import GOING_ON, ApprovalRequest, Cancel
from ..redaction import Redaction, Redactor
from ..run.tasks import calls_store
from .active_runs import RunHandle
from .supervisor import Supervisor

SERVICES = ("store", "approver", "publishers", "redaction")
"""Parameters of a run that belong to its supervisor."""


async def run_once(
    adapter: Adapter,
    prompt: str,
    *,
    store: Store | None = None,
    approver: Approver | None = None,
    publishers: Sequence[Publisher] = (),
    redaction: Redaction | None = None,
    **options: Unpack[arguments.OnceOptions],
) -> RunResult:
    """Run a prompt under policies and return the result.

    Without an approver and a store, nobody can approve a call: it is denied at once, and preflight reports this. If
    the run has started, an error has the result so far as its `partial`.

    Args:
        adapter: the agent.
        prompt: the agent's task.
        store: the store of the run; by default in memory, or that of a parent run with budgets.
        approver: answers approval requests in this process; without a store, by default that of such a parent.
        publishers: functions that receive each stored event.
        redaction: which secrets to redact; by default the usual patterns.
        options: its policies and more of `RunOptions`; `session_id`, `run_id` and `metadata` of a run that nobody
            created before; and how much of it is recorded, as `RecordOptions` says.

    Raises:
        PolicyViolationError: preflight rejected the run, or a policy cancelled it.
        PolicyError, UsageError: an argument is wrong.
        StoreError: the store cannot be written.
        ProviderError: the agent failed; its own errors are raised unchanged.
    """
    arguments.check_options("run_once", options, arguments.OnceOptions, *SERVICES)
    of_run, bounds = arguments.parted(options)
    store, approver, answerable = store_and_approver(store, approver)
    supervisor = Supervisor(
        store, approver=approver, publishers=publishers, answerable=answerable, redaction=redaction, **bounds
    )
    async with supervisor:
        handle = await supervisor.start(adapter, prompt, **of_run)
        await handle.wait_finished()
    return await handle.wait()


@calls_store
async def create_run(
    store: Store,
    prompt: str,
    *,
    run_id: str | None = None,
    session_id: str | None = None,
    context: RunContext | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> str:
    """Create a run for `execute_run` to start; returns its id.

    Args:
        store: where it is recorded.
        prompt: what the agent is to do.
        run_id: its id; by default a new one.
        session_id: the session to continue; by default a new one.
        context: who runs what.
        metadata: anything to record with the run.

    Raises:
        StoreError: the id is taken, or the store cannot be written.
    """
    arguments.check_store(store)
    info = run_info(prompt, run_id=run_id, session_id=session_id, context=context, metadata=metadata)
    info = await as_child_run(info, store)
    await store.create_run(msgspec.structs.replace(info, created_at=datetime.now(UTC)))
    return info.run_id


async def execute_run(
    store: Store,
    adapter: Adapter,
    run_id: str,
    *,
    approver: Approver | None = None,
    publishers: Sequence[Publisher] = (),
    redaction: Redaction | None = None,
    **options: Unpack[arguments.ExecuteOptions],
) -> RunResult:
    """Run what `create_run` created, and return the result.

    Args:
        store: where it was recorded.
        adapter: the agent.
        run_id: the run.
        approver: answers approval requests in this process.
        publishers: functions that receive each stored event.
        redaction: which secrets to redact; by default the usual patterns.
        options: its policies and more of `RunOptions`; and how much of it is recorded, as `RecordOptions` says.

    Raises:
        UsageError: there is no such run, it was started before, or an argument is wrong.
        PolicyViolationError, PolicyError, StoreError, ProviderError: as `run_once`.
    """
    arguments.check_options("execute_run", options, arguments.ExecuteOptions, *SERVICES[1:])
    of_run, bounds = arguments.parted(options)
    async with Supervisor(
        store, approver=approver, publishers=publishers, redaction=redaction, **bounds
    ) as supervisor:
        handle = await supervisor.execute(adapter, run_id, **of_run)
        await handle.wait_finished()
    return await handle.wait()


@calls_store
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
    arguments.check_store(store)
    arguments.check_text(run_id=run_id, by=by)
    arguments.check_seconds(timeout_s=timeout_s)
    if not isinstance(target, RunHandle):
        arguments.check_adapter(target)
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
        command = Cancel(scope="run", value=run_id, by=by, reason="waiting for approval", approval=wanted)
        await store.send_command(msgspec.structs.replace(command, at=datetime.now(UTC)))
    token = 0
    with anyio.move_on_after(timeout_s):
        while True:
            token = await wait_again(store, token)
            now = await store.run(run_id)
            if now is None or now.status not in GOING_ON:
                return wanted
    raise UsageError(f"run `{run_id}` did not end within {timeout_s:g} seconds; no supervisor seems to own it")


def _request(given: ApprovalRequest | Mapping[str, Any], run_id: str, session_id: str) -> ApprovalRequest:
    ids: dict[str, Any] = {"approval_id": f"{run_id}.{new_id('resume')}", "run_id": run_id, "session_id": session_id}
    if isinstance(given, ApprovalRequest):
        if given.run_id not in ("", run_id):
            raise UsageError(f"the request for approval is of run `{given.run_id}`, not of run `{run_id}`")
        return msgspec.structs.replace(given, **ids)
    try:
        call = ToolCall(
            id=str(given["tool_call_id"]), name=str(given["tool_name"]), input=dict(given.get("tool_input", {}))
        )
    except KeyError as missing:
        raise UsageError(f"the request for approval lacks {missing}") from None
    except (TypeError, ValueError):
        raise UsageError("the request for approval, and its `tool_input`, are mappings") from None
    return ApprovalRequest(
        **ids,
        call=call,
        input_digest=input_digest(call.input),
        policy_name=str(given.get("policy_name", "")),
        violation_kind=str(given.get("violation_kind", "")),
    )


def run_once_sync(
    adapter: Adapter,
    prompt: str,
    *,
    store: Store | None = None,
    approver: Approver | None = None,
    publishers: Sequence[Publisher] = (),
    redaction: Redaction | None = None,
    timeout_s: float | None = None,
    **options: Unpack[arguments.OnceOptions],
) -> RunResult:
    """Like `run_once`, but blocks until the run has ended. If an event loop already runs in this thread, it is
    blocked too.

    Ctrl-C, or `timeout_s` seconds, end the run; the call then waits until the end is recorded.

    Args:
        adapter: the agent.
        prompt: the agent's task.
        store: where the run is recorded; by default in memory.
        approver: answers approval requests in this process.
        publishers: functions that receive each stored event.
        redaction: which secrets to redact; by default the usual patterns.
        timeout_s: the most seconds it may take; by default unbounded.
        options: as for `run_once`.

    Raises:
        KeyboardInterrupt: Ctrl-C.
        TimeoutError: it took longer than `timeout_s`.
        PolicyViolationError, PolicyError, UsageError, StoreError, ProviderError: as `run_once`.
    """
    arguments.check_options("run_once_sync", options, arguments.OnceOptions, *SERVICES, "timeout_s")
    if timeout_s is not None:
        arguments.check_seconds(timeout_s=timeout_s)

    async def within() -> RunResult:
        with anyio.fail_after(timeout_s):
            return await run_once(
                adapter, prompt, store=store, approver=approver, publishers=publishers, redaction=redaction, **options
            )

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
    """Make Ctrl-C a KeyboardInterrupt at once, as a blocked event loop would notice it only at the run's end."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or before in (None, signal.SIG_IGN, signal.SIG_DFL):
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
