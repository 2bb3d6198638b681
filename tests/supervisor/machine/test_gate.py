"""The gate: it denies an id in use, allows at constant cost, and tells late callers to stop."""

import gc
import sys
import weakref
from contextlib import suppress
from types import FrameType
from typing import Any

import msgspec
import pytest
from anyio.lowlevel import checkpoint
from supervised import OPEN, Before

from proctor.policies import Check, Deny, Limit, Limits, Policy, ToolCall, compile_policy, merge_policies
from proctor.policies import events as ev
from proctor.policies.events.calls import call_fields
from proctor.policies.events.run_context import Capabilities, RunContext
from proctor.supervisor import GateAnswer, MemoryStore, Supervisor, run_once
from proctor.supervisor.machine import interface
from proctor.supervisor.machine.interface import AnswerGate, Effect, RequestApproval, RunChecks
from proctor.supervisor.machine.machine import RunMachine
from proctor.supervisor.machine.run_state import RunIdentity
from proctor.supervisor.ports.stored_types import ApprovalAnswer
from proctor.supervisor.run.actor import GateWaiters
from proctor.supervisor.testing.fakes import Ask, FakeAdapter, Pause

CALL = ToolCall(id="c", name="read")
REPORTS: dict[str, ev.Event] = {
    "says": ev.MessageReceived(content="x"),
    "begins": ev.ToolCallStarted(tool_call_id="c", tool_name="other"),
    "ends": ev.ToolCallCompleted(tool_call_id="c"),
}


async def never_called(call: ToolCall) -> Any:
    raise AssertionError("the machine only says that it is to be asked")


class Run:
    """A machine that has begun, with its events and effects; `store` makes them durable."""

    def __init__(self, *rules: Any, asks: bool = False, warns_of: str = "") -> None:
        denies: tuple[Deny, ...] = (Deny(("*",), action="request_approval"),) if asks else ()
        denies += (Deny((warns_of,), action="warn"),) if warns_of else ()
        policy = Policy(name="p", limits=Limits(max_tool_calls=9_999), rules=rules, tool_rules=denies)
        self.compiled = compile_policy(merge_policies([policy]))
        monitor = self.compiled.monitor(RunContext())
        self.machine = RunMachine(RunIdentity(run_id="r", session_id="s", provider="x", gates_all=True), monitor)
        self.recorded: list[ev.Event] = []
        self.effects: list[Effect] = []
        self.latest_key = 0
        self.feed(interface.Begin(now_ms=1, prompt="go"))
        self.store()

    def feed(self, input: interface.Input) -> None:
        self.effects += self.machine.handle(input)
        self.recorded += self.machine.drain_record()

    def store(self) -> None:
        self.feed(interface.Stored(now_ms=1, count=len(self.recorded)))

    def propose(self, key: int, call: ToolCall = CALL) -> None:
        self.feed(interface.Proposed(now_ms=1, key=key, call=call))

    def does(self, step: str) -> None:
        """One step by its name. The first caller has key 1, the second 2."""
        if step == "ask":
            self.latest_key += 1
            self.propose(self.latest_key)
        elif step == "store":
            self.store()
        elif step == "cancel":
            self.feed(interface.CancelAsked(now_ms=1, reason="enough"))
        elif step.startswith("gone-"):
            self.feed(interface.Withdrawn(now_ms=1, key=int(step[-1]), call_id=CALL.id))
        elif step == "agree":
            self.agree()
        else:
            self.feed(interface.Reported(now_ms=1, event=REPORTS[step]))

    def agree(self) -> None:
        """Every check or person that was asked about the call approves."""
        for effect in self.effects:
            match effect:
                case RunChecks():
                    agreed = {name: True for name, _ in effect.checks}
                    self.feed(interface.Checked(now_ms=1, key=effect.key, answers=agreed))
                case RequestApproval():
                    yes, id = ApprovalAnswer(granted=True, by="ana"), effect.request.approval_id
                    self.feed(interface.ApprovalAnswered(now_ms=1, approval_id=id, answer=yes))

    def answers(self) -> list[tuple[int, bool]]:
        return [(effect.key, effect.answer.allowed) for effect in self.effects if isinstance(effect, AnswerGate)]

    def failed(self) -> list[str]:
        return [event.tool_call_id for event in self.recorded if isinstance(event, ev.ToolCallFailed)]


