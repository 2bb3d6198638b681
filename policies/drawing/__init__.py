"""A policy as a picture: how calls must follow each other, the nets, and where a session stands in them.

Rows, each importing only those above it:
    picture      what is drawn: nodes, edges, sections
    standing     where a session stands
    order        rules about order -> nodes and edges
    nets         a net -> nodes and edges
    drawn        a policy -> a picture
    mermaid      a picture -> Mermaid text
"""

from .draw import draw
from .mermaid import draw_mermaid
from .picture import Edge, Node, Picture, Section

__all__ = ["Edge", "Node", "Picture", "Section", "draw", "draw_mermaid"]
