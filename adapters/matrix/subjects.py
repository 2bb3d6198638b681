"""The adapters of the matrix by name: what each needs."""

from __future__ import annotations

import msgspec


class AdapterSubject(msgspec.Struct, frozen=True):
    """One adapter, or an agent that one runs.

    `modules` must all be importable, one of `programs` must be on PATH (where there are both, either will do);
    `install` says how to get them. `acp` is the executable of an agent that speaks the Agent Client Protocol.
    """

    name: str
    about: str
    install: str = ""
    modules: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    acp: str | None = None


def _extra(name: str, about: str, module: str, *programs: str) -> AdapterSubject:
    """What an extra of this package installs, or one of the programs brings."""
    return AdapterSubject(name, about, f"pip install '.[{name}]'", (module,), programs)


def _agent(program: str, about: str, package: str) -> AdapterSubject:
    """An agent that npm installs, run by the adapter for the Agent Client Protocol."""
    return AdapterSubject(f"acp: {program}", about, f"npm install -g {package}", (), (program,), program)


SUBJECTS: tuple[AdapterSubject, ...] = (
    _extra("claude", "Claude Code", "claude_agent_sdk"),
    _extra("codex", "Codex", "codex_cli_bin", "codex"),
    AdapterSubject("amp", "Amp", "npm install -g @sourcegraph/amp", (), ("amp",)),
    _agent("opencode", "opencode over ACP", "opencode-ai"),
    _agent("gemini", "Gemini CLI over ACP", "@google/gemini-cli"),
    _agent("claude-agent-acp", "Claude Code over ACP", "@agentclientprotocol/claude-agent-acp"),
    _agent("codex-acp", "Codex over ACP", "@agentclientprotocol/codex-acp"),
    AdapterSubject("acp", "any other ACP agent"),
    _extra("pydantic-ai", "agents of pydantic-ai", "pydantic_ai"),
    _extra("openai-agents", "agents of the OpenAI Agents SDK", "agents"),
    AdapterSubject("function", "your own agent loop"),
    AdapterSubject("shell", "bash command lines", "install bash", (), ("bash",)),
    AdapterSubject("scripted", "scripts"),
    AdapterSubject("replay", "recorded sessions"),
    AdapterSubject("mcp", "any MCP server, behind `proctor mcp`", "pip install '.[mcp]'", ("mcp",)),
    AdapterSubject(
        "hook",
        "a person's own Claude Code, by `proctor hook`",
        "npm install -g @anthropic-ai/claude-code",
        (),
        ("claude",),
    ),
)
"""In the order of the table."""
