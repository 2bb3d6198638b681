"""The adapters of the matrix by name: what each needs."""

from __future__ import annotations

import msgspec


class Subject(msgspec.Struct, frozen=True):
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


def _extra(name: str, about: str, module: str, *programs: str) -> Subject:
    """What an extra of this package installs, or one of the programs brings."""
    return Subject(name, about, f"pip install 'proctor[{name}]'", (module,), programs)


def _agent(program: str, about: str, package: str) -> Subject:
    """An agent that npm installs, run by the adapter for the Agent Client Protocol."""
    return Subject(f"acp: {program}", about, f"npm install -g {package}", (), (program,), program)


SUBJECTS: tuple[Subject, ...] = (
    _extra("claude", "Claude Code", "claude_agent_sdk"),
    _extra("codex", "Codex", "codex_cli_bin", "codex"),
    Subject("amp", "Amp", "npm install -g @sourcegraph/amp", (), ("amp",)),
    _agent("opencode", "opencode over ACP", "opencode-ai"),
    _agent("gemini", "Gemini CLI over ACP", "@google/gemini-cli"),
    _agent("claude-agent-acp", "Claude Code over ACP", "@agentclientprotocol/claude-agent-acp"),
    _agent("codex-acp", "Codex over ACP", "@agentclientprotocol/codex-acp"),
    Subject("acp", "any other ACP agent"),
    _extra("pydantic-ai", "agents of pydantic-ai", "pydantic_ai"),
    _extra("openai-agents", "agents of the OpenAI Agents SDK", "agents"),
    Subject("function", "your own agent loop"),
    Subject("shell", "bash command lines", "install bash", (), ("bash",)),
    Subject("scripted", "scripts"),
    Subject("replay", "recorded sessions"),
    Subject("mcp", "any MCP server, behind `proctor mcp`", "pip install 'proctor[mcp]'", ("mcp",)),
    Subject(
        "hook",
        "a person's own Claude Code, by `proctor hook`",
        "npm install -g @anthropic-ai/claude-code",
        (),
        ("claude",),
    ),
)
"""In the order of the table."""
