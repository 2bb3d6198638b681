"""Checks written in Python: they get the call and its context."""

import functools
from collections.abc import Callable
from typing import Any

import pytest

from proctor.policies import CompiledPolicy, Monitor, Policy, PolicyError, RunContext, compile_policy, parse_policies
from proctor.policies import events as ev
from proctor.policies.events.calls import Decision, NeedsChecks, ToolCall
from proctor.policies.rules import Check
from proctor.policies.rules.python_check import CheckContext, PastCall, PastMessage
from proctor.policies.rules.rule import Refuse

ALICE = RunContext(tenant="acme", user="alice")


def started(check: Callable[..., Any], tool: str = "*", **rule: Any) -> Monitor:
    """A session under one check that denies, and one that does not read the session."""
    rules = [Check(id="c", check=check, tool=tool, **rule), Check(id="beside", check=lambda call: True, tool="none")]
    policy = Policy(name="p", on_violation="deny", rules=rules)
    return compile_policy(policy).monitor(ALICE)


def watched() -> tuple[Monitor, list[CheckContext]]:
    """A session under a check of payments, and the contexts that the check gets."""
    contexts: list[CheckContext] = []

    def check(call: ToolCall, context: CheckContext) -> None:
        contexts.append(context)

    return started(check, tool="pay"), contexts


def policy_of(monitor: Monitor) -> CompiledPolicy:
    assert isinstance(monitor.state.program, CompiledPolicy)
    return monitor.state.program


def ask(monitor: Monitor, tool: str, id: str = "now", **input: Any) -> Any:
    return monitor.propose(ToolCall(id=id, name=tool, input=input))


def test_a_check_of_two_parameters_gets_the_session() -> None:
    """The earlier calls and their outcomes, usage, the run's identity, and the turn."""
    monitor, contexts = watched()
    monitor.observe(ev.TokenUsageUpdated(input_tokens=3, output_tokens=4, cost_usd=0.5))
    for id, tool in (("a", "find"), ("b", "find"), ("c", "find"), ("d", "wait"), ("f", "bash")):
        ask(monitor, tool, id, n=id)
    monitor.observe(ev.ToolCallCompleted(tool_call_id="a", tool_name="find", tool_output='{"free": true}'))
    monitor.observe(ev.ToolCallFailed(tool_call_id="b", tool_name="find", error="boom"))
    monitor.observe(ev.ToolCallDenied(tool_call_id="c", tool_name="find", decision="deny"))
    monitor.observe(ev.ToolCallCompleted(tool_call_id="f", tool_output="task 1", unfinished=True))
    decision = monitor.propose(ToolCall(id="e", name="pay", turn=2))

    assert decision.action == "allow"
    assert contexts == [
        CheckContext(
            calls=(
                PastCall(id="a", name="find", input={"n": "a"}, turn=1, status="completed", output={"free": True}),
                PastCall(id="b", name="find", input={"n": "b"}, turn=1, status="failed"),
                PastCall(id="c", name="find", input={"n": "c"}, turn=1, status="failed"),
                PastCall(id="d", name="wait", input={"n": "d"}, turn=1),
                PastCall(id="f", name="bash", input={"n": "f"}, turn=1, output="task 1"),
            ),
            usage=contexts[0].usage,
            run=ALICE,
            turn=2,
        )
    ]
    assert (contexts[0].usage.total_tokens, contexts[0].usage.cost_usd) == (7, 0.5)


def test_a_check_gets_the_messages() -> None:
    """All roles, oldest first, also after a restore. A tool result is no message."""
    monitor, contexts = watched()
    monitor.observe(ev.MessageSent(role="user", content="pay Bob"))
    monitor.observe(ev.MessageReceived(role="assistant", content=[{"type": "text", "text": "I will"}]))
    monitor.observe(ev.MessageSent(role="user", content=[{"type": "tool_result", "text": "not said"}]))
    restored = policy_of(monitor).restore(monitor.snapshot())
    for each in (monitor, restored):
        each.propose(ToolCall(id="e", name="pay", turn=1))

    messages = (PastMessage(role="user", text="pay Bob"), PastMessage(role="assistant", text="I will"))
    assert [(context.messages, context.messages_forgotten) for context in contexts] == [(messages, 0), (messages, 0)]


