"""A call's id used again lets nothing run unjudged: at the gate, folded from the record, restored from a snapshot."""

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from proctor.policies import Event, ToolCall, compile_policy, decode_event, encode_event, parse_policies
from proctor.policies import events as ev

Variant: TypeAlias = str
VARIANTS = ["live", "snapshot", "fold"]


class Session:
    """One session under a policy, made anew after every step as the variant says; what runs is counted."""

    def __init__(self, variant: Variant, **policy: Any) -> None:
        self.compiled = compile_policy(parse_policies({"name": "p", "on_violation": "deny", **policy})[0])
        self.variant = variant
        self.monitor = self.compiled.monitor()
        self.record: list[bytes] = []
        self.ran = 0
        self.tell(ev.RunStarted(run_id="r1"))

    def tell(self, event: Event) -> list[str]:
        self.record.append(encode_event(event))
        return self._found(self.monitor.observe(event))

    def _found(self, violations: Any) -> list[str]:
        for v in violations:
            note = ev.PolicyViolated(
                policy=v.policy, rule=v.rule, kind=v.kind, action=v.action, tool_call_id=v.tool_call_id
            )
            self.record.append(encode_event(note))
        self._again()
        return [v.rule for v in violations]

    def _again(self) -> None:
        if self.variant == "snapshot":
            self.monitor = self.compiled.restore(self.monitor.snapshot())
        elif self.variant == "fold":
            self.monitor = self.compiled.monitor()
            for line in self.record:
                self.monitor.observe(decode_event(line))

    def ask(self, tool: str, id: str, turn: int = 0, *, over: bool = True, **input: Any) -> str:
        """The answer to a call at the gate; one that may run runs, and is over at once or goes on."""
        fields: dict[str, Any] = {"tool_call_id": id, "tool_name": tool, "tool_input": input, "turn": turn}
        self.record.append(encode_event(ev.ToolCallRequested(**fields)))
        decision = self.monitor.propose(ToolCall(id=id, name=tool, input=input, turn=turn))
        self._found(decision.violations)
        if decision.action in ("allow", "warn"):
            self.ran += 1
            self.tell(ev.ToolCallStarted(**fields))
            if over:
                self.end(tool, id)
        elif decision.action != "request_approval":
            self.tell(ev.ToolCallDenied(tool_call_id=id, tool_name=tool))
        return decision.action

    def end(self, tool: str, id: str) -> None:
        self.tell(ev.ToolCallCompleted(tool_call_id=id, tool_name=tool, tool_output={}))

    def grant(self, tool: str, id: str, **input: Any) -> None:
        digest = ToolCall(id=id, name=tool, input=input)
        made = self.compiled.monitor().propose(digest).input_digest
        self.tell(ev.ToolApprovalGranted(approval_id="a", tool_call_id=id, tool_name=tool, input_digest=made))


Start: TypeAlias = Callable[..., Session]


@pytest.fixture(params=VARIANTS)
def start(request: pytest.FixtureRequest) -> Start:
    def made(**policy: Any) -> Session:
        return Session(request.param, **policy)

    return made


ONCE: dict[str, dict[str, Any]] = {
    "a limit of calls": {"limits": {"max_tool_calls": 1}},
    "a limit of the session": {"limits": {"max_tool_calls": {"max": 1, "scope": "session"}}},
    "count": {"rules": [{"type": "count", "tool": "x", "max": 1}]},
    "count of attempts": {"rules": [{"type": "count", "tool": "x", "max": 1, "of": "attempted"}]},
    "count of completed": {"rules": [{"type": "count", "tool": "x", "max": 1, "of": "completed"}]},
    "count per key": {"rules": [{"type": "count", "tool": "x", "max": 1, "key": "$.o"}]},
    "loop": {"rules": [{"type": "loop", "window": 9, "threshold": 2}]},
    "max_parallel": {"rules": [{"type": "max_parallel", "max": 1}]},
    "never_after": {"rules": [{"type": "never_after", "trigger": "x", "forbidden": "x"}]},
    "forbids_after": {"rules": [{"type": "forbids_after", "tool": "x", "tools": ["x"]}]},
    "forbidden_sequence": {"rules": [{"type": "forbidden_sequence", "sequence": ["x", "x"]}]},
    "a net": {"nets": ["limit x to 1 per session"]},
}


