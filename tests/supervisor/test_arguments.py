"""The arguments of a run: every function that starts one has the same options and checks, and ignores none."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from supervised import OPEN

from proctor.policies import Capabilities, Deny, Limits, Policy, PolicyViolationError, RunContext
from proctor.policies.events import RunStarted, ToolCallStarted
from proctor.supervisor import ApprovalAnswer, MemoryStore, RunOptions, Supervisor, UsageError, answer
from proctor.supervisor.api.run_once import cancel_for_approval, create_run, execute_run, run_once, run_once_sync
from proctor.supervisor.arguments import NO_POLICY
from proctor.supervisor.testing import FakeAdapter, FakeApprover, Pause

pytestmark = pytest.mark.anyio
NO_BASH = Policy(name="no bash", tool_rules=(Deny(("bash",)),))
EMPTY = Policy(name="empty")
BASH = ToolCallStarted(tool_call_id="c1", tool_name="bash", tool_input={})


async def _once(adapter: FakeAdapter, **given: Any) -> None:
    await run_once(adapter, "go", **given)


async def _execute_run(adapter: FakeAdapter, **given: Any) -> None:
    store = MemoryStore()
    await execute_run(store, adapter, await create_run(store, "go"), **given)


async def _start(adapter: FakeAdapter, **given: Any) -> None:
    async with Supervisor(MemoryStore()) as supervisor:
        await supervisor.start(adapter, "go", **given)


async def _execute(adapter: FakeAdapter, **given: Any) -> None:
    store = MemoryStore()
    async with Supervisor(store) as supervisor:
        await supervisor.execute(adapter, await create_run(store, "go"), **given)


async def _sync(adapter: FakeAdapter, **given: Any) -> None:
    run_once_sync(adapter, "go", **given)


ENTRIES = [_once, _execute_run, _start, _execute, _sync]
Entry = Callable[..., Awaitable[None]]
EACH = pytest.mark.parametrize("start", ENTRIES)


@EACH
@pytest.mark.parametrize("policies", [[EMPTY], (), [], "p"], ids=repr)
async def test_policies_and_policy_together_are_an_error(start: Entry, policies: Any) -> None:
    """In every function, whatever their values. Nothing is launched."""
    adapter = FakeAdapter([BASH])
    with pytest.raises(UsageError, match="both `policies` and `policy`"):
        await start(adapter, policies=policies, policy=NO_BASH)

    assert adapter.launches == []


@EACH
async def test_running_without_a_policy_must_be_explicit(start: Entry, caplog: pytest.LogCaptureFixture) -> None:
    """`policies=()` runs and logs one line; one that denies nothing logs none. Without either, it is an error."""
    adapter = FakeAdapter([BASH])
    with pytest.raises(UsageError, match=r"no policy was given.*policies=\(\)"):
        await start(adapter)
    assert caplog.messages == []
    assert adapter.launches == []

    await start(adapter, policies=())
    await start(adapter, policies=[NO_POLICY])
    assert len(adapter.launches) == 2
    assert len([message for message in caplog.messages if "run.under_no_policy" in message]) == 1


async def test_a_run_without_a_policy_is_recorded_and_can_be_cancelled() -> None:
    """Its events name no policy."""
    store = MemoryStore()
    async with Supervisor(store) as supervisor:
        handle = await supervisor.start(FakeAdapter([Pause()]), "go", policies=())
        await handle.cancel(by="ana")
        result = await handle.wait()
    started = [event for event in result.events if isinstance(event, RunStarted)]

    assert result.status == "cancelled"
    assert started[0].metadata["policy"] == "no policy"


async def test_an_approver_that_would_never_be_asked_is_an_error() -> None:
    """`answerable=False` means that nobody can answer."""
    with pytest.raises(UsageError, match=r"`approver`.*`answerable=False`"):
        Supervisor(MemoryStore(), approver=FakeApprover(True), answerable=False)


async def test_a_created_run_keeps_its_context() -> None:
    """Executing it with another context is an error; with the same context it starts."""
    store = MemoryStore()
    context = RunContext(tenant="acme", labels={"env": "prod"})
    run_id = await create_run(store, "go", context=context)
    with pytest.raises(UsageError, match="another `context`"):
        await execute_run(store, FakeAdapter(), run_id, policies=[EMPTY], context=RunContext(tenant="other"))
    result = await execute_run(store, FakeAdapter(), run_id, policies=[EMPTY], context=context)

    assert result.status == "completed"


@pytest.mark.parametrize("field", ["run_id", "session_id", "provider", "model", "workspace", "home"])
async def test_a_context_with_another_runs_ids_is_an_error(field: str) -> None:
    """A caller can't override what the supervisor knows of the run."""
    capabilities = Capabilities(gate="all", model="m", workspace="/w", home="/h")
    adapter = FakeAdapter(capabilities=capabilities)
    with pytest.raises(UsageError, match=f"the context's `{field}`"):
        await run_once(adapter, "go", policies=[EMPTY], context=msgspec.convert({field: "other"}, RunContext))

    assert adapter.launches == []


