"""Any agent that speaks the Agent Client Protocol (ACP), driven over its standard input and output.

A file imports only files listed above it.

    traits          what is known of an agent before it is started
    calls           an agent's tool calls -> tool names, inputs and outcomes
    usage           what an agent says it used -> usage events
    translation     what an agent reports -> events
    unasked         calls that run though no question comes for them
    permissions     an agent's question and its options -> the answer that is chosen
    connection      the conversation with the agent
    opening         greeting the agent, taking up a session, its model and mode
    session         one prompt: gate answers, events, the cancel ladder
    adapter         AcpAdapter: what it can do, how it starts
    probe           finds out what an agent asks before it acts
"""

from .adapter import AcpAdapter
from .known_agents import AgentTraits

__all__ = ["AcpAdapter", "AgentTraits"]
