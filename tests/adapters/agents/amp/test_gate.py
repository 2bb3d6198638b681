"""Calls are rejected by the client's rules or put to the gate by the delegate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from proctor.policies.events import PolicyViolated, RunCompleted, ToolCallFailed
from proctor.policies.events.calls import ToolCall
from proctor.policies.language.selectors import ToolWhere
from proctor.policies.limits import Limits
from proctor.policies.policy import Deny, Policy
from proctor.supervisor import PolicyViolationError, run_once
from proctor.supervisor.errors import UsageError
from proctor.supervisor.ports.adapter import GateAnswer
from proctor.supervisor.testing.fakes import PATIENCE_S

pytestmark = pytest.mark.anyio


def answering(**answer: Any) -> Callable[[ToolCall], Any]:
    """A gate that answers so."""

    async def gate(call: ToolCall) -> GateAnswer:
        return GateAnswer(**answer)

    return gate


def calls(done: Any) -> list[tuple[str, str]]:
    """The events about calls."""
    return [(event.type, event.tool_call_id) for event in done.events if "tool_call" in event.type]


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("tool", ["Bash", "shell_command"])
async def test_a_call_is_asked_about_before_it_runs(bench: Any, touch: Any, tool: str, late: bool) -> None:
    """The shell has one name and one input; whether the client shows the call before or after makes no odds."""
    seen: list[list[str]] = []

    async def gate(call: ToolCall) -> GateAnswer:
        seen.append(bench.made())
        return GateAnswer(allowed=True)

    done = await bench.run(bench.adapter(touch("a", tool, late=late)), answer=gate)

    assert [(call.name, call.input, call.turn) for call in done.proposed] == [("Bash", {"command": "touch a"}, 1)]
    assert (seen, bench.made()) == ([[]], ["a"])
    assert calls(done) == [("tool_call_completed", done.proposed[0].id)]


async def test_a_refused_call_does_not_run_and_the_model_is_told(bench: Any, touch: Any) -> None:
    """With our text."""
    done = await bench.run(bench.adapter(touch("a")), answer=answering(allowed=False, tell_model="Not today."))

    assert (bench.made(), calls(done)) == ([], [])
    assert isinstance(done.events[-1], RunCompleted)


async def test_the_same_call_twice_is_two_calls(bench: Any, touch: Any) -> None:
    """One after the other, each with its own outcome."""
    again = {**touch("a"), "use": ["u-again", "Bash", {"cmd": "touch a"}]}
    done = await bench.run(bench.adapter(touch("a"), again))

    assert [call.id for call in done.proposed] == ["u-a", "u-again"]
    assert calls(done) == [("tool_call_completed", "u-a"), ("tool_call_completed", "u-again")]


async def test_what_the_client_rejects_by_itself_is_reported_as_denied(bench: Any, touch: Any) -> None:
    """So that the policy that forbade it is named."""
    policy = Policy(name="p", tool_rules=(Deny(("bash",)),))
    done = await bench.run(bench.adapter(touch("a")), policy=policy)

    assert done.proposed == []
    assert (bench.made(), calls(done)) == ([], [("tool_call_requested", "u-a"), ("tool_call_denied", "u-a")])


async def test_what_runs_without_asking_is_reported_as_started(bench: Any, touch: Any) -> None:
    """What Amp's servers do, the client's rules do not hold."""
    done = await bench.run(bench.adapter(touch("a", asks=False)))

    assert calls(done) == [("tool_call_started", "u-a"), ("tool_call_completed", "u-a")]


@pytest.mark.parametrize(
    "answer", [{"allowed": True, "input": {"command": "true"}}, {"allowed": False, "stop": True}]
)
async def test_a_call_that_may_not_run_as_it_is_does_not_run(bench: Any, touch: Any, answer: dict[str, Any]) -> None:
    """It cannot be rewritten; after a stop nothing else runs."""
    done = await bench.run(bench.adapter(touch("a"), touch("b")), answer=answering(**answer))

    assert bench.made() == []
    rewritten = [event for event in done.events if isinstance(event, ToolCallFailed)]
    assert len(rewritten) == (2 if "input" in answer else 0)


async def test_a_gate_that_fails_permits_nothing(bench: Any, touch: Any) -> None:
    """No answer is no permission."""

    async def broken(call: ToolCall) -> GateAnswer:
        raise RuntimeError("no answer")

    await bench.run(bench.adapter(touch("a")), answer=broken)

    assert bench.made() == []


async def test_a_policy_holds_over_a_whole_run(bench: Any, touch: Any) -> None:
    """Calls are counted at the gate; the run is cancelled at the one too many."""
    policy = Policy(name="p", limits=Limits(max_tool_calls=1))
    with pytest.raises(PolicyViolationError):
        await run_once(bench.adapter(touch("a"), touch("b"), {"silence": True}), "do it", policies=[policy])

    assert bench.made() == ["a"]


async def test_the_client_is_started_with_the_rules_and_the_prompt(bench: Any) -> None:
    """The caller's own rejections stay first, and the gate is last."""
    own = {"amp.permissions": [{"tool": "Read", "action": "reject"}], "amp.notifications.enabled": False}
    policy = Policy(name="p", tool_rules=(Deny(("mcp__docs__*",)),))
    await bench.run(bench.adapter(settings=own, mode="low"), policy=policy)

    started = bench.started_with()
    assert started["prompt"] == "do it"
    assert started["arguments"][:7] == [
        "--executor", "local", "--mode", "low", "--execute", "--stream-json", "--settings-file",
    ]  # fmt: skip
    rules = started["settings"].pop("amp.permissions")
    assert [(rule["tool"], rule["action"]) for rule in rules] == [
        ("Read", "reject"),
        ("mcp__docs__*", "reject"),
        ("*", "delegate"),
    ]
    assert started["settings"] == {"amp.notifications.enabled": False, "amp.dangerouslyAllowAll": False}