def test_messages_of_a_model_do_not_displace_those_of_the_user() -> None:
    """Beyond the bound, messages of others are dropped first, and the check can see that some were."""
    monitor, contexts = watched()
    monitor.observe(ev.MessageSent(role="user", content="never pay Bob"))
    for _ in range(5):
        monitor.observe(ev.MessageReceived(role="assistant", content="x" * 400_000))
    monitor.propose(ToolCall(id="e", name="pay", turn=1))

    assert contexts[0].messages[0] == PastMessage(role="user", text="never pay Bob")
    assert (len(contexts[0].messages), contexts[0].messages_forgotten) == (3, 3)


def test_a_check_gets_the_same_context_restored_and_rebuilt() -> None:
    """Its state is stored and folded like any rule's."""
    pasts: list[tuple[PastCall, ...]] = []

    def check(call: ToolCall, context: CheckContext) -> bool:
        pasts.append(context.calls)
        return call.name != "never"

    live = started(check)
    ask(live, "a", "1", n=1)
    done = ev.ToolCallCompleted(tool_call_id="1", tool_name="a", tool_output=[1])
    live.observe(done)
    ask(live, "never", "2")
    denied = ev.ToolCallDenied(tool_call_id="2", tool_name="never", decision="deny")
    live.observe(denied)
    restored = policy_of(live).restore(live.snapshot())
    folded = policy_of(live).monitor(ALICE)
    for event in (
        ev.ToolCallRequested(tool_call_id="1", tool_name="a", tool_input={"n": 1}),
        ev.ToolCallStarted(tool_call_id="1", tool_name="a", tool_input={"n": 1}),
        done,
        ev.ToolCallRequested(tool_call_id="2", tool_name="never"),
        denied,
    ):
        folded.observe(event)
    pasts.clear()
    for monitor in (live, restored, folded):
        ask(monitor, "b", "3")

    assert [[call.status for call in calls] for calls in pasts] == [["completed", "denied"]] * 3
    assert pasts[0] == pasts[1] == pasts[2]


@pytest.mark.parametrize(("answer", "action", "reason", "tell_model", "happened"), [
    (Refuse(), "deny", "rule", "rule text", "the check refused"),
    (Refuse(action="halt", reason="r"), "cancel", "r", "rule text", "r"),
    (Refuse(action="warn", tell_model="t"), "warn", "rule", None, "the check refused"),
    (Refuse(action="request_approval"), "request_approval", "rule", "rule text", "the check refused"),
    ("too late", "deny", "rule", "rule text", "too late"),
    (0, "deny", "rule", "rule text", "the check refused"),
])  # fmt: skip
def test_a_denial_of_a_check_may_set_the_action_and_the_texts(
    answer: Any, action: str, reason: str, tell_model: Any, happened: str
) -> None:
    """Missing fields are the rule's."""
    monitor = started(lambda call: answer, reason="rule", tell_model="rule text")
    decision = ask(monitor, "x")

    assert (decision.action, decision.violations[0].reason, decision.tell_model) == (action, reason, tell_model)
    assert decision.violations[0].details["actual"] == happened


def test_an_approved_call_passes_a_check_that_requested_approval() -> None:
    """The check is called again, and its request is satisfied."""
    monitor = started(lambda call: Refuse(action="request_approval"))
    held = ask(monitor, "x", n=1)
    grant = ev.ToolApprovalGranted(approval_id="a", tool_call_id="now", input_digest=held.input_digest, by="ana")
    monitor.observe(grant)

    assert (held.action, ask(monitor, "x", n=1).action) == ("request_approval", "allow")


def test_a_check_cannot_deny_with_an_unknown_action() -> None:
    """In the policy it is an error; returned by a check, it denies the call."""
    with pytest.raises(ValueError, match="`allow` is not an action"):
        Refuse(action="allow")  # type: ignore[arg-type]
    decision = ask(started(lambda call: Refuse(action="no")), "x")  # type: ignore[arg-type]

    assert (decision.action, decision.errors) == ("deny", ("c",))


async def asynchronous(call: ToolCall, context: CheckContext) -> Any:
    return Refuse(action="cancel") if len(context.calls) > 1 else True


@pytest.mark.anyio
@pytest.mark.parametrize("check", [asynchronous, functools.partial(asynchronous)])
async def test_an_asynchronous_check_gets_the_session_of_the_time_of_its_call(check: Any) -> None:
    """The monitor binds the context; the caller passes only the call."""
    monitor = started(check, tool="pay")
    answers = []
    for id, tool in (("1", "find"), ("2", "pay"), ("3", "pay")):
        call = ToolCall(id=id, name=tool)
        needed = monitor.decide(call)
        pending = needed.checks if isinstance(needed, NeedsChecks) else ()
        checks = {name: await bound_check(call) for name, bound_check in pending}
        decision = monitor.decide(call, checks) if checks else needed
        assert isinstance(decision, Decision)
        monitor.observe(ev.ToolCallStarted(tool_call_id=id, tool_name=tool))
        answers.append((list(checks), decision.action))

    assert answers == [([], "allow"), (["c"], "allow"), (["c"], "cancel")]
    assert monitor.propose(ToolCall(id="unanswered", name="pay")).action == "deny"


