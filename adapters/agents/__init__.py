"""The agents, one folder each."""

ROOMS = (
    "registry",  # adapters by the names the command line knows them by
    "fallback",  # FallbackAdapter: several adapters as one
    "acp",  # AcpAdapter: any agent that speaks the Agent Client Protocol
    "amp",  # AmpAdapter: the Amp client
    "claude",  # ClaudeAdapter: Claude Code
    "codex",  # CodexAdapter: the Codex client
    "langchain",  # agents of langchain and langgraph under supervise
    "openai_agents",  # OpenAIAgentsAdapter: agents of the OpenAI Agents SDK
    "pydantic_ai",  # PydanticAIAdapter: agents of pydantic-ai
    "loop",  # FunctionAdapter and supervise: anybody's own agent loop
    "replay",  # ReplayAdapter: a recorded stream as a run
    "scripted",  # ScriptedAdapter
    "shell",  # ShellAdapter
)
"""Top first: each imports only those below it."""
