"""The Amp client, driven through its stream of JSON, its calls held by its own permission rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proctor.supervisor import lazily

if TYPE_CHECKING:
    from .adapter import AmpAdapter

__all__ = ["AmpAdapter"]
__getattr__, __dir__ = lazily(__name__, {"adapter": "AmpAdapter"})
ROOMS = (
    "adapter",
    "delegate",
    "translation",
)
"""Top first: each imports only those below it."""
