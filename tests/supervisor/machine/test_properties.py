"""Any interleaving of inputs keeps the machine's invariants, and a restored machine continues like the original."""

from collections.abc import Sequence
from typing import Any

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from proctor.policies import Limit, Limits, RunContext, ToolCall, compile_policy, merge_policies
from proctor.policies import events as ev
from proctor.policies.policy import Approval, Deny, Policy
from proctor.supervisor.errors import ProviderError, StoreError, StoreErrorKind
from proctor.supervisor.machine import interface
from proctor.supervisor.machine.ending import described
from proctor.supervisor.machine.interface import (
    AnswerGate,
    CancelAdapter,
    CloseApproval,
    Effect,
    Finish,
    RequestApproval,
    RetryRecord,
)
from proctor.supervisor.machine.machine import RunMachine
from proctor.supervisor.machine.run_state import RunIdentity
from proctor.supervisor.ports.stored_types import NOBODY_IN_TIME, ApprovalAnswer

TOOLS = st.sampled_from(["read", "warned", "asked", "denied", "cancelled"])
IDS = st.sampled_from([f"c{n}" for n in range(6)])
WARN_AT = 400
INPUTS = st.sampled_from([{}, {"n": 1}])


def plain(effects: Sequence[Effect]) -> Any:
    """With errors as text, which is all that a snapshot keeps of them."""
    return [(type(effect), msgspec.to_builtins(effect, enc_hook=described)) for effect in effects]


def compiled(on_timeout: Any) -> Any:
    policy = Policy(
        name="p",
        tool_rules=tuple(
            Deny((tool,), action=action)  # type: ignore[arg-type]
            for tool, action in (
                ("warned", "warn"),
                ("asked", "request_approval"),
                ("denied", "deny"),
                ("cancelled", "cancel"),
            )
        ),
        limits=Limits(max_duration_ms=50_000, max_total_tokens=Limit(max=1_000, warn_at=WARN_AT / 1_000)),
        approval=Approval(timeout_s=5, on_timeout=on_timeout),
    )
    return compile_policy(merge_policies([policy]))


