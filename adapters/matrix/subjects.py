"""The adapters of the matrix by name: what each needs."""

from __future__ import annotations

import msgspec


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """One adapter, or an agent that one runs.

    `modules` must all be importable, one of `programs` must be on PATH; `install` says how to get them.
    `acp` is the executable of an agent that speaks the Agent Client Protocol.
    """

    name: str
    about: str
    modules: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    install: str = ""
    acp: str | None = None


SUBJECTS: tuple[Subject, ...] = (
    Subject(
        name="claude",
        about="Claude Code",
        modules=("claude_agent_sdk",),
        install="pip install 'proctor[claude]'",
    ),
    Subject(
        name="codex",
        about="Codex",
        modules=("codex_cli_bin",),
        programs=("codex",),
        install="pip install 'proctor[codex]'",
    ),
    Subject(name="amp", about="Amp", programs=("amp",), install="npm install -g @sourcegraph/amp"),
    Subject(
        name="acp: opencode",
        about="opencode over ACP",
        programs=("opencode",),
        install="npm install -g opencode-ai",
        acp="opencode",
    ),
    Subject(
        name="acp: gemini",
        about="Gemini CLI over ACP",
        programs=("gemini",),
        install="npm install -g @google/gemini-cli",
        acp="gemini",
    ),
    Subject(
        name="acp: claude-agent-acp",
        about="Claude Code over ACP",
        programs=("claude-agent-acp",),
        install="npm install -g @agentclientprotocol/claude-agent-acp",
        acp="claude-agent-acp",
    ),
    Subject(
        name="acp: codex-acp",
        about="Codex over ACP",
        programs=("codex-acp",),
        install="npm install -g @agentclientprotocol/codex-acp",
        acp="codex-acp",
    ),
    Subject(name="acp", about="any other ACP agent", acp="agent"),
    Subject(
        name="pydantic-ai",
        about="agents of pydantic-ai",
        modules=("pydantic_ai",),
        install="pip install 'proctor[pydantic-ai]'",
    ),
    Subject(
        name="openai-agents",
        about="agents of the OpenAI Agents SDK",
        modules=("agents",),
        install="pip install 'proctor[openai-agents]'",
    ),
    Subject(name="function", about="your own agent loop"),
    Subject(name="shell", about="bash command lines", programs=("bash",), install="install bash"),
    Subject(name="scripted", about="scripts"),
    Subject(name="replay", about="recorded sessions"),
)
"""In the order of the table."""
