"""Python code of a run: checks, validators, result hooks, and nets that are added and removed."""

from typing import Any

import anyio
import pytest
from msgspec import structs

from proctor.policies import (
    Check,
    Deny,
    Policy,
    PolicyError,
    PolicyViolationError,
    Refuse,
    RunContext,
    ToolCall,
    Usage,
    compile_policy,
)
from proctor.policies.events import ErrorOccurred, NetJoined, NetLeft, PolicyViolated, TokenUsageUpdated
from proctor.policies.events.run_context import Tool
from proctor.policies.rules.petri_net import NetState, Transition
from proctor.policies.rules.python_check import CheckContext
from proctor.supervisor import MemoryStore, RunHandle, Supervisor, UsageError, create_run, execute_run, run_once
from proctor.supervisor.run import callbacks
from proctor.supervisor.testing import Ask, FakeAdapter, Step

pytestmark = pytest.mark.anyio
NETS = Policy(name="p", on_violation="deny", nets=["require backup before delete"])
NET = "require backup before delete"


def covered(call: Any, transition: Transition, state: NetState) -> str | None:
    if transition.name == "use" and call.input["path"] not in state.meta.get("saved", []):
        return "it is not backed up"
    return None


def remembers(call: Any, transition: Transition, output: Any, state: NetState) -> None:
    state.meta.setdefault("saved", []).append(call.input["path"])


def steps(*calls: tuple[str, str, dict[str, Any]]) -> list[Step]:
    return [Ask(id=id, name=name, input=input) for id, name, input in calls]


CLEANING = steps(
    ("1", "backup", {"path": "/data"}), ("2", "delete", {"path": "/home"}), ("3", "delete", {"path": "/data"})
)


@pytest.mark.parametrize("created", [False, True])
async def test_validators_and_result_hooks_are_attached_to_a_run(created: bool) -> None:
    """By the net's name, also to a created run. Their state belongs to the session."""
    adapter, store = FakeAdapter(CLEANING), MemoryStore()
    given: Any = {"policies": [NETS], "validators": {NET: covered}, "on_results": {NET: remembers}}
    if created:
        await execute_run(store, adapter, await create_run(store, "go"), **given)
    else:
        await run_once(adapter, "go", **given)

    assert [call.id for call in adapter.ran] == ["1", "3"]


async def test_each_run_of_a_supervisor_has_its_own_validators() -> None:
    """Runs share a plan only if the same functions are attached."""
    again, plain, checked = FakeAdapter(CLEANING), FakeAdapter(CLEANING), FakeAdapter(CLEANING)
    given: list[tuple[FakeAdapter, Any]] = [(plain, None), (checked, {NET: covered})]
    given += [(again, each) for each in (None, {NET: covered}, {NET: lambda *_: "never"})]
    async with Supervisor(MemoryStore()) as supervisor:
        for agent, validators in given:
            await (await supervisor.start(agent, "go", policies=[NETS], validators=validators)).wait_finished()

    assert [[call.id for call in agent.ran] for agent in (plain, checked)] == [["1", "2"], ["1"]]
    assert [call.id for call in again.ran] == ["1", "2", "1"]


@pytest.mark.parametrize(("given", "error", "says"), [
    ({"validators": {"nowhere": covered}}, PolicyError, "no net is called `nowhere`"),
    ({"validators": {NET: 3}}, PolicyError, "not a plain function"),
    ({"on_results": [remembers]}, UsageError, "`on_results` is not a mapping"),
    ({"validators": {3: covered}}, UsageError, "`validators` is not a mapping"),
])  # fmt: skip
async def test_an_attachment_that_does_not_fit_starts_nothing(given: Any, error: type[Exception], says: str) -> None:
    """With a misspelt name, a validator would never run."""
    adapter = FakeAdapter(CLEANING)
    with pytest.raises(error, match=says):
        await run_once(adapter, "go", policies=[NETS], **given)

    assert adapter.ran == []


