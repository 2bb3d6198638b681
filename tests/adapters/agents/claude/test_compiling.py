"""A policy as Claude Code's launch options: never weaker than the caller's own options."""

import sys
from typing import Any

import pytest

from proctor.adapters.agents.claude.adapter import ClaudeAdapter
from proctor.adapters.agents.claude.launch import MAX_OUTPUT
from proctor.policies import merge_policies, parse_policies
from proctor.supervisor import LaunchOptions, ProviderUnavailableError, UsageError


def compiled(*policies: dict[str, Any], **own: Any) -> LaunchOptions:
    parsed = [policy for text in policies for policy in parse_policies({"name": "p", **text})]
    return ClaudeAdapter(own).compile(merge_policies(parsed))


def test_denied_tools_are_removed_by_the_clients_own_names() -> None:
    """Case-insensitively; aliases, portable and old names and patterns are resolved as far as they are known."""
    options = compiled(
        {
            "tool_rules": [{"deny": ["bash", "web*", "Task", "Shells", "mcp__*"]}],
            "aliases": {"shells": ["KillShell", "BashOutput"]},
        },
        disallowed_tools=["Read"],
    )

    assert options.options["disallowed_tools"] == [
        "Read", "Bash", "PowerShell", "WebFetch", "WebSearch", "Agent", "CronCreate", "RemoteTrigger", "Workflow",
        "TaskStop", "TaskOutput",
    ]  # fmt: skip
    assert options.expressed == ("deny bash", "deny web*", "deny Task", "deny Shells")
    assert options.unexpressed == ("deny mcp__*",)


@pytest.mark.parametrize("rule", [
    {"deny": [{"tool": "Bash", "where": [{"path": "$.command", "regex": "rm"}]}]},
    {"deny": ["Bash"], "when": [{"path": "$.tenant", "equals": "a"}]},
    {"deny": ["Bash"], "action": "warn"},
    {"deny": ["Bash"], "action": "request_approval"},
    {"deny": ["push"]},
])  # fmt: skip
def test_rules_on_inputs_and_rules_that_do_not_deny_stay_with_the_gate(rule: dict[str, Any]) -> None:
    """Nothing is removed, and the clause is listed as not expressed."""
    push = {"tool": "Bash", "path": "$.command", "match": "git push", "as": "push"}
    options = compiled({"tool_rules": [rule], "virtual_tools": [push]})

    assert "disallowed_tools" not in options.options
    assert len(options.unexpressed) == 1


def test_allow_lists_narrow_the_callers_tools_and_never_add_any() -> None:
    """They are intersected with each other and with the caller's tools."""
    first = {"tool_rules": [{"allow": ["bash", "read", "grep"]}]}
    second = {"tool_rules": [{"allow": ["READ", "Bash"]}]}

    assert compiled(first, second).options["tools"] == ["Bash", "LSP", "PowerShell", "Read", "SendUserFile"]
    assert compiled(first, second, tools=["Read", "Write"]).options["tools"] == ["Read"]
    assert compiled({"tool_rules": [{"allow": ["*"]}]}).options.get("tools") is None
    assert compiled(first, mcp_servers={"x": {}}).unexpressed == ("allow bash", "allow read", "allow grep")


def test_the_clients_limits_are_the_lower_of_the_policys_and_the_callers() -> None:
    """Only limits that cancel are passed on, since the client can only stop."""
    policy = {"limits": {"max_turns": 5, "max_cost_usd": 2, "max_output_tokens": 900, "max_tool_calls": 3}}
    tight = {"max_turns": 3, "max_budget_usd": 0.5, "env": {"CLAUDE_CODE_MAX_OUTPUT_TOKENS": "100"}}
    loose = {"max_turns": 9, "max_budget_usd": 50, "env": {"CLAUDE_CODE_MAX_OUTPUT_TOKENS": "10000"}}

    def caps(options: LaunchOptions) -> tuple[Any, ...]:
        values = options.options
        env = values["env"]["CLAUDE_CODE_MAX_OUTPUT_TOKENS"]
        return values["max_turns"], values["max_budget_usd"], env

    assert caps(compiled(policy, **tight)) == (3, 0.5, "100")
    assert caps(compiled(policy, **loose)) == (5, 2, "900")
    assert compiled(policy).unexpressed == ("max_tool_calls",)
    for action in ("warn", "deny", "request_approval"):
        weaker = {"limits": {"max_turns": {"max": 5, "action": action}}}
        assert compiled(weaker).unexpressed == ("max_turns",)


def test_the_output_limit_of_a_response_is_the_lower_of_both_token_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A response may have at most the run's amount. The limit on all tokens stays with the gate."""
    monkeypatch.delenv(MAX_OUTPUT, raising=False)

    def cap(limits: dict[str, Any], own: str = "") -> str | None:
        options = compiled({"limits": limits}, env={MAX_OUTPUT: own} if own else {})
        assert "max_total_tokens" not in options.expressed
        found: str | None = options.options.get("env", {}).get(MAX_OUTPUT)
        return found

    assert cap({"max_total_tokens": 700}) == "700"
    assert cap({"max_total_tokens": 700, "max_output_tokens": 900}) == "700"
    assert cap({"max_total_tokens": 900, "max_output_tokens": 700}) == "700"
    assert cap({"max_total_tokens": 900}, own="300") == "300"
    assert cap({"max_total_tokens": 40_000}) is None, "the client asks some models for less by itself"
    assert cap({"max_total_tokens": 40_000}, own="50000") == "40000"
    assert cap({"max_total_tokens": {"max": 700, "action": "warn"}}) is None
    assert cap({"max_total_tokens": {"max": 700, "scope": "session"}}) is None
    assert cap({"max_total_tokens": 0}) is None
    monkeypatch.setenv(MAX_OUTPUT, "300")
    assert cap({"max_total_tokens": 900}) == "300", "the client inherits the caller's environment"


def test_a_pending_call_may_wait_longer_than_its_approval() -> None:
    """The client's timeout is later than proctor's, even if that is very long."""
    assert compiled({}).options["hook_timeout_s"] > 900
    assert compiled({"approval": {"timeout_s": 5000}}).options["hook_timeout_s"] > 5000
    assert compiled({"approval": {"timeout_s": 1e9}}).options["hook_timeout_s"] * 1000 < 2**31


def test_the_tools_that_the_caller_named_are_known() -> None:
    """The client lists its subagent tool under another name than that of its calls."""
    adapter = ClaudeAdapter(tools=["Task", "Read"], model="m")

    assert adapter.capabilities.offered == ("Agent", "Read")
    assert adapter.capabilities.model == "m"
    assert ClaudeAdapter().capabilities.offered is None


@pytest.mark.anyio
async def test_without_the_sdk_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Importing and compiling work; only starting needs the client."""
    monkeypatch.setitem(sys.modules, "claude_agent_sdk", None)

    with pytest.raises(ProviderUnavailableError, match=r"pip install '\.\[claude\]'"):
        await ClaudeAdapter().prepare()


@pytest.mark.parametrize("twice", [{"model": "m"}, {"tools": ["Read"]}, {"cwd": "."}])
def test_an_option_given_twice_is_an_error(twice: dict[str, Any]) -> None:
    """In any form of the options."""
    sdk = pytest.importorskip("claude_agent_sdk", reason="needs Claude Code: pip install '.[claude]'")

    for options in (twice, sdk.ClaudeAgentOptions(**twice)):
        with pytest.raises(UsageError, match=f"`{next(iter(twice))}` is given twice"):
            ClaudeAdapter(options, **twice)
