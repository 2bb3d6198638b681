"""Any agent that speaks the Agent Client Protocol (ACP), driven over its standard input and output."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proctor.supervisor import lazily

if TYPE_CHECKING:
    from .adapter import AcpAdapter
    from .connection import AgentTraits

__all__ = ["AcpAdapter", "AgentTraits"]
__getattr__, __dir__ = lazily(__name__, {"adapter": "AcpAdapter", "connection": "AgentTraits"})
ROOMS = (
    "adapter",
    "probe",
    "session",
    "connection",
    "translation",
)
"""Top first: each imports only those below it."""