@pytest.mark.parametrize("policy", ONCE.values(), ids=ONCE)
def test_an_id_that_is_over_gets_nothing_past_a_rule_that_allows_one_call(
    start: Start, policy: dict[str, Any]
) -> None:
    """Four proposals under one id, one after another: one runs."""
    session = start(**policy)
    answers = [session.ask("x", "k", o=1) for _ in range(4)]

    assert (answers, session.ran) == (["allow", "deny", "deny", "deny"], 1)


@pytest.mark.parametrize("policy", ONCE.values(), ids=ONCE)
def test_an_id_that_runs_gets_nothing_past_a_rule_that_allows_one_call(start: Start, policy: dict[str, Any]) -> None:
    """A second proposal under a running id is refused, and its refusal is no end of the call that runs."""
    session = start(**policy)
    answers = [session.ask("x", "k", over=False, o=1) for _ in range(3)]
    session.end("x", "k")

    assert (answers, session.ran) == (["allow", "deny", "deny"], 1)
    assert session.ask("x", "k", o=1) == "deny"


def test_a_running_id_is_refused_without_any_rule(start: Start) -> None:
    """Nothing but the first proposal was judged; and the call that runs completes."""
    session = start(rules=[{"type": "before", "first": "x", "then": "y"}])

    assert [session.ask("x", "k", over=False), session.ask("x", "k"), session.ask("y", "k")] == [
        "allow",
        "deny",
        "deny",
    ]

    session.end("x", "k")

    assert session.ask("y", "l") == "allow"


def test_a_call_that_was_allowed_and_has_not_started_holds_its_id() -> None:
    """Its permit is spent, so a second one under the id would be a second call."""
    session = Session("live")
    call = ToolCall(id="k", name="x")

    assert [session.monitor.propose(call).action for _ in range(2)] == ["allow", "deny"]


def test_one_approval_is_for_one_call(start: Start) -> None:
    """What was granted ran; the same id with the same input waits for a person again."""
    session = start(tool_rules=[{"deny": ["x"], "action": "request_approval"}])
    first = session.ask("x", "k", o=1)
    session.grant("x", "k", o=1)

    assert (first, session.ask("x", "k", o=1), session.ask("x", "k", o=1)) == (
        "request_approval",
        "allow",
        "request_approval",
    )


def test_an_approval_is_used_up_by_a_refusal(start: Start) -> None:
    """A granted call that another rule refuses is over, and its approval with it."""
    session = start(
        tool_rules=[{"deny": ["x"], "action": "request_approval"}],
        rules=[{"type": "max_parallel", "tool": "*", "max": 1}],
    )
    session.ask("x", "k", turn=1)
    session.ask("y", "l", turn=1)
    session.grant("x", "k")
    refused = session.ask("x", "k", turn=1)
    session.tell(ev.TurnStarted(turn=2))

    assert (refused, session.ask("x", "k", turn=2)) == ("deny", "request_approval")


def test_an_exceeded_limit_refuses_every_id(start: Start) -> None:
    """An id that was let through before the limit was exceeded opens nothing after it."""
    session = start(limits={"max_total_tokens": 5})
    session.ask("x", "k")
    session.tell(ev.TokenUsageUpdated(input_tokens=6))

    assert [session.ask("x", "k"), session.ask("x", "l")] == ["cancel", "cancel"]


def test_an_id_that_is_over_names_a_new_call_in_the_same_response_too(start: Start) -> None:
    """Of another input or tool, after one that ended or was refused; and it is judged as such."""
    session = start(tool_rules=[{"deny": ["no"]}], rules=[{"type": "count", "tool": "x", "max": 2}])
    session.tell(ev.TurnStarted(turn=1))
    calls = [("x", "k"), ("no", "n"), ("x", "k"), ("y", "k"), ("y", "n"), ("no", "k"), ("x", "n")]
    answers = [session.ask(tool, id, 1, o=n) for n, (tool, id) in enumerate(calls)]

    assert answers == ["allow", "deny", "allow", "allow", "allow", "deny", "deny"]


def test_a_client_that_numbers_the_calls_of_each_response_is_judged_call_by_call(start: Start) -> None:
    """Once a later response has begun, its ids are new: other calls go through, and the same one counts again."""
    session = start(rules=[{"type": "count", "tool": "x", "max": 2}])
    answers = []
    for turn in (1, 2, 3):
        session.tell(ev.TurnStarted(turn=turn))
        answers += [session.ask("x", "call_0", turn, o=1), session.ask("y", "call_1", turn, o=turn)]
        session.tell(ev.TurnCompleted(turn=turn))

    assert answers == ["allow", "allow", "allow", "allow", "deny", "allow"]


