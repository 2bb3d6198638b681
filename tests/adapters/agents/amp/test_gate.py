"""Calls are rejected by the client's rules or put to the gate by the delegate."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from proctor.policies.events import PolicyViolated
from proctor.policies.events.calls import ToolCall
from proctor.policies.language.selectors import ToolWhere
from proctor.policies.limits import Limits
from proctor.policies.policy import Deny, Policy
from proctor.supervisor import PolicyViolationError, run_once
from proctor.supervisor.errors import UsageError
from proctor.supervisor.ports.adapter import GateAnswer
from proctor.supervisor.testing.fakes import PATIENCE_S

pytestmark = pytest.mark.anyio


def calls(done: Any) -> list[tuple[str, str]]:
    """The events about calls."""
    return [(event.type, event.tool_call_id) for event in done.events if "tool_call" in event.type]


async def test_a_call_is_asked_about_before_it_runs(bench: Any, touch: Any) -> None:
    """The shell has one name and one input; whether the client shows the call before or after makes no odds. The
    same call twice is two calls, one after the other, each with its own outcome.
    """
    seen: list[list[str]] = []

    async def gate(call: ToolCall) -> GateAnswer:
        seen.append(bench.made())
        return GateAnswer(allowed=True)

    again = {**touch("a"), "use": ["u-again", "Bash", {"cmd": "touch a"}]}
    files = {"a": "Bash", "b": "shell_command", "c": "Bash", "d": "shell_command"}
    uses = [touch(file, tool, late=file in "cd") for file, tool in files.items()]
    done = await bench.run(bench.adapter(*uses, again), answer=gate)

    commands = [*files, "a"]
    assert [(call.name, call.input) for call in done.proposed] == [
        ("Bash", {"command": f"touch {file}"}) for file in commands
    ]
    assert seen == [sorted(list(files)[:number]) for number in range(5)]
    assert calls(done) == [("tool_call_completed", call.id) for call in done.proposed]
    assert [call.id for call in done.proposed][::4] == ["u-a", "u-again"]


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
