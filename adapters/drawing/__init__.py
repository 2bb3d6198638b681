"""Policies as SVG pictures. Rows: layout, shapes, svg."""

from .svg import draw_svg

__all__ = ["draw_svg"]
