"""Runs as a sequence of inputs to a machine."""

from collections.abc import Iterator, Sequence
from typing import Any

from proctor.policies import events as ev
from proctor.policies.events.calls import ToolCall, input_digest
from proctor.supervisor.errors import OwnerLostError, ProviderError, StoreError
from proctor.supervisor.machine import interface
from proctor.supervisor.ports.stored_types import NOBODY_IN_TIME, ApprovalAnswer

RULES: dict[str, Any] = {
    "tool_rules": [{"deny": ["bash"], "action": "deny"}, {"deny": ["noisy"], "action": "warn"},
        {"deny": ["publish"], "action": "request_approval", "reason": "people read it", "tell_model": "Ask Ana."},
        {"deny": ["pay"], "action": "request_approval"}, {"deny": ["halt"], "action": "cancel"}],
    "limits": {"max_total_tokens": {"max": 100, "warn_at": 0.5}, "max_duration_ms": 60_000},
    "approval": {"timeout_s": 5, "scope": "session", "approvers": ["ana", "bo"], "four_eyes": True},
}  # fmt: skip
BEGIN = interface.Begin(now_ms=1_000, prompt="go", model="m", tools=("read",), metadata={"a": 1})
ENDED = interface.AdapterEnded(now_ms=9_000)
YES = ApprovalAnswer(granted=True, by="ana", reason="fine")
NO = ApprovalAnswer(granted=False, by="bo", tell_model="Use the staging host.")


class Scenario:
    """The inputs to a run's machine, with its policy and identity."""

    def __init__(
        self,
        name: str,
        *steps: Any,
        policy: dict[str, Any] | None = None,
        earlier_grants: Sequence[ev.ToolApprovalGranted] = (),
        **identity: Any,
    ) -> None:
        self.name = name
        self.earlier_grants = earlier_grants
        self.steps = steps
        self.policy = {"version": 1, "name": "p", "on_violation": "deny", **(RULES if policy is None else policy)}
        self.identity = {"gates_all": True, "user": "kim", **identity}


def reported(*events: Any, now_ms: int = 1_500) -> Iterator[interface.Input]:
    """An event of the provider."""
    return (interface.Reported(now_ms=now_ms, event=event) for event in events)


def proposed(key: int, tool: str, *, id: str | None = None, now_ms: int = 2_000, **input: Any) -> interface.Input:
    """A proposal at the gate."""
    call = ToolCall(id=id or f"c{key}", name=tool, input=input, turn=1, parent_tool_call_id="c0")
    return interface.Proposed(now_ms=now_ms, key=key, call=call)


def about(id: str, tool: str = "read", **more: Any) -> dict[str, Any]:
    """The fields of an event about a call."""
    return {"tool_call_id": id, "tool_name": tool, **more}


def answered(number: int, answer: ApprovalAnswer, *, now_ms: int = 3_000, **more: Any) -> interface.Input:
    """A person's answer to the request with that number."""
    return interface.ApprovalAnswered(now_ms=now_ms, approval_id=f"r.{number}", answer=answer, **more)


def withdrawn(key: int) -> interface.Input:
    """The caller of a call has left."""
    return interface.Withdrawn(now_ms=3_000, key=key, call_id=f"c{key}")


