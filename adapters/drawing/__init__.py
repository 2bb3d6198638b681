"""Policies as SVG pictures."""

from .svg import draw_svg

__all__ = ["draw_svg"]

ROOMS = (
    "svg",  # A picture as an SVG document
    "shapes",  # how each thing of a picture looks, as SVG elements
    "layout",  # where the nodes and arrows of a section stand
)
"""Top first: each imports only those below it."""
