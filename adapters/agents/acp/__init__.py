"""Any agent that speaks the Agent Client Protocol (ACP), driven over its standard input and output."""

from .adapter import AcpAdapter
from .known_agents import AgentTraits

__all__ = ["AcpAdapter", "AgentTraits"]

ROOMS = (
    "adapter",
    "probe",
    "session",
    "connection",
    "known_agents",
    "translation",
)
"""Top first: each imports only those below it."""