@pytest.mark.parametrize(("kind", "steps", "answers", "failed"), [
    # whatever the first waits for, a check or a person, the second is denied
    ("checked", "ask store ask store", [(2, False)], []),
    ("held", "ask store ask store", [(2, False)], []),
    # a held call has not run: an outcome that the provider makes up does not free its id
    ("held", "ask ends ask store", [(2, False)], []),
    # also before it is durable; if the second caller leaves, the call goes on, if the first does, it fails
    ("open", "ask ask store gone-2", [(1, True), (2, False)], []),
    ("open", "ask ask store gone-1", [(1, True), (2, False)], ["c"]),
    # how a running call ends, the agent reports
    ("open", "ask store says ask cancel store", [(1, True), (2, False)], []),
    # the first had ended when the provider itself began another with its id
    ("open", "ask store ends begins gone-1", [(1, True)], []),
])  # fmt: skip
def test_a_call_with_an_id_in_use_is_denied_and_the_first_call_continues(
    kind: str, steps: str, answers: list[tuple[int, bool]], failed: list[str]
) -> None:
    """Until the caller of the first is gone."""
    checks = [Check(check=never_called, tool="*", id="asked")] if kind == "checked" else []
    run = Run(*checks, asks=kind == "held")
    for step in steps.split():
        run.does(step)

    assert (run.answers(), run.failed()) == (answers, failed)
    assert (CALL.id in run.machine.calls) == (not failed)
    errors = [event.message for event in run.recorded if isinstance(event, ev.ErrorOccurred)]
    assert (errors == ["call `c` was requested again while it waits"]) == (answers == [(2, False)]), errors


@pytest.mark.parametrize("kind", ["checked", "held"])
@pytest.mark.parametrize(("steps", "answers"), [
    ("ask store begins agree store", [(1, False)]),  # the other runs still: the two would count as one
    ("ask store begins ends agree store agree store", [(1, True)]),
])  # fmt: skip
def test_a_pending_call_whose_id_another_used_meanwhile_is_requested_again_on_record(
    kind: str, steps: str, answers: list[tuple[int, bool]]
) -> None:
    """Otherwise the record would not say what was decided on: replayed, it would end the call that runs."""
    checks = [Check(check=never_called, tool="read", id="asked")] if kind == "checked" else []
    run = Run(*checks, asks=kind == "held")
    for step in steps.split():
        run.does(step)
    replayed = run.compiled.monitor(RunContext())
    for event in run.recorded:
        replayed.observe(event)

    assert run.answers() == answers
    assert len([event for event in run.recorded if isinstance(event, ev.ToolCallRequested)]) == 2
    assert replayed.snapshot() == run.machine.monitor.snapshot()


@pytest.mark.parametrize(("turns", "requests"), [((0, 2), 2), ((2, 2), 1), ((0, 0), 1)])
def test_a_call_reported_before_it_is_proposed_in_a_later_turn_is_requested_again_on_record(
    turns: tuple[int, int], requests: int
) -> None:
    """Otherwise a session that is replayed would be in an earlier turn than the one that lived on."""
    run = Run()
    reported, proposed = (msgspec.structs.replace(CALL, turn=turn) for turn in turns)
    run.feed(interface.Reported(now_ms=1, event=ev.ToolCallRequested(**call_fields(reported))))
    run.propose(1, proposed)
    run.store()
    replayed = run.compiled.monitor(RunContext())
    for event in run.recorded:
        replayed.observe(event)

    assert run.answers() == [(1, True)]
    assert len([event for event in run.recorded if isinstance(event, ev.ToolCallRequested)]) == requests
    assert replayed.snapshot() == run.machine.monitor.snapshot()


def test_a_limit_that_asks_for_an_approval_is_reported_once_also_in_a_run_that_was_replayed() -> None:
    """The request says so: its violation is only on record if the call is denied."""
    policy = Policy(name="p", limits=Limits(max_tool_calls=Limit(max=1, action="request_approval")))
    compiled = compile_policy(merge_policies([policy]))
    identity = RunIdentity(run_id="r", session_id="s", provider="x")
    machine, recorded = RunMachine(identity, compiled.monitor(RunContext())), list[ev.Event]()
    unasked = ev.ToolCallStarted(tool_call_id="unasked", tool_name="read")
    machine.handle(interface.Begin(now_ms=1, prompt="go"))
    for key in (1, 2):
        machine.handle(interface.Proposed(now_ms=1, key=key, call=ToolCall(id=f"c{key}", name="read")))
        recorded += machine.drain_record()
    again = RunMachine.resume(identity, compiled.monitor(RunContext()), recorded)
    found = []
    for each in (machine, again):
        each.handle(interface.Reported(now_ms=2, event=unasked))
        found.append([event.type for event in each.drain_record()])

    assert found == [["tool_call_started"]] * 2


