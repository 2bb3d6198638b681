"""Any agent that speaks the Agent Client Protocol (ACP), driven over its standard input and output."""

from .adapter import AcpAdapter
from .known_agents import AgentTraits

__all__ = ["AcpAdapter", "AgentTraits"]

ROOMS = (
    "adapter",  # AcpAdapter: what it can do, how it starts
    "opening",  # greeting the agent, taking up a session, its model and mode
    "probe",  # finds out what an agent asks before it acts
    "session",  # one prompt: gate answers, events, the cancel ladder
    "connection",  # the conversation with the agent
    "known_agents",  # what is known of an agent before it is started
    "permissions",  # an agent's question and its options -> the answer that is chosen
    "ungated_calls",  # calls that run though no question comes for them
    "translation",  # what an agent reports -> events
    "calls",  # an agent's tool calls -> tool names, inputs and outcomes
    "usage",  # what an agent says it used -> usage events
)
"""Top first: each imports only those below it."""
