"""Every agent, in the order of the matrix; nothing of an agent is imported."""

from __future__ import annotations

from typing import Final, NamedTuple


class AgentSpec(NamedTuple):
    """One agent, for the catalog, the matrix, the command line and telemetry.

    Attributes:
        name: The agent's name, as in `--adapter`; `acp: NAME` for an agent that the ACP adapter runs.
        about: A description, for the matrix.
        adapter: Its adapter below this folder, `module:Class`; None for one that is not made by name.
        extra: The extra of this package that installs its dependencies.
        install: How to install its dependencies.
        modules: Modules that must be importable; or one of the programs, if it has any.
        programs: One of these must be on PATH.
        command: The executable of an agent that speaks the Agent Client Protocol.
        model_provider: The provider of its models, if they are all from one.
        first_run: The arguments after `--adapter` in the first command that `proctor init` shows; `{task}` is the
            prompt.
        probed: Whether `proctor adapters probe` can find out what it asks about.
        resumable: Whether an interrupted run can be continued; not if its prompt is no message to an agent.
    """

    name: str
    about: str
    adapter: str | None = None
    extra: str | None = None
    install: str = ""
    modules: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    command: str | None = None
    model_provider: str | None = None
    first_run: str | None = None
    probed: bool = False
    resumable: bool = True

    @property
    def short_name(self) -> str:
        """Its name without the protocol."""
        return self.name.removeprefix("acp: ")


SPECS: Final = (
    AgentSpec(
        name="claude",
        about="Claude Code",
        adapter="claude.adapter:ClaudeAdapter",
        extra="claude",
        install="pip install '.[claude]'",
        modules=("claude_agent_sdk",),
        model_provider="anthropic",
        first_run="claude {task}",
        probed=True,
    ),
    AgentSpec(
        name="codex",
        about="Codex",
        adapter="codex.adapter:CodexAdapter",
        extra="codex",
        install="pip install '.[codex]'",
        modules=("codex_cli_bin",),
        programs=("codex",),
        model_provider="openai",
        first_run="codex {task}",
        probed=True,
    ),
    AgentSpec(
        name="acp: opencode",
        about="opencode over ACP",
        install="npm install -g opencode-ai",
        programs=("opencode",),
        command="opencode",
        first_run="acp {task} -- opencode acp",
    ),
    AgentSpec(
        name="acp: gemini",
        about="Gemini CLI over ACP",
        install="npm install -g @google/gemini-cli",
        programs=("gemini",),
        command="gemini",
        first_run="acp {task} -- gemini --acp",
    ),
    AgentSpec(
        name="acp: claude-agent-acp",
        about="Claude Code over ACP",
        install="npm install -g @agentclientprotocol/claude-agent-acp",
        programs=("claude-agent-acp",),
        command="claude-agent-acp",
    ),
    AgentSpec(
        name="acp: codex-acp",
        about="Codex over ACP",
        install="npm install -g @agentclientprotocol/codex-acp",
        programs=("codex-acp",),
        command="codex-acp",
    ),
    AgentSpec(name="acp", about="any other ACP agent", adapter="acp.adapter:AcpAdapter", probed=True),
    AgentSpec(
        name="amp",
        about="Amp",
        adapter="amp.adapter:AmpAdapter",
        install="npm install -g @sourcegraph/amp",
        programs=("amp",),
        first_run="amp {task}",
        probed=True,
    ),
    AgentSpec(
        name="pydantic-ai",
        about="agents of pydantic-ai",
        adapter="pydantic_ai.adapter:PydanticAIAdapter",
        extra="pydantic-ai",
        install="pip install '.[pydantic-ai]'",
        modules=("pydantic_ai",),
    ),
    AgentSpec(
        name="openai-agents",
        about="agents of the OpenAI Agents SDK",
        adapter="openai_agents.adapter:OpenAIAgentsAdapter",
        extra="openai-agents",
        install="pip install '.[openai-agents]'",
        modules=("agents",),
        model_provider="openai",
    ),
    AgentSpec(name="function", about="your own agent loop", adapter="loop.adapter:FunctionAdapter"),
    AgentSpec(
        name="shell",
        about="bash command lines",
        adapter="shell:ShellAdapter",
        install="install bash",
        programs=("bash",),
        first_run='shell "make test"',
        resumable=False,
    ),
    AgentSpec(name="scripted", about="scripts", adapter="scripted.adapter:ScriptedAdapter"),
    AgentSpec(name="replay", about="recorded sessions", adapter="replay:ReplayAdapter", resumable=False),
)
