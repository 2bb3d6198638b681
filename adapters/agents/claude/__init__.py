"""Claude Code, through claude-agent-sdk: each file imports only those above it.

names          the client's own tool names, and which of them a pattern means
compiling      a policy as launch options
credentials    whether the client could sign in
meter          the client's running totals as usage events
calls          what is known of each tool call
translation    the client's records as events
wire           what the SDK does not show: raw records, live totals
failures       the SDK's exceptions as ours
hook           the client's question before each call, answered by the gate
launching      the caller's options, tightened, as the SDK takes them
session        one running client
adapter        ClaudeAdapter
"""

from .adapter import ClaudeAdapter

__all__ = ["ClaudeAdapter"]