COMPLETED = ev.RunCompleted(output="done")
SCENARIOS = [
    Scenario(
        "a run that goes well",
        BEGIN,
        *reported(ev.SessionStarted(metadata={"model": "m2"}), ev.TurnStarted(turn=1)),
        *reported(ev.MessageStreamed(delta="he"), ev.MessageStreamed(delta="y"), ev.MessageReceived(content="hey")),
        *reported(ev.TokenUsageUpdated(input_tokens=3, output_tokens=4), ev.TurnCompleted(turn=1)),
        proposed(1, "read", path="a"),
        *reported(ev.ToolCallRequested(**about("c1", tool_input={"path": "a"})), ev.ToolCallStarted(**about("c1"))),
        *reported(
            ev.ToolCallCompleted(**about("c1", tool_output="x")), ev.MessageReceived(content="more"), COMPLETED
        ),
        *reported(ev.MessageReceived(content="after the end")),
        ENDED,
        proposed(2, "read"),
    ),
    Scenario(
        "calls that are refused, warned of and stopped",
        BEGIN,
        proposed(1, "bash", command="rm"),
        proposed(2, "noisy"),
        proposed(3, "read"),
        proposed(4, "halt"),
        proposed(5, "read"),
        ENDED,
        proposed(6, "read"),
        turns_before=3,
        events_before=7,
    ),
    Scenario(
        "approvals: yes, no, too late, not any more",
        BEGIN,
        proposed(1, "pay", n=1),
        proposed(2, "publish"),
        proposed(3, "publish"),
        proposed(4, "pay"),
        answered(1, YES),
        answered(2, NO),
        answered(2, YES),
        answered(9, YES),
        withdrawn(4),
        interface.Ticked(now_ms=7_500),
        answered(3, NOBODY_IN_TIME, now_ms=7_600),
        answered(3, YES, now_ms=7_600),
        *reported(COMPLETED),
        ENDED,
    ),
    Scenario(
        "approvals: who may not answer, and for what",
        BEGIN,
        proposed(1, "pay", n=1),
        answered(1, ApprovalAnswer(granted=True, by="kim")),
        answered(1, ApprovalAnswer(granted=True, by="eve")),
        answered(1, ApprovalAnswer(granted=True, by="ana", input_digest="0" * 64)),
        answered(1, ApprovalAnswer(granted=False, by="ana", reason="too much")),
        interface.CancelAsked(now_ms=3_000, reason="enough"),
        interface.CancelAsked(now_ms=3_000, reason="again"),
        ENDED,
    ),
    Scenario(
        "approvals: one yes for the session",
        BEGIN,
        proposed(1, "pay", n=1),
        answered(1, ApprovalAnswer(granted=True, by="ana", scope="session")),
        proposed(2, "pay", n=2),
        proposed(3, "publish"),
        answered(3, ApprovalAnswer(granted=True, by="ana", scope="run")),
        proposed(4, "publish"),
        *reported(COMPLETED),
        ENDED,
    ),
    Scenario(
        "approvals: nobody in time ends the run",
        BEGIN,
        proposed(1, "publish"),
        interface.Ticked(now_ms=6_999),
        interface.Ticked(now_ms=7_000),
        answered(1, NOBODY_IN_TIME, now_ms=7_001),
        ENDED,
        policy={**RULES, "approval": {"timeout_s": 5, "on_timeout": "cancel"}},
    ),
    Scenario(
        "approvals: one was accepted when its time was up",
        BEGIN,
        proposed(1, "publish"),
        proposed(2, "publish"),
        interface.Ticked(now_ms=7_000),
        interface.Ticked(now_ms=7_001),
        answered(1, YES, now_ms=7_002),
        answered(1, NOBODY_IN_TIME, now_ms=7_003),
        *reported(COMPLETED),
        ENDED,
    ),
    Scenario(
        "an agent that cannot be held",
        BEGIN,
        *reported(ev.ToolCallRequested(**about("c1", "pay", tool_input={"n": 1}))),
        *reported(ev.ToolCallStarted(**about("c1", "pay", tool_input={"n": 1}))),
        answered(1, YES),
        answered(1, NO),
        *reported(ev.ToolCallStarted(**about("c2", "noisy"))),
        *reported(ev.ToolCallStarted(**about("c3", "bash"))),
        *reported(ev.ToolCallStarted(**about("c4", "halt"))),
        ENDED,
        gates_all=False,
    ),
    Scenario(
        "calls taken back",
        BEGIN,
        proposed(1, "pay"),
        withdrawn(1),
        withdrawn(1),
        "not stored",
        proposed(2, "read"),
        withdrawn(2),
        proposed(3, "read"),
        interface.CancelAsked(now_ms=3_000, reason="enough"),
        "stored",
        withdrawn(3),
        ENDED,
    ),
    Scenario(
        "what the provider says of calls",
        BEGIN,
        *reported(ev.ToolCallRequested(**about("c1")), ev.ToolCallRequested(**about("c1"))),
        *reported(ev.ToolCallDenied(**about("c1", tell_model="not allowed here"))),
        proposed(2, "read"),
        *reported(ev.ToolCallDenied(**about("c2"))),
        proposed(3, "read"),
        *reported(ev.ToolCallDenied(**about("c3", tell_model="the sandbox says no"))),
        proposed(4, "bash"),
        *reported(ev.ToolCallRequested(**about("c4")), ev.ToolCallFailed(**about("c4", error="refused"))),
        *reported(ev.ToolCallDenied(**about("c4")), ev.ToolCallCompleted(**about("c5"))),
        proposed(6, "read", n=1),
        proposed(7, "read", id="c6", n=1),
        proposed(8, "write", id="c6", n=1),
        *reported(ev.ToolCallStarted(**about("c6", tool_input={"n": 1.0}))),
        proposed(9, "pay"),
        proposed(10, "pay", id="c9"),
        *reported(ev.ToolCallRequested(**about("c11", tool_input={"n": 1}))),
        proposed(11, "read", n=2),
        proposed(12, "read", id="c11", n=1),
        interface.InputChanged(now_ms=3_000, event=ev.ToolCallStarted(**about("c6", tool_input={"n": 2}))),
        ENDED,
    ),
    Scenario(
        "what only the supervisor may say",
        BEGIN,
        *reported(ev.RunStarted(model="m3", tools=("a",), metadata={"x": 1}), ev.TokenUsageUpdated(input_tokens=1)),
        *reported(ev.ToolApprovalGranted(approval_id="r.1", **about("c1")), ev.BudgetWarned(limit="max_turns")),
        *reported(
            ev.PolicyViolated(policy="p"),
            ev.NetJoined(name="n", net="require a before b"),
            ev.Unrecognized(raw={"type": "other", "n": 1}),
        ),
        *reported(ev.Unrecognized(raw={"type": "run_completed"}), ev.Unrecognized(raw={"n": 1})),
        *reported(ev.RunFailed(error={"message": "overloaded", "code": 529})),
        ENDED,
    ),
    Scenario(
        "limits that come near and are passed",
        BEGIN,
        *reported(ev.TokenUsageUpdated(input_tokens=60)),
        *reported(ev.TokenUsageUpdated(input_tokens=60)),
        proposed(1, "read"),
        *reported(COMPLETED, now_ms=3_000),
        ENDED,
    ),
    Scenario(
        "a limit passed where no call can be refused",
        BEGIN,
        *reported(ev.TokenUsageUpdated(input_tokens=101)),
        ENDED,
        gates_all=False,
    ),
    Scenario(
        "time that runs out",
        interface.Begin(now_ms=1_000, prompt=None, first=False),
        interface.Ticked(now_ms=60_999),
        interface.Ticked(now_ms=61_001),
        interface.AdapterEnded(now_ms=61_500, evidence={"killed": True}),
    ),
    Scenario(
        "the agent's client raises",
        BEGIN,
        *reported(ev.MessageReceived(content="so far")),
        proposed(1, "pay"),
        interface.AdapterEnded(now_ms=3_000, error=ProviderError("died", details={"code": 3})),
    ),
    Scenario("the stream ends without a result", BEGIN, *reported(ev.MessageStreamed(delta="so ")), ENDED),
    Scenario("the agent says that it was cancelled", BEGIN, *reported(ev.RunCancelled(reason="by itself")), ENDED),
    Scenario("the agent fails in a word", BEGIN, *reported(ev.RunFailed(error="quota")), ENDED),
    Scenario("the owner is lost", BEGIN, interface.OwnerLost(now_ms=2_000, error=OwnerLostError("gone")), ENDED),
    Scenario(
        "a net that joins and leaves",
        BEGIN,
        interface.NetsChanged(now_ms=2_000, event=ev.NetJoined(name="n", net="require a before b")),
        *reported(COMPLETED),
        ENDED,
        interface.NetsChanged(now_ms=9_500, event=ev.NetLeft(name="n")),
    ),
    Scenario(
        "what cannot be true",
        BEGIN,
        interface.Proposed(now_ms=2_000, key=1, call="rm"),  # type: ignore[arg-type]
        proposed(2, "read"),
        ENDED,
    ),
    Scenario(
        "what cannot be recorded",
        BEGIN,
        *reported(ev.TokenUsageUpdated(input_tokens=5, scope="cumulative", event_id="u1")),
        *reported(ev.TokenUsageUpdated(input_tokens=4, scope="cumulative", event_id="u2")),
        *reported("text"),
        ENDED,
    ),
    Scenario(
        "a store that fails, and has it all when asked again",
        BEGIN,
        "not stored",
        proposed(1, "read"),
        interface.StoreFailed(now_ms=2_500, error=StoreError("disk full")),
        interface.StoreFailed(now_ms=2_600, error=StoreError("still full")),
        proposed(2, "read"),
        ENDED,
        interface.Retried(now_ms=9_100),
    ),
    Scenario(
        "a store that refuses a record, and the end in its place",
        BEGIN,
        "not stored",
        *reported(COMPLETED),
        interface.StoreFailed(now_ms=2_500, error=StoreError("bad", kind="bad_record")),
        ENDED,
        interface.Retried(now_ms=9_100, refused=StoreError("no such record", kind="bad_record")),
        interface.Retried(now_ms=9_200, refused=StoreError("nor that", kind="bad_record")),
        interface.Retried(now_ms=9_300, error=StoreError("gone")),
    ),
    Scenario(
        "a store that fails at the end",
        BEGIN,
        *reported(COMPLETED),
        "not stored",
        ENDED,
        interface.StoreFailed(now_ms=9_050, error=StoreError("disk full")),
        interface.Retried(now_ms=9_100, refused=StoreError("no such record", kind="bad_record")),
        interface.Retried(now_ms=9_200),
    ),
    Scenario(
        "an end that is to be approved first",
        BEGIN,
        interface.CancelAsked(now_ms=2_000, reason="wait for Ana"),
        *reported(COMPLETED),
        ENDED,
    ),
    Scenario(
        "grants that an earlier run has left",
        BEGIN,
        proposed(1, "pay", n=1),
        proposed(2, "pay", n=1),
        proposed(3, "publish"),
        ENDED,
        earlier_grants=[
            ev.ToolApprovalGranted(
                approval_id="r0.1", tool_name="pay", input_digest=input_digest({"n": 1}), by="ana", reason="said so"
            ),
            ev.ToolApprovalGranted(
                approval_id="r0.2",
                tool_name="publish",
                scope="session",
                covers=("p/deny-3",),
                rules_digest="fb77f171f16b0343dfcaeb84860759512d4a4162f966b614afadf621b5c656e4",
                by="bo",
            ),
        ],
    ),
    Scenario(
        "a call that was let through and never ran, of a run that is over",
        BEGIN,
        proposed(1, "read"),
        *reported(COMPLETED),
        ENDED,
        withdrawn(1),
    ),
    Scenario(
        "a policy ends the run, and its agent fails of that",
        BEGIN,
        proposed(1, "halt"),
        interface.AdapterEnded(now_ms=3_000, error=ProviderError("interrupted")),
    ),
    Scenario(
        "a person ends the run, and its agent fails of that",
        BEGIN,
        interface.CancelAsked(now_ms=2_000, reason="enough"),
        *reported(ev.RunFailed(error={"message": "interrupted"})),
        interface.AdapterEnded(now_ms=3_000, error=ProviderError("interrupted")),
    ),
    Scenario(
        "a policy ends the run, and its agent says what it has",
        BEGIN,
        *reported(ev.ToolCallStarted(**about("c1", "halt")), ev.RunFailed(error={"message": "stopped"})),
        ENDED,
    ),
    Scenario(
        "what is still owed at the end",
        BEGIN,
        proposed(1, "a"),
        *reported(COMPLETED),
        ENDED,
        policy={
            "rules": [
                {"type": "require", "tool": "a"},
                {"type": "require", "tool": "b", "action": "warn"},
                {"type": "after", "trigger": "a", "then": "c", "within": 3},
            ]
        },
    ),
    Scenario(
        "a call that is gone before its request could be shown",
        BEGIN,
        "not stored",
        proposed(1, "pay"),
        withdrawn(1),
        "stored",
        *reported(COMPLETED),
        ENDED,
    ),
]