def test_a_client_that_cannot_be_held_and_numbers_the_calls_of_each_response_is_counted(start: Start) -> None:
    """The starts of a later response are other calls; the same start told again is the same one."""
    session = start(rules=[{"type": "count", "tool": "x", "max": 2}])
    found = []
    for turn in (1, 2, 3):
        session.tell(ev.TurnStarted(turn=turn))
        fields: dict[str, Any] = {"tool_call_id": "call_0", "tool_name": "x", "tool_input": {"o": 1}, "turn": turn}
        found += session.tell(ev.ToolCallStarted(**fields))
        session.end("x", "call_0")
        found += session.tell(ev.ToolCallStarted(**fields))

    assert found == ["count-1"]


def test_an_id_that_starts_as_another_call_is_an_attempt_of_that_call(start: Start) -> None:
    """An agent that cannot be held and uses one id for all its calls is counted like any other."""
    session = start(rules=[{"type": "count", "tool": "x", "max": 1, "of": "attempted"}])
    found = []
    for n in range(3):
        found += session.tell(ev.ToolCallStarted(tool_call_id="k", tool_name="x", tool_input={"n": n}))
        session.end("x", "k")

    assert found == ["count-1", "count-1"]


def test_an_id_belongs_to_its_run(start: Start) -> None:
    """The first call of the next run may have the id of the first call of the last one, running or over."""
    session = start(rules=[{"type": "count", "tool": "x", "max": 3}])
    session.ask("x", "1", o=1)
    session.ask("x", "2", over=False)
    session.tell(ev.RunCompleted(run_id="r1"))
    session.tell(ev.RunStarted(run_id="r2"))

    assert [session.ask("y", "1"), session.ask("x", "2"), session.ask("x", "3")] == ["allow", "allow", "deny"]


ATTEMPTS = {"type": "count", "tool": "*", "max": 2, "of": "attempted", "action": "deny"}


@pytest.mark.parametrize("again", ["in another response", "while it is held"])
def test_a_request_under_an_id_that_was_used_is_one_attempt_more(again: str) -> None:
    """Of the current response where it names none, and with the input that it has now."""
    monitor = compile_policy(parse_policies({"name": "p", "rules": [ATTEMPTS]})[0]).monitor()
    first: dict[str, Any] = {"tool_call_id": "c1", "tool_name": "read", "tool_input": {"path": "a"}}
    monitor.observe(ev.TurnStarted(turn=1))
    monitor.observe(ev.ToolCallRequested(**first))
    if again == "while it is held":
        monitor.observe(ev.ToolApprovalRequested(approval_id="x", held=True, **first))
    else:
        monitor.observe(ev.ToolCallStarted(**first))
        monitor.observe(ev.ToolCallCompleted(tool_call_id="c1", tool_name="read"))
        monitor.observe(ev.TurnStarted(turn=2))
    monitor.observe(ev.ToolCallRequested(**{**first, "tool_input": {"path": "b"}}))

    assert monitor.propose(ToolCall(id="c2", name="read")).action == "deny"


def test_a_request_that_is_told_twice_is_one_attempt() -> None:
    """As a client that repeats itself has made one."""
    monitor = compile_policy(parse_policies({"name": "p", "rules": [ATTEMPTS]})[0]).monitor()
    for _ in range(3):
        monitor.observe(ev.ToolCallRequested(tool_call_id="c1", tool_name="read", tool_input={"path": "a"}))

    assert [monitor.propose(ToolCall(id=id, name="read")).action for id in ("c2", "c3")] == ["allow", "deny"]


@pytest.mark.parametrize("path", ["a", "b"])
def test_a_request_that_is_denied_for_the_id_of_a_call_that_runs_does_not_end_that(path: str) -> None:
    """Whether it is the same call or another: what runs has its own end, and that counts."""
    rules = [{"type": "precondition", "tool": "deploy", "requires": [{"prior": "test"}], "action": "deny"}]
    monitor = compile_policy(parse_policies({"name": "p", "rules": rules})[0]).monitor()
    fields: dict[str, Any] = {"tool_call_id": "c1", "tool_name": "test"}
    monitor.observe(ev.ToolCallStarted(**fields, tool_input={"path": "a"}))
    monitor.observe(ev.ToolCallRequested(**fields, tool_input={"path": path}))
    monitor.observe(ev.ToolCallDenied(**fields))
    before = monitor.propose(ToolCall(id="c2", name="deploy")).action
    monitor.observe(ev.ToolCallCompleted(**fields))

    assert (before, monitor.propose(ToolCall(id="c3", name="deploy")).action) == ("deny", "allow")
