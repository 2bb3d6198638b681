"""Agents of pydantic-ai: each file imports only those above it.

compiling    a policy as UsageLimits
history      a session's events as message history
meter        what the framework counted, as usage events
responses    a model's response as events
hooks        the capability that gates calls and reports a run
sub_agents   the calls of agents that a tool runs
session      one running agent
adapter      PydanticAIAdapter
"""

from .adapter import PydanticAIAdapter

__all__ = ["PydanticAIAdapter"]