@pytest.mark.parametrize("kind", ["checked", "held"])
@pytest.mark.parametrize(("steps", "allowed"), [
    ("ask store agree store", True), ("ask store gone-1 agree store", False), ("ask store cancel agree store", False),
])  # fmt: skip
def test_an_approval_after_the_denial_allows_nothing(kind: str, steps: str, allowed: bool) -> None:
    """Even if the denial is not durable yet, so that the caller has no answer."""
    run = Run(*([Check(check=never_called, id="asked")] if kind == "checked" else []), asks=kind == "held")
    for step in steps.split():
        run.does(step)

    assert run.answers() == [(1, allowed)]
    assert any(isinstance(event, ev.ToolCallStarted) for event in run.recorded) == allowed


@pytest.mark.parametrize(
    "outcome", [ev.ToolCallCompleted(tool_call_id="c"), ev.ToolCallFailed(tool_call_id="c"), None]
)
def test_the_id_of_a_finished_call_names_a_new_call(outcome: ev.Event | None) -> None:
    """Some gateways number the calls of each turn. The new call is evaluated as any other, even if the first was
    denied.
    """
    run = Run(*([] if outcome else [Check(check=never_called, tool="read", id="asked", action="deny")]))
    run.propose(1)
    if outcome:
        run.store()
        run.feed(interface.Reported(now_ms=1, event=outcome))
    else:
        (checks,) = [effect for effect in run.effects if isinstance(effect, RunChecks)]
        run.feed(interface.Checked(now_ms=1, key=checks.key, answers={name: False for name, _ in checks.checks}))
    run.propose(2, ToolCall(id="c", name="write"))
    run.store()

    assert [key for key, _ in run.answers()] == [1, 2]
    assert [event.tool_name for event in run.recorded if isinstance(event, ev.ToolCallRequested)] == ["read", "write"]
    assert not any(isinstance(event, ev.ErrorOccurred) for event in run.recorded)


COMPLETED = interface.Reported(now_ms=1, event=ev.RunCompleted(output="done"))
CANCEL = interface.CancelAsked(now_ms=1, reason="enough")
ENDED = interface.AdapterEnded(now_ms=1)


@pytest.mark.parametrize(("inputs", "end"), [
    ([COMPLETED, ENDED], "run_completed"),
    ([COMPLETED, CANCEL, ENDED], "run_completed"),
    ([CANCEL, COMPLETED, ENDED], "run_cancelled"),
    ([COMPLETED, ENDED, CANCEL, ENDED], "run_completed"),
    ([ENDED, ENDED], "run_failed"),
])  # fmt: skip
def test_a_run_ends_once_as_what_came_first_says(inputs: list[interface.Input], end: str) -> None:
    """A cancel does not undo what an agent has completed, and nothing ends a run twice."""
    run = Run()
    for input in inputs:
        run.feed(input)
        run.store()

    assert [event.type for event in run.recorded if isinstance(event, ev.TERMINAL)] == [end]


@pytest.mark.parametrize(("first", "refused"), [([CANCEL], False), ([], True)])
def test_a_policy_refuses_no_run_that_a_person_has_cancelled(first: list[interface.Input], refused: bool) -> None:
    """What the agent still does is recorded, and its caller gets the cancelled run, not an error."""
    run = Run(Check(check=lambda call: False, id="never", action="cancel"))
    for input in (*first, interface.Reported(now_ms=1, event=REPORTS["begins"]), ENDED):
        run.feed(input)
        run.store()
    (finish,) = [effect for effect in run.effects if isinstance(effect, interface.Finish)]

    assert [event.rule for event in run.recorded if isinstance(event, ev.PolicyViolated)] == ["never"]
    assert (finish.outcome.status, finish.outcome.refusal is not None) == ("cancelled", refused)


def called(run: Run, tool: str) -> None:
    """One call from its proposal to its end."""
    key = len(run.answers()) + 1
    run.propose(key, ToolCall(id=f"c{key}", name=tool))
    run.store()
    run.feed(interface.Reported(now_ms=1, event=ev.ToolCallCompleted(tool_call_id=f"c{key}")))
    run.store()
    assert run.answers()[-1] == (key, True)