async def test_nets_are_added_to_and_removed_from_an_active_run() -> None:
    """From the next call on. A removed net keeps its state until it is added again."""
    line = "limit push to 1 per session"
    statuses: list[str] = []
    resolved: list[dict[str, str]] = []
    handles: list[RunHandle] = []

    async def meanwhile(call: ToolCall) -> None:
        (handle,) = handles
        if call.id == "leave":
            handle.remove_net(line)
        else:
            handle.add_net(line)
        statuses.append(handle.status())
        resolved.append(handle.resolve("push"))

    calls = ("1", "push"), ("join", "wait"), ("2", "push"), ("3", "push"), ("leave", "wait"), ("4", "push")
    adapter = FakeAdapter(steps(*((id, name, {}) for id, name in (*calls, ("back", "wait"), ("5", "push")))))
    policy = Policy(name="p", on_violation="deny", rules=[Check(check=meanwhile, tool="wait")])
    async with Supervisor(MemoryStore()) as supervisor:
        handles.append(await supervisor.start(adapter, "go", policies=[policy]))
        await handles[0].wait_finished()
        record = (await handles[0].wait()).events
    pushed = [call.id for call in adapter.ran if call.name == "push"]
    changes = [(event.type, event.name) for event in record if isinstance(event, NetJoined | NetLeft)]
    folded = compile_policy(policy).monitor()
    for event in record:
        if event.type != "run_completed":
            folded.observe(event)

    assert pushed == ["1", "2", "4"]
    assert changes == [("net_joined", line), ("net_left", line), ("net_joined", line)]
    assert folded.status() == statuses[-1]
    assert resolved == [{line: "gated"}, {}, {line: "blocked"}]
    assert statuses == [
        f"{line}: budget: 1; now: push",
        f"{line}: no token; not now: push; not active",
        f"{line}: no token; not now: push",
    ]


async def test_a_validator_that_changes_nets_does_so_for_later_calls() -> None:
    """The call that it evaluates is one of the nets from before, live and from the log."""
    line, other = "limit push to 1 per session", "block pull"
    handles: list[RunHandle] = []

    def leaves(*_: Any) -> None:
        handles[0].remove_net(line)
        handles[0].add_net(other)

    async def meanwhile(call: ToolCall) -> None:
        handles[0].add_net(line)

    adapter = FakeAdapter(steps(("1", "push", {}), ("2", "pull", {}), ("back", "wait", {}), ("3", "push", {})))
    policy = Policy(name="p", on_violation="deny", nets=[line], rules=[Check(check=meanwhile, tool="wait")])
    async with Supervisor(MemoryStore()) as supervisor:
        handles.append(await supervisor.start(adapter, "go", policies=[policy], validators={line: leaves}))
        await handles[0].wait_finished()
        record = (await handles[0].wait()).events
        live = handles[0].status()
    folded = compile_policy(policy).monitor()
    for event in record:
        folded.observe(event)

    assert [call.id for call in adapter.ran] == ["1", "back"]
    assert [event.type for event in record[4:8]] == [
        "tool_call_started",
        "net_left",
        "net_joined",
        "tool_call_completed",
    ]
    assert folded.status() == live
    assert "no token" in live


async def test_an_added_net_belongs_to_its_run() -> None:
    """The next run of the session is evaluated by its own policies, live and from the log."""
    line = "block rm"
    policy = Policy(name="p", on_violation="deny", nets=["block mv"])
    store = MemoryStore()
    async with Supervisor(store) as supervisor:
        first = FakeAdapter(steps(("1", "rm", {}), ("2", "mv", {})))
        handle = await supervisor.start(first, "go", policies=[policy])
        handle.add_net(line)
        handle.remove_net("block mv")
        await handle.wait_finished()
        second = FakeAdapter(steps(("3", "rm", {}), ("4", "mv", {})))
        again = await supervisor.start(second, "go", policies=[policy], session_id=handle.session_id)
        await again.wait_finished()
    ran = [call.name for adapter in (first, second) for call in adapter.ran]
    folded = compile_policy(policy).monitor()
    for event in [*(await handle.wait()).events, *(await again.wait()).events]:
        folded.observe(event)

    assert ran == ["mv", "rm"]
    assert folded.narrow(["rm", "mv"]) == ["rm"]