class Interleavings(RuleBasedStateMachine):
    """Feeds a machine and checks its effects."""

    @initialize(gates_all=st.booleans(), on_timeout=st.sampled_from(["deny", "cancel"]))
    def begin(self, gates_all: bool, on_timeout: str) -> None:
        self.compiled = compiled(on_timeout)
        self.monitor = self.compiled.monitor(RunContext())
        self.observed: list[ev.Event] = []
        observe = self.monitor.observe

        def watched(event: ev.Event) -> Any:
            self.observed.append(event)
            return observe(event)

        self.monitor.observe = watched
        identity = RunIdentity(run_id="r", session_id="s", provider="x", gates_all=gates_all)
        self.machine = RunMachine(identity, self.monitor)
        self.now = 1_000
        self.key = 0
        self.keys: dict[int, ToolCall] = {}
        self.answers: dict[int, AnswerGate] = {}
        self.withdrawn: set[int] = set()
        self.recorded = self.acked = 0
        self.appended: list[tuple[int, ev.Event]] = []
        self.approval_requests: list[RequestApproval] = []
        self.closing: list[str] = []
        self.cancels = self.finishes = 0
        self.ordered: int | None = None
        self.retries = self.refusals = 0
        self.refused_end: ev.Event | None = None
        self.retry_of: RetryRecord | None = None
        self.broken = self.ended = False
        self.tokens = 0
        self.feed(interface.Begin(now_ms=self.now, prompt="go"))

    def feed(self, input: interface.Input) -> None:
        before = self.machine.cancelling
        restored = RunMachine.restore(self.machine.snapshot(), self.compiled.restore(self.monitor.snapshot()))
        effects = self.machine.handle(input)
        recorded = self.machine.drain_record()
        assert plain(restored.handle(input)) == plain(effects)
        assert restored.drain_record() == recorded
        assert restored.snapshot() == self.machine.snapshot()
        for event in recorded:
            self.recorded += 1
            self.appended.append((self.recorded, event))
        if self.machine.cancelling and self.ordered is None:
            self.ordered = self.recorded
        for effect in effects:
            self.carry_out(effect, cancelling=before)
        self.check_grants()

    def carry_out(self, effect: Effect, *, cancelling: bool) -> None:
        assert self.finishes == 0 or isinstance(effect, AnswerGate)
        match effect:
            case AnswerGate():
                self.check_answer(effect, cancelling=cancelling)
            case RequestApproval():
                self.approval_requests.append(effect)
            case CloseApproval():
                assert effect.approval_id not in self.closing
                self.closing.append(effect.approval_id)
            case CancelAdapter():
                self.cancels += 1
                self.check_violation_is_stored()
            case RetryRecord():
                self.retries += 1
                self.retry_of = effect
                assert self.broken
            case Finish():
                self.finishes += 1
                assert self.broken or self.acked == self.recorded

    def check_answer(self, effect: AnswerGate, *, cancelling: bool) -> None:
        assert effect.key not in self.answers
        self.answers[effect.key] = effect
        if effect.answer.allowed:
            assert not cancelling
            assert not self.broken
            stored = [e for n, e in self.appended if n <= self.acked]
            assert any(
                isinstance(e, ev.ToolCallStarted)
                and (e.tool_call_id, e.tool_name, e.tool_input)
                == (effect.call.id, effect.call.name, effect.call.input)
                for e in stored
            )
        else:
            assert effect.answer.tell_model
            assert "p" not in effect.answer.tell_model.split()

    def check_violation_is_stored(self) -> None:
        # A violation found after the cancel is not its cause.
        assert self.ordered is not None
        violations = [n for n, e in self.appended if isinstance(e, ev.PolicyViolated) and n <= self.ordered]
        assert self.broken or all(n <= self.acked for n in violations)

    def check_grants(self) -> None:
        grants = [e.approval_id for _, e in self.appended if isinstance(e, ev.ToolApprovalGranted)]
        assert len(grants) == len(set(grants))

    def pass_time(self, ms: int) -> int:
        self.now += ms
        return self.now

    @rule(call_id=IDS, name=TOOLS, call_input=INPUTS)
    def propose(self, call_id: str, name: str, call_input: dict[str, Any]) -> None:
        self.key += 1
        call = self.keys[self.key] = ToolCall(id=call_id, name=name, input=call_input)
        self.feed(interface.Proposed(now_ms=self.pass_time(1), key=self.key, call=call))

    @rule(call_id=IDS, name=TOOLS, call_input=INPUTS, what=st.integers(0, 5), tokens=st.integers(0, 300))
    def report(self, call_id: str, name: str, call_input: dict[str, Any], what: int, tokens: int) -> None:
        fields: dict[str, Any] = {"tool_call_id": call_id, "tool_name": name}
        event: ev.Event = [
            ev.MessageReceived(content="x"),
            ev.TokenUsageUpdated(input_tokens=tokens),
            ev.ToolCallRequested(**fields, tool_input=call_input),
            ev.ToolCallStarted(**fields, tool_input=call_input),
            ev.ToolCallCompleted(**fields),
            ev.ToolApprovalGranted(**fields, approval_id="r.1"),
        ][what]
        self.feed(interface.Reported(now_ms=self.pass_time(1), event=event))

    @rule(event=st.sampled_from([ev.RunCompleted(output="x"), ev.RunFailed(error="y")]))
    def provider_ends(self, event: ev.Event) -> None:
        self.feed(interface.Reported(now_ms=self.pass_time(1), event=event))

    @rule(key=st.integers(1, 20))
    def withdraw(self, key: int) -> None:
        if key in self.keys:
            self.withdrawn.add(key)
            call_id, before = self.keys[key].id, len(self.appended)
            call = self.machine.calls.get(call_id)
            permitted = call is not None and (call.runs, call.key) == (True, key)
            self.feed(interface.Withdrawn(now_ms=self.pass_time(1), key=key, call_id=call_id))
            if permitted and not self.machine.ended:
                failed = [event for _, event in self.appended[before:] if isinstance(event, ev.ToolCallFailed)]
                assert [event.tool_call_id for event in failed][:1] == [call_id]

    @precondition(lambda self: self.approval_requests)
    @rule(n=st.integers(0, 20), granted=st.booleans(), digest=st.sampled_from([None, "right", "wrong"]))
    def answer(self, n: int, granted: bool, digest: str | None) -> None:
        request = self.approval_requests[n % len(self.approval_requests)].request
        given = ApprovalAnswer(
            granted=granted, by="ana", input_digest=request.input_digest if digest == "right" else digest
        )
        self.feed(interface.ApprovalAnswered(now_ms=self.pass_time(1), approval_id=request.approval_id, answer=given))

    @precondition(lambda self: self.closing)
    @rule(n=st.integers(0, 20))
    def close(self, n: int) -> None:
        approval_id = self.closing[n % len(self.closing)]
        answers = (ev.ToolApprovalDenied, ev.ToolApprovalExpired, ev.ToolApprovalGranted)
        before = len(self.appended)
        waits = not any(isinstance(e, answers) and e.approval_id == approval_id for _, e in self.appended)
        self.feed(
            interface.ApprovalAnswered(now_ms=self.pass_time(1), approval_id=approval_id, answer=NOBODY_IN_TIME)
        )
        expired = [e.approval_id for _, e in self.appended[before:] if isinstance(e, ev.ToolApprovalExpired)]
        assert expired.count(approval_id) == waits
        assert {*expired} <= {*self.closing}  # where that ends the run, others expire whose time is up

    @rule(ms=st.sampled_from([1, 100, 6_000, 60_000]))
    def tick(self, ms: int) -> None:
        self.feed(interface.Ticked(now_ms=self.pass_time(ms)))

    @rule()
    def cancel(self) -> None:
        self.feed(interface.CancelAsked(now_ms=self.pass_time(1), reason="user"))

    @precondition(lambda self: not self.broken and self.acked < self.recorded)
    @rule(n=st.integers(1, 5))
    def store(self, n: int) -> None:
        self.acked = min(self.recorded, self.acked + n)
        self.feed(interface.Stored(now_ms=self.now, count=self.acked))

    @precondition(lambda self: not self.broken and self.acked < self.recorded)
    @rule(kind=st.sampled_from(["unwritable", "bad_record"]))
    def store_fails(self, kind: StoreErrorKind) -> None:
        self.broken = True
        self.feed(interface.StoreFailed(now_ms=self.now, error=StoreError("full", kind=kind)))

    @precondition(lambda self: self.retry_of is not None)
    @rule(how=st.sampled_from(["stored", "refused", "failed"]))
    def retry(self, how: str) -> None:
        assert self.retry_of is not None
        end, self.retry_of = self.retry_of.end, None
        error = StoreError(how, kind="bad_record")
        if how != "failed":
            self.acked = self.recorded
        if how == "refused":
            self.refusals += 1
            self.refused_end = end
            self.appended = [(n, event) for n, event in self.appended if event is not end]
        self.feed(
            interface.Retried(
                now_ms=self.now, refused=error if how == "refused" else None, error=error if how == "failed" else None
            )
        )

    @rule(error=st.sampled_from([None, ProviderError("died"), RuntimeError("crash")]))
    def adapter_ends(self, error: Exception | None) -> None:
        self.ended = True
        self.feed(interface.AdapterEnded(now_ms=self.pass_time(1), error=error))

    @invariant()
    def the_adapter_is_cancelled_at_most_once(self) -> None:
        assert getattr(self, "cancels", 0) <= 1
        assert getattr(self, "retries", 0) <= 3

    @invariant()
    def there_is_one_terminal_event_at_most_and_none_after_it(self) -> None:
        events = [event for _, event in getattr(self, "appended", ())]
        terminal = [n for n, event in enumerate(events) if isinstance(event, ev.TERMINAL)]
        assert terminal in ([], [len(events) - 1])

    @invariant()
    def totals_never_fall(self) -> None:
        if hasattr(self, "monitor"):
            assert self.monitor.usage.total_tokens >= self.tokens
            self.tokens = self.monitor.usage.total_tokens

    @invariant()
    def warnings_come_in_flight(self) -> None:
        if hasattr(self, "monitor") and self.monitor.usage.total_tokens >= WARN_AT and not self.machine.ended:
            assert any(isinstance(event, ev.BudgetWarned) for _, event in self.appended)

    @invariant()
    def the_monitor_has_observed_the_recorded_events_in_order(self) -> None:
        if (
            hasattr(self, "monitor") and not self.refusals
        ):  # a terminal event that replaces a rejected one is not observed again
            assert [event.seq for event in sorted(self.observed, key=lambda event: event.seq)] == [
                event.seq for _, event in sorted(self.appended, key=lambda one: one[1].seq)
            ]

    def teardown(self) -> None:
        """However it stopped, an adapter that ends and a store that works settle everything."""
        if not hasattr(self, "machine"):
            return
        self.feed(interface.AdapterEnded(now_ms=self.pass_time(1)))
        while self.retry_of is not None:
            self.retry("stored")
        if not self.broken:
            self.acked = self.recorded
            self.feed(interface.Stored(now_ms=self.now, count=self.acked))
        assert self.finishes == 1
        assert isinstance(self.appended[-1][1], ev.TERMINAL) or isinstance(self.refused_end, ev.RunFailed)
        gone = set(self.keys) - set(self.answers)
        assert gone <= self.withdrawn
        self.key += 1
        late = ToolCall(id="late", name="read")
        self.feed(interface.Proposed(now_ms=self.now, key=self.key, call=late))
        assert (self.answers[self.key].answer.allowed, self.answers[self.key].answer.stop) == (False, True)
        started = [e.tool_call_id for _, e in self.appended if isinstance(e, ev.ToolCallStarted)]
        permitted = [a.call.id for a in self.answers.values() if a.answer.allowed]
        assert set(permitted) <= set(started)
        if not self.refusals:
            self.check_replayed()

    def check_replayed(self) -> None:
        """Replaying the record gives the monitor's state."""
        replayed = self.compiled.monitor(RunContext())
        for _, event in self.appended:
            replayed.observe(event)
        assert replayed.snapshot() == self.monitor.snapshot()


Interleavings.TestCase.settings = settings(
    max_examples=150, stateful_step_count=40, suppress_health_check=list(HealthCheck)
)
TestInterleavings = Interleavings.TestCase