@pytest.mark.parametrize(
    "settings",
    [
        {"amp.dangerouslyAllowAll": True},
        {"amp.permissions": [{"tool": "Bash", "action": "allow"}]},
        {"amp.permissions": "all"},
    ],
)
async def test_settings_that_go_round_the_gate_are_refused(bench: Any, settings: dict[str, Any]) -> None:
    """When the adapter is made."""
    with pytest.raises(UsageError, match="setting `amp"):
        bench.adapter(settings=settings)


async def test_only_what_the_client_holds_exactly_is_compiled(bench: Any) -> None:
    """What depends on more than the name, or only warns, is the gate's; an alias is the names it stands for."""
    policy = Policy(
        name="p",
        tool_rules=(
            Deny(("Bash", "mcp__docs__*", "[ab]*", "sh")),
            Deny(("Read",), action="warn"),
            Deny((ToolWhere(tool="Grep"),)),
        ),
        aliases={"sh": ["Bash"]},
        limits=Limits(max_tool_calls=3),
    )
    options = bench.adapter().compile(policy)

    assert options.options == {"rejected": ("Bash", "shell_command", "mcp__docs__*")}
    assert options.expressed == ("deny Bash", "deny mcp__docs__*", "deny sh")
    assert set(options.unexpressed) == {"max_tool_calls", "deny [ab]*", "deny Read", "deny Grep where"}


@pytest.mark.parametrize("action", ["cancel", "deny"])
async def test_an_attempt_at_what_the_client_rejects_by_itself_is_a_violation(
    bench: Any, touch: Any, action: Any
) -> None:
    """It is judged by the rule that had it rejected, and the rule's action holds."""
    policy = Policy(name="p", on_violation=action, tool_rules=(Deny(("bash",)),))
    if action == "cancel":
        with pytest.raises(PolicyViolationError) as caught, anyio.fail_after(PATIENCE_S):
            await run_once(bench.adapter(touch("a"), {"silence": True}), "do it", policies=[policy])
        done = caught.value.partial
    else:
        done = await run_once(bench.adapter(touch("a")), "do it", policies=[policy])

    seen = [event.type for event in done.events if "tool_call" in event.type]
    assert (seen, bench.made()) == (["tool_call_requested", "tool_call_denied"], [])
    assert [event.enforcement for event in done.events if isinstance(event, PolicyViolated)] == ["prevented"]
