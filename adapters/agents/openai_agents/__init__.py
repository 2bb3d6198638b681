"""Agents of the OpenAI Agents SDK: each file imports only those above it.

compiling    a policy as options of a run
history      a session's events as input items
responses    a model's response as events
copies       agents whose tools ask first
reporting    the hooks that report a run
runs         the SDK's runner, for runs inside a supervised one
session      one running agent
adapter      OpenAIAgentsAdapter
"""

from .adapter import OpenAIAgentsAdapter

__all__ = ["OpenAIAgentsAdapter"]
