"""What hooks in a person's own Claude Code can do: no adapter runs it that would say so."""

from __future__ import annotations

from typing import Final

from proctor.policies.stream.calls import Capabilities

HOOKED: Final = Capabilities(gate="all", usage="per_turn")
"""The client is the person's: nothing of it is started, resumed, narrowed or ended from here."""
