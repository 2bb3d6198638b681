"""Functions that give calls more names for a net."""

from __future__ import annotations

from typing import Any

import pytest

from proctor.policies import Monitor, PolicyError, ToolCall, compile_policy, parse_policies
from proctor.policies.events import ToolCallCompleted


def pushes(call: Any) -> str | None:
    """A push by what the command line says."""
    return "git-push" if call.name == "bash" and "push" in call.input.get("command", "") else None


def watched(net: Any, mapper: Any, **more: Any) -> Monitor:
    """A monitor of one net with a mapper."""
    [policy] = parse_policies({"version": 1, "name": "p", "on_violation": "deny", "nets": [net], **more})
    name = net if isinstance(net, str) else net.get("name") or net["line"]
    return compile_policy(policy, mappers={name: mapper}).monitor()


def answer(monitor: Monitor, name: str, id: str = "c", **input: Any) -> str:
    """What is decided about a call."""
    return monitor.propose(ToolCall(id=id, name=name, input=input)).action


def release(**more: Any) -> dict[str, Any]:
    """A net that lets one push through."""
    spend = {"name": "spend", "inputs": ["budget"], "tools": ["git-push"]}
    return {"name": "n", "places": ["budget"], "initial_marking": {"budget": 1}, "transitions": [spend], **more}


@pytest.mark.parametrize("given", ["git-push", ["git-push"], ("other", "GIT-PUSH"), {"git-push"}])
def test_a_call_is_governed_under_a_name_that_the_mapper_gives(given: Any) -> None:
    """One name or several, in whatever letters a tool may be named."""
    monitor = watched("block git-push", lambda call: given if pushes(call) else None)

    assert answer(monitor, "bash", "1", command="git push") == "deny"
    assert answer(monitor, "bash", "2", command="ls") == "allow"
    [how] = monitor.finish().rules.values()
    assert how.status == "violated"


def test_calls_that_the_mapper_names_fire() -> None:
    """A limit counts them; a call that it does not name leaves the net as it is."""
    monitor = watched("limit git-push to 1 per session", pushes)
    answers = [
        answer(monitor, "bash", str(n), command=line) for n, line in enumerate(["ls", "git push", "ls", "git push"])
    ]

    assert answers == ["allow", "allow", "allow", "deny"]


def test_a_deferred_transition_is_told_how_a_mapped_call_ended() -> None:
    """`require` counts a prerequisite that only the mapper knows."""
    monitor = watched("require tests before deploy", lambda call: "tests" if call.input.get("command") == "t" else ())
    first = answer(monitor, "deploy", "1")
    assert answer(monitor, "bash", "2", command="t") == "allow"
    monitor.observe(ToolCallCompleted(tool_call_id="2", tool_name="bash", tool_output="ok"))

    assert (first, answer(monitor, "deploy", "3")) == ("deny", "allow")


def test_the_strictest_name_decides() -> None:
    """A name that is free, or the tool's own, permits nothing to the others."""
    for more in ({"free_tools": ["bash"]}, {"free_tools": ["ls"]}):
        monitor = watched(release(initial_marking={}, **more), lambda call: ["ls", "git-push"])
        assert answer(monitor, "bash", command="git push; ls") == "deny"


def test_a_call_of_one_name_twice_fires_once() -> None:
    """A mapper may give the call the name that it has."""
    monitor = watched(release(), lambda call: [call.name, "git-push"])

    assert [answer(monitor, "git-push", id) for id in "12"] == ["allow", "deny"]


def test_globs_aliases_and_conditions_hold_for_names_of_the_mapper() -> None:
    """A name is looked at as a tool's."""
    tools = {"never": ["git-*"], "aliased": ["publish"], "where": [{"tool": "git-push", "where": [COMMAND]}]}
    for selector in tools.values():
        transition = {"name": "t", "inputs": ["never"], "tools": selector}
        net = {"name": "n", "places": ["never"], "transitions": [transition]}
        monitor = watched(net, pushes, aliases={"publish": ["git-push"]})
        assert answer(monitor, "bash", "1", command="git push") == "deny"
        assert answer(monitor, "bash", "2", command="ls") == "allow"


COMMAND = {"path": "$.command", "contains": "git"}


def raises(call: Any) -> str:
    """A mapper that fails."""
    raise KeyError(call.name)


async def nobody_waits() -> str:
    return "git-push"


def coroutine(call: Any) -> Any:
    """What an `async` function in disguise returns."""
    made = nobody_waits()
    made.close()
    return made


@pytest.mark.parametrize("mapper", [raises, coroutine, lambda call: 3, lambda call: [3], lambda call: b"git-push"])
@pytest.mark.parametrize("tool", ["bash", "git-push", "ls"])
def test_a_mapper_that_fails_refuses_the_call(mapper: Any, tool: str) -> None:
    """Whatever the net says of the call's own name, and whatever its action."""
    monitor = watched(release(free_tools=["ls"], action="warn"), mapper)

    decision = monitor.propose(ToolCall(id="c", name=tool, input={}))

    assert decision.action == "deny"
    assert "it raised" in decision.violations[0].message


def test_a_mapper_goes_with_a_net_that_joins() -> None:
    """As validators and result hooks do, and it stays with the net that leaves and comes back."""
    [policy] = parse_policies({"version": 1, "name": "p", "on_violation": "deny"})
    monitor = compile_policy(policy).monitor()
    monitor.add_net("block git-push", mapper=pushes)
    assert answer(monitor, "bash", "1", command="git push") == "deny"
    monitor.remove_net("block git-push")
    assert answer(monitor, "bash", "2", command="git push") == "allow"
    monitor.add_net("block git-push")
    assert answer(monitor, "bash", "3", command="git push") == "deny"


@pytest.mark.parametrize("mapper", [3, "git-push", nobody_waits])
def test_what_is_no_plain_function_is_not_attached(mapper: Any) -> None:
    """An `async` mapper would never be waited for."""
    with pytest.raises(PolicyError, match="not a plain function"):
        watched("block git-push", mapper)


def test_a_mapper_of_a_net_that_is_not_there_is_an_error() -> None:
    """A misspelt name would be a mapper that is never asked."""
    [policy] = parse_policies({"version": 1, "name": "p", "nets": ["block git-push"]})
    with pytest.raises(PolicyError, match="no net is called `block push`"):
        compile_policy(policy, mappers={"block push": pushes})
