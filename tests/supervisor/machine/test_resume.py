"""A machine that is rebuilt from the event log, or restored, before each input decides like one that lived on."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from proctor.policies import (
    Before,
    CompiledPolicy,
    Count,
    EventError,
    Limits,
    Loop,
    NeverAfter,
    RunContext,
    ToolCall,
    compile_policy,
    merge_policies,
)
from proctor.policies import events as ev
from proctor.policies.events.calls import input_digest
from proctor.policies.events.run_context import tool
from proctor.policies.policy import Approval, Deny, Policy
from proctor.supervisor.arguments import RecordBounds
from proctor.supervisor.machine import interface, resume
from proctor.supervisor.machine.ending import RunEnding
from proctor.supervisor.machine.interface import AnswerGate, CancelAdapter, Effect, Finish, RequestApproval
from proctor.supervisor.machine.machine import RunMachine
from proctor.supervisor.machine.provider_events import ProviderEvents
from proctor.supervisor.machine.reservations import Budgets
from proctor.supervisor.machine.run_state import Outbox, RecordCounts, RunIdentity, RunState
from proctor.supervisor.ports.stored_types import ApprovalAnswer
from proctor.supervisor.redaction import Redaction, Redactor

POLICY = Policy(
    name="p",
    tool_rules=(
        Deny(("warned", "asked"), action="warn"),
        Deny(("asked",), action="request_approval"),
        Deny(("denied",), action="deny"),
        Deny(("cancelled",), action="cancel"),
    ),
    limits=Limits(max_duration_ms=50_000, max_total_tokens=500, max_tool_calls=4),
    rules=(
        Before(first="read", then="write", id="order", action="deny"),
        NeverAfter(trigger="read", forbidden="asked", id="late", action="request_approval"),
    ),
    approval=Approval(timeout_s=5),
)
COMPILED = compile_policy(merge_policies([POLICY]))
SETTINGS: dict[str, Any] = {
    "approval": COMPILED.approval,
    "bounds": RecordBounds(max_messages=3, max_message_bytes=1_500, max_events=25, max_event_bytes=5_000),
}


def identity(run_id: str = "r") -> RunIdentity:
    return RunIdentity(run_id=run_id, session_id="s", provider="x", gates_all=True)


def resumed(record: list[ev.Event], run_id: str = "r") -> RunMachine:
    return RunMachine.resume(identity(run_id), COMPILED.monitor(RunContext()), record, **SETTINGS)


class Shell:
    """Feeds one input after another, stores the events at once, and ends a cancelled agent."""

    def __init__(self, machine: RunMachine, record: list[ev.Event], stored: int = 0) -> None:
        self.machine = machine
        self.record = record
        self.stored = stored

    def happens(self, input: interface.Input) -> list[Effect]:
        done: list[Effect] = []
        todo = [*self.machine.handle(interface.Ticked(now_ms=input.now_ms)), *self.machine.handle(input)]
        while todo or self.machine.unwritten:
            done += todo
            if any(isinstance(effect, CancelAdapter) for effect in todo):
                self.machine.handle(interface.AdapterEnded(now_ms=input.now_ms))
            events = self.machine.drain_record()
            self.record += events
            self.stored += len(events)
            todo = [*self.machine.handle(interface.Stored(now_ms=input.now_ms, count=self.stored))]
        return done


def shown_by(effects: list[Effect]) -> list[Any]:
    """What these effects show the agent. Of duplicate requests, only one survives its shell."""
    shown: list[Any] = []
    for effect in effects:
        if isinstance(effect, (AnswerGate, RequestApproval)):
            one = (effect.call, effect.answer) if isinstance(effect, AnswerGate) else effect.request
            if one not in shown:
                shown.append(one)
    return shown


IDS = st.sampled_from(["c1", "c2", "c3", "c4"])
TOOL_NAMES = ("read", "write", "warned", "asked", "denied", "cancelled")
TOOLS = st.sampled_from([*TOOL_NAMES, "asked"])
CALLS = st.builds(ToolCall, id=IDS, name=TOOLS, input=st.sampled_from([{}, {"n": 1}]))
REPORTS = st.one_of(
    st.builds(lambda id: ev.ToolCallCompleted(tool_call_id=id), IDS),
    st.builds(lambda id: ev.ToolCallFailed(tool_call_id=id, error="no"), IDS),
    st.builds(
        lambda call: ev.ToolCallStarted(tool_call_id=call.id, tool_name=call.name, tool_input=call.input), CALLS
    ),
    st.builds(lambda n: ev.TokenUsageUpdated(input_tokens=n), st.integers(0, 200)),
    st.builds(lambda n: ev.TurnCompleted(turn=n), st.integers(1, 5)),
    st.builds(lambda n: ev.TokenUsageUpdated(input_tokens=n, scope="cumulative"), st.integers(0, 200)),
    st.builds(lambda id: ev.ToolCallDenied(tool_call_id=id), IDS),
    st.builds(
        lambda call: ev.ToolCallRequested(tool_call_id=call.id, tool_name=call.name, tool_input=call.input), CALLS
    ),
    st.builds(lambda content: ev.MessageReceived(content=content), st.sampled_from(["x", "x" * 1_200])),
    st.sampled_from(
        [
            ev.MessageReceived(content="y", role="user"),
            ev.MessageSent(content="z"),
            ev.MessageStreamed(delta="d"),
            ev.MessageStreamed(delta="s", role="system"),
            ev.ErrorOccurred(code="messages_full", message="forged"),
            ev.ErrorOccurred(code="record_full", message="forged"),
            ev.ErrorOccurred(code="c", message="m" * 3_000),
            ev.ErrorRecovered(code="c"),
            ev.RunStarted(model="other", metadata={"n": 1}),
            ev.SessionCompleted(),
            ev.SessionStarted(metadata={"model": "m"}),
            ev.TurnStarted(turn=2),
            ev.Unrecognized(raw={"type": "new"}),
        ]
    ),
)
STEPS = st.lists(
    st.tuples(
        st.sampled_from([1, 1, 1, 6_000, 60_000]),
        st.one_of(CALLS, REPORTS, st.builds(ApprovalAnswer, granted=st.booleans(), by=st.just("ana"))),
    ),
    max_size=25,
)


def input_of(what: Any, now_ms: int, key: int, machine: RunMachine) -> interface.Input:
    if isinstance(what, ToolCall):
        return interface.Proposed(now_ms=now_ms, key=key, call=what)
    if isinstance(what, ev.Event):
        return interface.Reported(now_ms=now_ms, event=what)
    waiting = machine.requests
    approval_id = waiting[key % len(waiting)].approval_id if waiting else f"r.{key % 4}"
    return interface.ApprovalAnswered(now_ms=now_ms, approval_id=approval_id, answer=what)


def same(shell: Shell) -> Shell:
    return shell


def from_record(shell: Shell) -> Shell:
    return Shell(resumed(shell.record), shell.record)


def from_snapshot(shell: Shell) -> Shell:
    monitor = COMPILED.restore(shell.machine._state.monitor.snapshot())
    machine = RunMachine.restore(shell.machine.snapshot(), monitor, **SETTINGS)
    return Shell(machine, shell.record, shell.stored)


def played(steps: Any, next_shell: Callable[[Shell], Shell]) -> tuple[list[ev.Event], list[Any]]:
    """The log of a run with these steps that then completes, and what its agent was shown."""
    record: list[ev.Event] = []
    shell = Shell(resumed(record), record)
    shown = shown_by(shell.happens(interface.Begin(now_ms=1, prompt="go")))
    now_ms = 1
    for key, (ms, what) in enumerate(steps, start=1):
        now_ms += ms
        shell = next_shell(shell)
        shown += shown_by(shell.happens(input_of(what, now_ms, key, shell.machine)))
    shell = next_shell(shell)
    shell.happens(interface.Reported(now_ms=now_ms, event=ev.RunCompleted(output="x")))
    shown += shown_by(shell.happens(interface.AdapterEnded(now_ms=now_ms)))
    return record, shown


STARTED_WHILE_IT_WAITS = [
    (1, ToolCall(id="c1", name="asked")),
    (1, ev.ToolCallStarted(tool_call_id="c1", tool_name="read")),
    (1, ToolCall(id="c1", name="read")),
]


ANSWERED_AND_ASKED_AGAIN = [
    (1, ToolCall(id="c1", name="asked", input={"n": 1})),
    (1, ApprovalAnswer(granted=True, by="ana")),
    (1, ToolCall(id="c2", name="asked", input={"n": 1})),
]


RAN_BEFORE_ANYBODY_COULD_BE_ASKED = [
    (1, ev.ToolCallStarted(tool_call_id="c1", tool_name="asked")),
    *[(1, ApprovalAnswer(granted=True, by="ana"))] * 4,
]


DECLINED_BESIDE_A_WARNING = [(1, ToolCall(id="c1", name="asked")), (1, ApprovalAnswer(granted=False, by="ana"))]


APPROVED_AND_ASKED_ABOUT_AGAIN = [
    (1, ToolCall(id="c1", name="asked")),
    (1, ToolCall(id="c2", name="read")),
    (1, ApprovalAnswer(granted=True, by="ana")),
    (1, ApprovalAnswer(granted=False, by="ana")),
]


HELD_AGAIN_BEHIND_ANOTHER = [
    (1, ToolCall(id="c1", name="asked")),
    (1, ToolCall(id="c3", name="asked")),
    (1, ToolCall(id="c2", name="read")),
    (1, ApprovalAnswer(granted=True, by="ana")),
]


@settings(max_examples=200, deadline=None)
@given(STEPS)
@example(DECLINED_BESIDE_A_WARNING)
@example(HELD_AGAIN_BEHIND_ANOTHER)
@example(APPROVED_AND_ASKED_ABOUT_AGAIN)
@example(RAN_BEFORE_ANYBODY_COULD_BE_ASKED)
@example(STARTED_WHILE_IT_WAITS)
@example(ANSWERED_AND_ASKED_AGAIN)
def test_it_records_and_answers_like_one_that_lived_on(steps: Any) -> None:
    """After any step, and at whatever point it was rebuilt."""
    lived = played(steps, same)

    assert played(steps, from_record) == lived
    assert played(steps, from_snapshot) == lived
    assert [type(event) in ev.TERMINAL for event in lived[0]].count(True) == 1
    if steps is ANSWERED_AND_ASKED_AGAIN:  # an approval is used up by its pending call
        assert [event.tool_call_id for event in lived[0] if isinstance(event, ev.ToolCallStarted)] == ["c1"]


def test_an_ended_run_denies_and_its_session_continues_with_another() -> None:
    """Turn numbers continue, and the monitor keeps its state."""
    record: list[ev.Event] = []
    shell = Shell(resumed(record), record)
    shell.happens(interface.Begin(now_ms=1, prompt="go"))
    shell.happens(interface.Proposed(now_ms=2, key=1, call=ToolCall(id="c", name="read")))
    shell.happens(interface.Reported(now_ms=2, event=ev.ToolCallCompleted(tool_call_id="c")))
    shell.happens(interface.Reported(now_ms=3, event=ev.TurnCompleted(turn=1)))
    assert shell.machine.turn == 2
    shell.happens(interface.Reported(now_ms=4, event=ev.RunCompleted()))
    shell.happens(interface.AdapterEnded(now_ms=4))
    over, following = resumed(record), Shell(resumed(record, "r2"), record)
    assert (over.ended, over.begun, following.machine.begun) == (True, True, False)
    (late,) = over.handle(interface.Proposed(now_ms=5, key=1, call=ToolCall(id="d", name="read")))
    following.happens(interface.Begin(now_ms=6, prompt="on", first=False))
    answered = following.happens(
        interface.Proposed(now_ms=7, key=1, call=ToolCall(id="c", name="write", turn=following.machine.turn))
    )

    assert isinstance(late, AnswerGate)
    assert not late.answer.allowed
    assert [answer.allowed for _, answer in shown_by(answered)] == [True]
    assert [event.turn for event in record if isinstance(event, ev.ToolCallStarted)] == [0, 2]
    assert [event.seq for event in record] == list(range(1, len(record) + 1))


TOKEN = "ghp" + "_" + "k9" * 18


@pytest.mark.parametrize("exact", [{"to": TOKEN}, None, {"to": "ghp" + "_" + "q2" * 18}, {"to": "[redacted:x:1]"}])
def test_a_pending_call_with_a_redacted_input_is_evaluated_exactly_or_denied(exact: dict[str, Any] | None) -> None:
    """No call may be approved after an evaluation of the placeholder that the log has for a secret."""
    record: list[ev.Event] = []
    redactor = Redactor(Redaction())

    def machine() -> RunMachine:
        monitor = COMPILED.monitor(RunContext())
        return RunMachine.resume(identity(), monitor, record, redactor=redactor)

    shell = Shell(machine(), record)
    shell.happens(interface.Begin(now_ms=1, prompt="go"))
    call = ToolCall(id="c", name="asked", input={"to": TOKEN}, turn=1)
    shell.happens(interface.Proposed(now_ms=2, key=1, call=call))
    following = Shell(machine(), record)
    (request,) = following.machine.requests
    yes = ApprovalAnswer(granted=True, by="ana")
    effects = following.happens(
        interface.ApprovalAnswered(now_ms=3, approval_id=request.approval_id, answer=yes, tool_input=exact)
    )
    (answer,) = (effect for effect in effects if isinstance(effect, AnswerGate))

    assert TOKEN not in repr(record)
    assert answer.answer.allowed == (exact == {"to": TOKEN})
    if answer.answer.allowed:
        assert answer.call == call
        assert isinstance(record[-1], ev.ToolCallStarted)
    else:
        assert isinstance(record[-1], ev.ToolCallDenied)
        assert record[-1].decision == "input_unknown"


def test_a_restored_machine_recognises_a_call_known_only_by_its_redacted_event() -> None:
    """If it is proposed again with its id, it is the same running call."""
    record: list[ev.Event] = []
    settings: dict[str, Any] = {"approval": COMPILED.approval, "redactor": Redactor(Redaction())}
    call = ToolCall(id="c", name="read", input={"to": TOKEN})

    def machine() -> RunMachine:
        return RunMachine.resume(identity(), COMPILED.monitor(RunContext()), record, **settings)

    shell = Shell(machine(), record)
    shell.happens(interface.Begin(now_ms=1, prompt="go"))
    shell.happens(interface.Proposed(now_ms=2, key=1, call=call))
    resumed_machine = machine()
    monitor = COMPILED.restore(resumed_machine._state.monitor.snapshot())
    restored = RunMachine.restore(resumed_machine.snapshot(), monitor, **settings)
    other = msgspec.structs.replace(call, input={"to": "x"})
    related = [
        [each._state.monitor.calls.relate(again.id, again.name, again.input, 0) for again in (call, other)]
        for each in (resumed_machine, restored)
    ]

    assert TOKEN not in repr(record)
    assert related == [["running", "conflict"]] * 2


REBUILT = pytest.mark.parametrize("rebuilt", ["lives on", "resumed", "restored"])


def allowed_of(compiled: CompiledPolicy, calls: list[ToolCall], rebuilt: str) -> list[bool]:
    """Whether each call is allowed, by a machine that is rebuilt after each; no secret is on record."""
    record: list[ev.Event] = []
    settings: dict[str, Any] = {"approval": compiled.approval, "redactor": Redactor(Redaction())}
    machine = RunMachine.resume(identity(), compiled.monitor(RunContext()), record, **settings)
    shell = Shell(machine, record)
    shell.happens(interface.Begin(now_ms=1, prompt="go"))
    allowed = []
    for key, call in enumerate(calls, 1):
        effects = shell.happens(interface.Proposed(now_ms=2, key=key, call=call))
        allowed.append(any(answer.allowed for _, answer in shown_by(effects)))
        if rebuilt == "resumed":
            shell.machine = RunMachine.resume(identity(), compiled.monitor(RunContext()), record, **settings)
        elif rebuilt == "restored":
            monitor = compiled.restore(shell.machine.monitor.snapshot())
            shell.machine = RunMachine.restore(shell.machine.snapshot(), monitor, **settings)
    assert TOKEN not in repr(record)
    return allowed


@pytest.mark.parametrize("rule", [
    Loop(window=9, threshold=2, action="deny"), Count(tool="read", max=1, key="$.to", action="deny"),
], ids=["loop", "key"])  # fmt: skip
@REBUILT
def test_an_input_with_a_secret_equals_the_one_that_the_log_has(rule: Any, rebuilt: str) -> None:
    """Another secret is another input."""
    compiled = compile_policy(merge_policies([Policy(name="p", rules=(rule,))]))
    secrets = (TOKEN, TOKEN, TOKEN.replace("k9", "q2"))
    calls = [ToolCall(id=f"c{n}", name="read", input={"to": secret}) for n, secret in enumerate(secrets)]

    assert allowed_of(compiled, calls, rebuilt) == [True, False, True]


@REBUILT
def test_an_input_with_a_secret_has_its_portable_names_and_what_is_unknown_of_it(rebuilt: str) -> None:
    """Its calls would share one count otherwise, and a call whose path is not known would run."""
    rule = Count(tool="write", max=1, key="$.path", action="deny")
    tools = (tool("Write", "write", "content", path="$.file_path"),)
    compiled = compile_policy(merge_policies([Policy(name="p", rules=(rule,))]), tools=tools)
    places: list[dict[str, Any]] = [{}, {"file_path": "a"}, {"file_path": "a"}, {"file_path": "b"}]
    calls = [ToolCall(id=f"c{n}", name="Write", input={**place, "content": TOKEN}) for n, place in enumerate(places)]

    assert allowed_of(compiled, calls, rebuilt) == [False, True, False, True]


def test_a_resumed_run_returns_its_last_message() -> None:
    """Without the text that was streamed before."""
    record: list[ev.Event] = []
    Shell(resumed(record), record).happens(interface.Begin(now_ms=1, prompt="go"))
    for event in (ev.MessageStreamed(delta="I th"), ev.MessageReceived(content="done")):
        Shell(resumed(record), record).happens(interface.Reported(now_ms=2, event=event))
    shell = Shell(resumed(record), record)
    shell.happens(interface.Reported(now_ms=4, event=ev.RunCompleted()))
    (finish,) = (effect for effect in shell.happens(interface.AdapterEnded(now_ms=5)) if isinstance(effect, Finish))

    assert finish.outcome.output == "done"


def test_a_call_known_only_by_its_event_equals_the_exact_call() -> None:
    """The event has a placeholder for the secret. A finished call is recognised too."""
    calls = compile_policy(merge_policies([POLICY])).monitor(RunContext())
    redacted = {"to": "[redacted]"}
    calls.observe(ev.ToolCallStarted(tool_call_id="c", tool_name="x", tool_input=redacted))
    table = calls.calls

    def related() -> list[str]:
        variants = (("x", {"to": TOKEN}), ("x", {"to": "y"}), ("z", {"to": TOKEN}))
        return [table.relate("c", name, input, 0) for name, input in variants]

    assert related() == ["conflict"] * 3
    calls.state.compare_redacted(lambda exact: redacted if exact == {"to": TOKEN} else exact)
    assert related() == ["running", "conflict", "conflict"]
    calls.observe(ev.ToolCallCompleted(tool_call_id="c", tool_name="x"))
    table.session.begun = 1
    table.session.earlier, table.session.finished = table.session.finished, {}
    assert related() == ["ended", "new", "new"]


def test_an_approval_for_the_run_survives_a_resume() -> None:
    """Nobody is asked again about a covered call."""
    record: list[ev.Event] = []
    wide = compile_policy(merge_policies([msgspec.structs.replace(POLICY, approval=Approval(scope="run"))]))

    def shell() -> Shell:
        machine = RunMachine.resume(identity(), wide.monitor(RunContext()), record)
        return Shell(machine, record)

    shell().happens(interface.Begin(now_ms=1, prompt="go"))
    shell().happens(interface.Proposed(now_ms=2, key=1, call=ToolCall(id="c", name="asked")))
    answering = shell()
    (request,) = answering.machine.requests
    yes = ApprovalAnswer(granted=True, by="ana", scope="run")
    answering.happens(interface.ApprovalAnswered(now_ms=3, approval_id=request.approval_id, answer=yes))
    following = shell()
    following.happens(interface.Proposed(now_ms=4, key=2, call=ToolCall(id="d", name="asked", input={"n": 1})))

    assert following.machine.requests == []
    assert [event.tool_call_id for event in record if isinstance(event, ev.ToolCallStarted)] == ["c", "d"]


@pytest.mark.parametrize(("digest", "counts"), [(None, True), (input_digest({"n": 1}), True), ("0" * 64, False)])
def test_an_answer_about_a_call_that_was_not_held_counts_after_a_resume_as_before(
    digest: str | None, counts: bool
) -> None:
    """An answer to another input does not."""
    run = Shell(resumed([]), [])
    run.happens(interface.Begin(now_ms=1_000, prompt="go"))
    started = ev.ToolCallStarted(tool_call_id="c", tool_name="asked", tool_input={"n": 1})
    run.happens(interface.Reported(now_ms=1_001, event=started))
    (request,) = [event for event in run.record if isinstance(event, ev.ToolApprovalRequested)]
    yes = ApprovalAnswer(granted=True, by="ana", input_digest=digest)
    answer = interface.ApprovalAnswered(now_ms=1_002, approval_id=request.approval_id, answer=yes)
    counted = []
    for machine in (resumed(run.record), run.machine):
        machine.handle(answer)
        counted.append(any(isinstance(event, ev.ToolApprovalGranted) for event in machine.drain_record()))

    assert not request.held
    assert counted == [counts, counts]


def test_a_snapshot_that_would_lose_events_or_cannot_be_decoded_is_rejected() -> None:
    machine = resumed([])
    machine.handle(interface.Begin(now_ms=1, prompt="go"))
    with pytest.raises(EventError, match="take the record of the machine first"):
        machine.snapshot()
    machine.drain_record()
    written = machine.snapshot()
    for data in (b"", b"{}", b"[1]", b"\xff", written[:-1], written.replace(b'"now_ms":1', b'"now_ms":"x"')):
        with pytest.raises(EventError, match="not a snapshot of a run"):
            RunMachine.restore(data, COMPILED.monitor(RunContext()))


@pytest.mark.parametrize(
    ("part", "kept", "made_anew"),
    [
        (RunState, resume._State, "identity monitor redactor counts outbox"),
        (Outbox, resume._Outbox, "_redactor unwritten unwritten_bytes _lines _ready"),
        (RecordCounts, resume._Counts, "_bounds over"),
        (ProviderEvents, resume._Reports, "_state"),
        (Budgets, resume._Budgets, "_state on_reserved"),
        (RunEnding, resume._RunEnding, "state gate reports budgets notes"),
    ],
)
def test_a_snapshot_has_every_field_except_derived_ones(part: Any, kept: Any, made_anew: str) -> None:
    """A new field of a part must be in its snapshot."""
    assert {*kept.__struct_fields__, *made_anew.split()} == set(part.__slots__)
    assert not set(kept.__struct_fields__) & set(made_anew.split())
