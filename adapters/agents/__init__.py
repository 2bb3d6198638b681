"""The agents, one folder each."""

ROOMS = (
    "catalog",
    "acp",
    "amp",
    "claude",
    "codex",
    "fallback",
    "langchain",
    "openai_agents",
    "pydantic_ai",
    "replay",
    "scripted",
    "shell",
    "loop",
)
"""Top first: each imports only those below it."""