def lines_of(run: Run) -> int:
    """The number of product lines that one call without findings executes."""
    count = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        count += event == "line" and "/tests/" not in frame.f_code.co_filename
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        called(run, "quiet")
    finally:
        sys.settrace(before)
    return count


def test_allowing_a_call_costs_the_same_after_ten_and_a_thousand_warnings() -> None:
    took = {}
    for warnings in (10, 1_000):
        run = Run(warns_of="noisy")
        for _ in range(warnings):
            called(run, "noisy")
        lines_of(run)  # fill caches
        took[warnings] = lines_of(run)

    assert took[1_000] == took[10]


pytestmark = pytest.mark.anyio


async def a_while() -> None:
    for _ in range(20):
        await checkpoint()


async def statuses(store: MemoryStore) -> list[str]:
    return [run.status for run in await store.runs()]


@pytest.mark.parametrize(
    ("how", "status"), [("cancel_all", "cancelled"), ("an error", "cancelled"), ("as they complete", "completed")]
)
async def test_cancelling_or_closing_returns_when_every_run_has_ended(how: str, status: str) -> None:
    """Their ends are stored, and their agents released."""
    store = Before(ev.TERMINAL, a_while)
    adapter = FakeAdapter([Pause(0.01 if status == "completed" else None)], deaf=1, rung_s=0.01)
    with suppress(KeyError):
        async with Supervisor(store) as supervisor:
            handles = [await supervisor.start(adapter, "go", policies=[OPEN]) for _ in range(3)]
            if how == "cancel_all":
                await supervisor.cancel_all()
                assert [handle.done for handle in handles] == [True] * 3
                assert await statuses(store) == [status] * 3
            if how == "an error":
                raise KeyError

    assert await statuses(store) == [status] * 3
    assert adapter.closed == len(adapter.launches)


async def test_a_late_caller_at_the_gate_is_told_to_stop() -> None:
    """After the run's end, its call is denied, and it must not propose another."""
    adapter = FakeAdapter([Ask(name="read")])
    await run_once(adapter, "go", policies=[OPEN])
    late = await adapter.launches[0].gate(ToolCall(id="late", name="read"))

    assert (late.allowed, late.stop) == (False, True)
    assert late.tell_model


@pytest.mark.parametrize(("reported", "recorded"), [("own", "own"), (None, "the run's")])
async def test_a_usage_report_keeps_its_model(reported: str | None, recorded: str) -> None:
    """The cost depends on it. A report without a model is for the run's."""
    can_do = Capabilities(gate="all", usage="per_turn", model="the run's")
    adapter = FakeAdapter([ev.TokenUsageUpdated(input_tokens=1, model=reported)], capabilities=can_do)
    result = await run_once(adapter, "go", policies=[OPEN])
    (usage,) = [event for event in result.events if isinstance(event, ev.TokenUsageUpdated)]

    assert usage.model == recorded


async def test_the_gate_keeps_nothing_of_an_answered_call() -> None:
    """A run may have millions of calls."""

    class Large:
        pass

    waiters = GateWaiters(lambda input: waiters.answer(input.key, GateAnswer(allowed=True)), lambda: 1)  # type: ignore[attr-defined]
    large = Large()
    gone = weakref.ref(large)
    await waiters.propose(ToolCall(id="c", name="read", input={"content": large}))
    del large
    gc.collect()

    assert gone() is None


async def test_a_closed_gate_proposes_nothing() -> None:
    """The run was torn down: its machine may not know that it is over, and would decide."""

    def feed(input: interface.Input) -> None:
        raise AssertionError(input)

    waiters = GateWaiters(feed, lambda: 1)
    waiters.close()
    answer = await waiters.propose(CALL)

    assert (answer.allowed, answer.stop) == (False, True)


async def test_the_denial_of_an_id_in_use_gives_that_reason() -> None:
    """The tool is available; the id is not."""

    async def again() -> None:
        answer = await agent.launches[0].gate(ToolCall(id="c1", name="read", input={"n": 2}))
        texts.append(answer.tell_model)

    texts: list[str | None] = []
    agent = FakeAdapter([Ask(name="read", id="c1", input={"n": 1}, meanwhile=again)])
    await run_once(agent, "go", policies=[OPEN])

    assert texts == ["This call of tool 'read' has the id of a call that has not ended. Use another id."]