@pytest.mark.parametrize("given", [
    {"metadata": {"x": object()}}, {"context": RunContext(labels={"x": object()})},
    {"metadata": {"x": [float("nan")]}}, {"context": RunContext(labels={"x": float("inf")})},
])  # fmt: skip
async def test_an_argument_that_cannot_be_stored_is_an_error(given: Any) -> None:
    """Before anything starts."""
    with pytest.raises(UsageError, match="cannot be recorded"):
        await run_once(FakeAdapter(), "go", policies=[EMPTY], **given)


async def test_the_handle_of_another_run_is_an_error() -> None:
    """`cancel_for_approval` ends the given run or none."""
    store = MemoryStore()
    about = {"tool_name": "bash", "tool_call_id": "c1"}
    async with Supervisor(store) as supervisor:
        one = await supervisor.start(FakeAdapter([Pause()]), "go", policies=[EMPTY])
        two = await supervisor.start(FakeAdapter([Pause()]), "go", policies=[EMPTY])
        with pytest.raises(UsageError, match="not of run"):
            await cancel_for_approval(store, one, two.run_id, about)
        assert not one.done
        request = await cancel_for_approval(store, one, one.run_id, about)
        with pytest.raises(UsageError, match="not of run"):
            await cancel_for_approval(store, two, two.run_id, request)
        await supervisor.cancel_all()


@EACH
async def test_an_unknown_option_is_rejected_with_the_nearest_name(start: Entry) -> None:
    """Or with all names if none is near."""
    with pytest.raises(UsageError, match=r"takes no `polices`; did you mean `policies`\?"):
        await start(FakeAdapter(), polices=[OPEN])
    with pytest.raises(UsageError, match=r"takes no `zzz`; it takes policies, policy, context, continuation, "):
        await start(FakeAdapter(), policy=OPEN, zzz=1)


@EACH
@pytest.mark.parametrize(("wrong", "message"), [
    ({"context": {"user": "a"}}, "`context` is a value of type `dict`, not a `RunContext`"),
    ({"context": RunContext(tenant=5)}, "`context` cannot be recorded: .* got a whole number at `[$].tenant`"),  # type: ignore[arg-type]
    ({"context": RunContext(labels=["a"])}, "`context` cannot be recorded: .* got a list at `[$].labels`"),  # type: ignore[arg-type]
    ({"validators": [print]}, "`validators` is not a mapping from the names of nets to functions"),
    ({"continuation": "sometimes"}, "sometimes"),
])  # fmt: skip
async def test_each_option_is_checked(start: Entry, wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        await start(FakeAdapter(), policy=OPEN, **wrong)


async def test_options_that_a_created_run_has_are_rejected() -> None:
    """Its ids and metadata are in the store."""
    with pytest.raises(UsageError, match="`execute_run` takes no `session_id`"):
        await _execute_run(FakeAdapter(), policy=OPEN, session_id="other")


@pytest.mark.parametrize("seconds", ["9", None, True, float("nan")])
async def test_an_invalid_number_of_seconds_is_an_error(seconds: Any) -> None:
    """In every method with a timeout."""
    store, about = MemoryStore(), {"tool_name": "bash", "tool_call_id": "c1"}
    yes = ApprovalAnswer(granted=True, by="ana")
    async with Supervisor(store) as supervisor:
        handle = await supervisor.start(FakeAdapter([Pause()]), "go", policies=[EMPTY])
        waits: list[Awaitable[Any]] = [
            cancel_for_approval(store, handle, handle.run_id, about, timeout_s=seconds),
            supervisor.switch.kill(by="ana", everything=True, wait_s=seconds),
            answer(store, "a", yes, wait_s=seconds),
            *([_sync(FakeAdapter(), policy=OPEN, timeout_s=seconds)] if seconds is not None else []),
        ]
        for waiting in waits:
            with pytest.raises(UsageError, match="it is a number of seconds"):
                await waiting
        for other in (None, "claude", FakeAdapter):
            with pytest.raises(UsageError, match="not an adapter"):
                await cancel_for_approval(store, other, handle.run_id, about)  # type: ignore[arg-type]
        for given in (3, ["r"], None):
            with pytest.raises(UsageError, match="not text"):
                await supervisor.execute(FakeAdapter(), given, policies=[EMPTY])  # type: ignore[arg-type]
        assert not handle.done
        await handle.cancel()


@EACH
async def test_each_option_works(start: Entry) -> None:
    """All of them together."""
    every = dict.fromkeys(RunOptions.__annotations__, None) | {"policy": OPEN, "continuation": "none"}
    await start(FakeAdapter(), **every)


def test_the_five_functions_have_the_options_in_their_signatures() -> None:
    """For readers and editors."""
    for function in (run_once, run_once_sync, execute_run, Supervisor.start, Supervisor.execute):
        assert "Options]" in str(inspect.signature(function).parameters["options"].annotation)


async def test_a_run_that_preflight_rejects_never_calls_the_adapter_and_is_not_stored() -> None:
    """The error has the code `policy_violation` and the findings."""
    adapter, store = FakeAdapter(), MemoryStore()
    policy = Policy(name="p", limits=Limits(max_total_tokens=0))
    with pytest.raises(PolicyViolationError) as raised:
        await run_once(adapter, "go", policies=[policy], store=store)

    assert raised.value.code == "policy_violation"
    assert raised.value.findings
    assert (adapter.compiled, adapter.launches) == (0, [])
    assert await store.runs() == []
