"""Policies as SVG pictures."""

from .svg import draw_svg

__all__ = ["draw_svg"]
ROOMS = (
    "svg",
    "layout",
)
"""Top first: each imports only those below it."""
