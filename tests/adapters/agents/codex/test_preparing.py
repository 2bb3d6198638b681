"""What is checked, and compiled, before the client starts."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from proctor.adapters.agents.codex.adapter import CodexAdapter
from proctor.adapters.matrix import settled
from proctor.policies.events.run_context import Capabilities
from proctor.policies.language.conditions import Condition
from proctor.policies.language.selectors import ToolWhere
from proctor.policies.limits import Limits
from proctor.policies.policy import Allow, Deny, Policy
from proctor.supervisor.errors import ProviderUnavailableError, UsageError


@pytest.mark.anyio
@pytest.mark.codex
async def test_a_client_that_works_is_accepted_and_one_that_is_not_logged_in_is_not(
    bench: Any, tmp_path: Path
) -> None:
    """Nothing is left of the check; the error says what to do."""
    await bench.adapter().prepare()
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "CODEX_HOME": str(tmp_path)}
    with pytest.raises(ProviderUnavailableError, match="codex is not logged in; run `codex login`"):
        await CodexAdapter(cwd=tmp_path, env=env).prepare()

    assert bench.api.requests == []


@pytest.mark.anyio
async def test_without_a_client_that_works_the_error_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An executable that is not there, one that ends at once, neither the package nor an executable on PATH."""
    monkeypatch.setitem(sys.modules, "codex_cli_bin", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    cases: list[tuple[Any, str]] = [
        (tmp_path / "codex", r"pip install '\.\[codex\]'"),
        ("/bin/false", "codex does not work: codex ended before it answered"),
        (None, r"codex is not installed.*pip install '\.\[codex\]'"),
    ]
    for program, says in cases:
        with pytest.raises(ProviderUnavailableError, match=says):
            await CodexAdapter(codex_path=program, cwd=tmp_path, env={"HOME": str(tmp_path)}).prepare()


def test_a_sandbox_the_client_does_not_have_or_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where what is stopped is run again outside, `read-only` would be the loosest of all."""
    with pytest.raises(UsageError, match="sandbox `none` is not one of read-only, workspace-write, danger"):
        CodexAdapter(sandbox="none")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="sandbox `read-only` is not held on Windows, nor with `allow_escalation`"):
        CodexAdapter(sandbox="read-only", allow_escalation=True)
    monkeypatch.setattr("sys.platform", "win32")
    with pytest.raises(UsageError, match="`read-only` is not held"):
        CodexAdapter(sandbox="read-only")


@pytest.mark.parametrize("value", [None, float("nan"), {"a": object()}])
def test_configuration_the_client_cannot_hold_is_refused(value: object) -> None:
    """The message names the key."""
    with pytest.raises(UsageError, match="config `x"):
        CodexAdapter(config={"x": value})


def test_it_gates_all_unless_settings_go_round_the_gate(tmp_path: Path) -> None:
    """Each way round is named."""
    env = {"CODEX_HOME": str(tmp_path / "home"), "HOME": str(tmp_path)}
    plain = CodexAdapter(cwd=tmp_path, env=env, model="m")
    loose = CodexAdapter(
        cwd=tmp_path,
        env=env,
        features={"multi_agent": True},
        config={"web_search": "live", "mcp_servers.s": {}},
    )

    assert settled(plain.capabilities) == Capabilities(
        gate="all", usage="per_turn", cancel_kills_children=True, resume=True, compiles=("deny",)
    )
    assert plain.capabilities.model == "m"
    assert loose.capabilities.gate == "some"
    assert loose.ungated == [
        "agents are started without asking",
        "the provider searches the web without asking",
        "resources of MCP servers are read without asking",
    ]


@pytest.mark.parametrize(
    ("text", "gate"),
    [
        (
            'prefix_rule(pattern=["a"], decision="forbidden")\nprefix_rule(pattern=["b"], decision="prompt")',
            "all",
        ),
        ('prefix_rule(pattern=["git"])', "some"),
    ],
)
def test_a_rule_permits_unless_it_says_otherwise(tmp_path: Path, text: str, gate: str) -> None:
    """Rules of a project that is trusted count as those of the user do; those of another are not read."""
    rules = tmp_path / ".codex" / "rules"
    rules.mkdir(parents=True)
    (rules / "project.rules").write_text(text)
    (tmp_path / "sub").mkdir()
    env = {"HOME": str(tmp_path / "home")}
    trusting = CodexAdapter(cwd=tmp_path / "sub", env=env, trust_workspace=True)
    untrusting = CodexAdapter(cwd=tmp_path / "sub", env=env)

    assert any("lets commands run" in why for why in trusting.ungated) == (gate == "some")
    assert (trusting.capabilities.gate, untrusting.capabilities.gate) == ("some", "all")


def test_a_policy_takes_away_the_tools_the_client_can_start_without() -> None:
    """What has no option is listed; what only warns takes nothing away."""
    policy = Policy(
        name="p",
        limits=Limits(max_total_tokens=10),
        tool_rules=(
            Deny(("SHELL", "apply_patch", "mcp__a__*", "mcp__b__drop", "mcp__*__drop")),
            Deny(("view_image",), action="warn"),
            Deny((ToolWhere(tool="web_search", where=(Condition(path="$.query", contains="x"),)),)),
        ),
    )
    compiled = CodexAdapter().compile(policy)

    assert compiled.options == {
        "features": {"shell_tool": False}, "config": {}, "denied": ["mcp__a__*", "mcp__b__drop"],
    }  # fmt: skip
    assert compiled.expressed == ("deny SHELL", "deny mcp__a__*", "deny mcp__b__drop")
    assert compiled.unexpressed == (
        "max_total_tokens",
        "deny apply_patch",
        "deny mcp__*__drop",
        "deny view_image",
        "deny web_search where",
    )


def test_an_allow_list_takes_away_what_it_does_not_name() -> None:
    """Aliases of the policy count as what they stand for."""
    policy = Policy(name="p", tool_rules=(Allow(("run", "apply_patch")),), aliases={"run": ("shell",)})
    compiled = CodexAdapter().compile(policy)

    assert compiled.options["features"] == {"multi_agent": False, "multi_agent_v2": False, "view_image": False}
    assert compiled.options["config"] == {"web_search": "disabled"}
    assert compiled.unexpressed == ("allow run", "allow apply_patch")
