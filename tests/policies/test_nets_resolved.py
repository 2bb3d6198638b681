"""What each net would answer to a call, asked without making it."""

from __future__ import annotations

from typing import Any

import pytest

from proctor.policies import ToolCall, compile_policy, parse_policies

NET = {
    "name": "n",
    "places": ["idle", "never"],
    "initial_marking": {"idle": 1},
    "transitions": [
        {"name": "go", "inputs": ["idle"], "tools": ["deploy"]},
        {"name": "ask", "type": "manual", "tools": ["ship"]},
        {"name": "no", "inputs": ["never"], "tools": ["git-push"]},
    ],
    "free_tools": ["ls"],
}


def monitor(**attached: Any) -> Any:
    """A monitor of two nets, one of which is a line."""
    nets = [NET, "block rm", 'map bash.command "git push" as git-push']
    [policy] = parse_policies({"version": 1, "name": "p", "on_violation": "deny", "nets": nets})
    return compile_policy(policy, **attached).monitor()


@pytest.mark.parametrize(
    ("tool", "input", "says"),
    [
        ("ls", None, "free"),
        ("read", None, "abstain"),
        ("deploy", None, "gated"),
        ("DEPLOY", None, "gated"),
        ("ship", None, "gated"),
        ("git-push", None, "blocked"),
        ("bash", None, "abstain"),
        ("bash", {"command": "git push"}, "blocked"),
    ],
)
def test_each_net_says_what_a_call_is_to_it(tool: str, input: Any, says: str) -> None:
    """By every name of the call."""
    assert monitor().resolve(tool, input) == {"n": says, "block rm": "abstain"}


def test_it_changes_nothing_and_follows_the_state() -> None:
    """Asked twice it says the same; once the token is spent, the other."""
    session = monitor()
    before = session.snapshot()
    assert [session.resolve("deploy")["n"] for _ in "12"] == ["gated", "gated"]
    assert session.snapshot() == before
    session.propose(ToolCall(id="1", name="deploy", input={}))

    assert session.resolve("deploy") == {"n": "blocked", "block rm": "abstain"}
    session.remove_net("n")
    assert session.resolve("rm") == {"block rm": "blocked"}


def test_a_mapper_is_asked_and_one_that_raises_blocks() -> None:
    """As the call would be."""
    assert monitor(mappers={"n": lambda call: "deploy"}).resolve("x")["n"] == "gated"
    assert monitor(mappers={"n": lambda call: "ls"}).resolve("x")["n"] == "free"
    assert monitor(mappers={"n": lambda call: 3}).resolve("x")["n"] == "blocked"


@pytest.mark.parametrize(("tool", "input"), [(3, None), (None, {}), ("bash", "git push"), ("bash", [])])
def test_what_is_no_call_is_an_error(tool: Any, input: Any) -> None:
    """It says what was wrong."""
    with pytest.raises(ValueError, match="not a tool's name and an input"):
        monitor().resolve(tool, input)