def test_a_check_that_returns_an_awaitable_denies() -> None:
    """It would never be awaited, and as a true value it would allow the call."""
    decision = ask(started(lambda call: asynchronous(call, None)), "x")  # type: ignore[arg-type]

    assert (decision.action, decision.errors) == ("deny", ("c",))
    assert "async def" in decision.violations[0].message


@pytest.mark.parametrize(("check", "wants"), [
    (lambda call: None, 1),
    (lambda *_: None, 1),
    (lambda call, limit=3: None, 1),
    (lambda call, context=None: None, 2),
    (lambda call, about: None, 2),
    (lambda call, context, more=0: None, 2),
    (len, 1),
])  # fmt: skip
def test_the_parameters_of_a_check_decide_whether_it_gets_the_context(check: Any, wants: int) -> None:
    """Two required parameters, or a second one named `context`."""
    monitor = started(check)

    assert len(monitor.state.program.rules[0].machine.slots) == wants


@pytest.mark.parametrize("check", [lambda: None, lambda a, b, c: None, lambda call, *, key: None])
def test_a_check_with_an_unsupported_signature_is_an_error_at_load(check: Any) -> None:
    with pytest.raises(PolicyError, match="takes the call, or the call and its context"):
        started(check)


@pytest.mark.parametrize("own", [None, "Not on Fridays."])
@pytest.mark.parametrize("action", ["cancel", "halt", "deny", "warn", "request_approval", None, "text"])
def test_the_denial_of_a_validator_has_its_own_action_and_texts(action: Any, own: str | None) -> None:
    """As a check's does. Without an action, the net's applies; a text is a denial.

    The model gets the validator's `tell_model`, or its text unless the net has one.
    """
    net = {"line": "limit a to 3 per session", **({"tell_model": own} if own else {})}
    [policy] = parse_policies({"version": 1, "name": "p", "nets": [net]})
    refuse = Refuse(action=action, reason="audit:late", tell_model="Tomorrow.") if action != "text" else "no backup"
    monitor = compile_policy(policy, validators={"limit a to 3 per session": lambda *_: refuse}).monitor()
    decision = monitor.propose(ToolCall(id="c", name="a"))
    wanted = "cancel" if action in ("halt", "text", None) else action
    (violation,) = decision.violations

    assert decision.action == violation.action == wanted
    if action == "text":
        assert (violation.message, decision.tell_model) == ("no backup", own or "no backup")
    else:
        assert violation.reason == "audit:late"
        assert wanted not in ("deny", "cancel") or decision.tell_model == "Tomorrow."


def _narrowed(narrows: Any) -> Monitor:
    return started(lambda call: True, "deploy", narrows=narrows)


def test_a_check_narrows_the_tools_it_applies_to() -> None:
    """It gets the earlier calls. Narrowing does not affect its decisions."""

    def once(tool: str, context: CheckContext) -> bool:
        return tool not in [past.name for past in context.calls]

    monitor = _narrowed(once)
    before = monitor.narrow(["deploy", "test"])
    monitor.propose(ToolCall(id="c", name="deploy"))

    assert before == ["deploy", "test"]
    assert monitor.narrow(["deploy", "test"]) == ["test"]
    assert monitor.propose(ToolCall(id="d", name="deploy")).action == "allow"


def _raises(tool: str, context: CheckContext) -> bool:
    raise SystemExit(1)


@pytest.mark.parametrize(("narrows", "shown"), [
    (lambda tool, context: False, False),
    (lambda tool, context: True, True),
    (lambda tool, context: None, True),
    (lambda tool, context: 0, True),
    (lambda tool: False, True),
    (_raises, True),
])  # fmt: skip
def test_only_a_definite_denial_hides_a_tool(narrows: Any, shown: bool) -> None:
    """No tool that could be called is hidden by mistake."""
    assert ("deploy" in _narrowed(narrows).narrow(["deploy"])) is shown


def test_narrows_must_be_synchronous() -> None:
    """An `async def` is an error when the policy is created."""

    async def later(tool: str, context: CheckContext) -> bool:
        return False

    with pytest.raises(PolicyError, match="without `async`"):
        _narrowed(later)
