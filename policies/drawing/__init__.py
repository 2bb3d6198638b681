"""A policy as a picture: how calls must follow each other, the nets, and where a session stands in them."""

from .draw import draw
from .mermaid import draw_mermaid
from .picture import Edge, GraphNode, Picture, Section

__all__ = ["Edge", "GraphNode", "Picture", "Section", "draw", "draw_mermaid"]

ROOMS = (
    "mermaid",  # a picture -> Mermaid text
    "draw",  # a policy -> a picture
    "nets",  # a net -> nodes and edges
    "order",  # rules about order -> nodes and edges
    "marking",  # where a session stands
    "picture",  # what is drawn: nodes, edges, sections
)
