"""The launch options that a policy becomes for a client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from proctor.adapters import AmpAdapter, ClaudeAdapter, CodexAdapter
from proctor.adapters.agents.amp import adapter as amp
from proctor.adapters.agents.claude import launch as claude
from proctor.adapters.agents.codex import adapter as codex
from proctor.adapters.agents.openai_agents import adapter as openai_agents
from proctor.adapters.agents.pydantic_ai import adapter as pydantic_ai
from proctor.adapters.kit import run_limits
from proctor.adapters.kit.launch_options import limit_options
from proctor.adapters.mcp_proxy.adapter import McpProxyAdapter
from proctor.policies import Policy, ToolCall, compile_policy, merge_policies, parse_policies
from proctor.supervisor import Adapter, LaunchOptions


def stack_of(*policies: dict[str, Any]) -> Policy:
    return merge_policies(
        [each for n, text in enumerate(policies) for each in parse_policies({"name": f"p{n}", **text})]
    )


COMPILE: dict[str, Callable[[Policy], LaunchOptions]] = {
    "claude": lambda policy: claude.compile_options(policy, {}),
    "codex": codex.compile_options,
    "amp": amp.compile_options,
    "openai_agents": lambda policy: limit_options(policy, openai_agents.OpenAIAgentsAdapter.limits),
    "pydantic_ai": lambda policy: limit_options(policy, pydantic_ai.LIMITS),
}


def has_a_shell(options: LaunchOptions) -> bool:
    """Whether the client starts with its shell."""
    given = options.options
    taken = given.get("disallowed_tools", ()), given.get("rejected", ())
    narrowed = "tools" in given and "Bash" not in given["tools"]
    without = given.get("features", {}).get("shell_tool") is False
    return not (narrowed or without or any({"Bash", "shell_command"} & set(names) for names in taken))


SHELL = ["Bash", "bash"]


@pytest.mark.parametrize("name", ["claude", "codex", "amp"])
def test_aliases_are_resolved_as_by_the_gate(name: str) -> None:
    """In any case, and through other aliases. A tool that an allow list allows by an alias is not removed, one that
    an entry denies is, and only that is reported as enforced by the client.
    """
    for aliases in (
        {"Reader": SHELL},
        {"Reader": ["commands"], "Commands": SHELL},
        {"READER": ["a"], "A": ["B"], "b": SHELL},
    ):
        allowing = stack_of({"tool_rules": [{"allow": ["reader"]}], "aliases": aliases})
        denying = COMPILE[name](stack_of({"tool_rules": [{"deny": ["reader", "other_thing"]}], "aliases": aliases}))

        assert compile_policy(allowing).monitor().propose(ToolCall(id="c", name="Bash")).action == "allow"
        assert has_a_shell(COMPILE[name](allowing))
        assert not has_a_shell(denying)
        assert "deny reader" in denying.expressed


@pytest.mark.parametrize("name", ["claude", "codex", "amp"])
@pytest.mark.parametrize(("policies", "taken"), [
    ([{"tool_rules": [{"deny": SHELL, "action": "warn"}]}], False),
    ([{"tool_rules": [{"deny": SHELL}], "on_violation": "request_approval"}], False),
    ([{"tool_rules": [{"deny": SHELL}], "on_violation": "warn"}, {"on_violation": "deny"}], True),
    ([{"tool_rules": [{"deny": SHELL, "when": [{"path": "$.tenant", "equals": "a"}]}]}], False),
])  # fmt: skip
def test_a_tool_is_removed_if_the_stack_denies_its_calls_in_every_run(
    name: str, policies: list[dict[str, Any]], taken: bool
) -> None:
    """The action is that of the clause in the stack."""
    assert has_a_shell(COMPILE[name](stack_of(*policies))) is not taken


@pytest.mark.parametrize("name", ["claude", "openai_agents", "pydantic_ai"])
def test_a_session_limit_is_not_passed_to_a_client_that_counts_runs(name: str) -> None:
    """A client counts from 0 in each run, so every run of the session could use the whole."""
    limits = {"max_turns": {"max": 5, "scope": "session"}, "max_output_tokens": {"max": 9, "scope": "session"}}
    options = COMPILE[name](stack_of({"limits": limits}))

    assert not {"max_turns", "request_limit", "output_tokens_limit", "env"} & set(options.options)
    assert options.expressed == ()


@pytest.mark.parametrize("name", ["claude", "openai_agents", "pydantic_ai"])
def test_the_lowest_of_several_limits_that_end_a_run_is_passed_to_the_client(name: str) -> None:
    """A weaker one beside it stays with the supervisor, so the clause counts as not enforced by the client."""
    locked = {"locked": True, "limits": {"max_turns": {"max": 5, "action": "warn"}}}
    both = COMPILE[name](stack_of(locked, {"limits": {"max_turns": 7}}))
    alone = COMPILE[name](stack_of({"limits": {"max_turns": 7}}))

    assert [
        {**options.options}.get("max_turns", options.options.get("request_limit")) for options in (both, alone)
    ] == [7, 7]
    assert (both.expressed, alone.expressed) == ((), ("max_turns",))


def test_the_limits_of_a_run_are_the_lowest_of_each_kind() -> None:
    """A limit with more conditions is passed on, and not reported as enforced."""
    stack = stack_of(
        {"locked": True, "limits": {"max_turns": 9, "max_cost_usd": {"max": 3, "scope": "session"}}},
        {"limits": {"max_turns": 4, "max_cost_usd": 2, "max_idle_ms": {"max": 5, "action": "warn"}}},
    )

    assert run_limits(stack) == ({"max_turns": 4.0, "max_cost_usd": 2.0}, frozenset({"max_turns"}))


NOWHERE: Any = None


@pytest.mark.parametrize(
    "adapter", [ClaudeAdapter({}), CodexAdapter(), AmpAdapter(), McpProxyAdapter(NOWHERE, NOWHERE, warn=print)]
)
def test_compiling_does_not_change_the_adapter(adapter: Adapter) -> None:
    """The plan for one policy is unchanged when another policy is compiled."""
    strict = stack_of({"tool_rules": [{"deny": SHELL}], "limits": {"max_turns": 3}})
    before = dict(vars(adapter))
    first = adapter.compile(strict)
    adapter.compile(stack_of({"tool_rules": [{"allow": ["Read"]}]}))

    assert (adapter.compile(strict), vars(adapter)) == (first, before)