async def test_an_agent_cannot_remove_a_net() -> None:
    """Only the supervisor reports that nets are added or removed."""
    adapter = FakeAdapter((NetLeft(name="block rm"), *steps(("1", "rm", {}))))
    result = await run_once(adapter, "go", policies=[Policy(name="p", on_violation="deny", nets=["block rm"])])

    assert adapter.ran == []
    assert [event.code for event in result.events if isinstance(event, ErrorOccurred)] == ["not_believed"]


async def test_a_check_gets_the_context_of_its_run() -> None:
    """Sync or async: the earlier calls, the usage, the run's identity. Its decision is free."""
    contexts: list[CheckContext] = []

    async def twice_is_enough(call: ToolCall, context: CheckContext) -> Any:
        contexts.append(context)
        done = [past.id for past in context.calls if past.status == "completed"]
        return Refuse(reason="loop", tell_model="Not a third time.") if len(done) >= 2 else True

    def not_for_bob(call: ToolCall, context: CheckContext) -> bool:
        return context.run.user != "bob"

    rules = [Check(id="twice", check=twice_is_enough), Check(id="bob", check=not_for_bob)]
    adapter = FakeAdapter([TokenUsageUpdated(input_tokens=5), *steps(*((str(n), "x", {}) for n in range(3)))])
    policy = Policy(name="p", on_violation="deny", rules=rules)
    result = await run_once(adapter, "go", policies=[policy], context=RunContext(user="ana"))
    (violation,) = [event for event in result.events if isinstance(event, PolicyViolated)]

    assert [call.id for call in adapter.ran] == ["0", "1"]
    assert [[past.status for past in context.calls] for context in contexts] == [[], ["completed"], ["completed"] * 2]
    assert (contexts[0].usage, contexts[0].run.user) == (Usage(input_tokens=5), "ana")
    assert adapter.answers["2"].tell_model == "Not a third time."
    assert violation.reason == "loop"


@pytest.mark.parametrize(("how", "why"), [
    ("raises", "no database"),
    *((how, "no answer within 0.05 seconds") for how in ("is silent", "is deaf to its cancel")),
])  # fmt: skip
async def test_a_check_that_raises_or_times_out_denies_its_call(
    how: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log has the reason. A check that ignores its cancel is abandoned."""
    monkeypatch.setattr(callbacks, "CHECK_TIMEOUT_S", 0.05)
    over = anyio.Event()

    async def check(call: ToolCall) -> bool:
        if how == "raises":
            raise RuntimeError("no database")
        with anyio.CancelScope(shield=how == "is deaf to its cancel"):
            await over.wait()
        return True

    policy = Policy(name="p", on_violation="deny", rules=[Check(id="asked", check=check)])
    adapter = FakeAdapter([Ask(name="x")])
    result = await run_once(adapter, "go", policies=[policy])
    over.set()

    assert adapter.ran == []
    assert [why in violation.message for violation in result.policy.violations] == [True]


async def test_mappers_are_attached_to_a_run() -> None:
    """Rules match the names they return, also if every name must be one of the agent's tools. Elsewhere it must."""
    policy = Policy(name="p", on_violation="deny", enforcement="required", nets=["limit erase to 1 per session"])

    def erases(call: Any) -> str | None:
        return "erase" if call.name == "delete" else None

    def fails(call: Any) -> None:
        raise ValueError(call.name)

    tools = (Tool(name="backup"), Tool(name="delete"))
    ran = []
    for mapper in (erases, fails):
        adapter = FakeAdapter(CLEANING, capabilities=structs.replace(FakeAdapter().capabilities, tools=tools))
        await run_once(adapter, "go", policies=[policy], mappers={"limit erase to 1 per session": mapper})
        ran.append([call.id for call in adapter.ran])
    misspelt = structs.replace(policy, tool_rules=[Deny(["delte"])])
    with pytest.raises(PolicyViolationError, match="delte"):
        await run_once(adapter, "go", policies=[misspelt], mappers={"limit erase to 1 per session": erases})

    assert ran == [["1", "2"], []]
