"""Nodes to YAML as a person would write it: clauses as blocks, short values on one line."""

from __future__ import annotations

from collections.abc import Iterator

import yaml

from ..formats.scalars import resolve
from ..tree import ListNode, MapNode, Node, Scalar, children
from .comments import Comments

_WIDTH = 100
_BLOCKS = ("policies", "tool_rules", "rules", "nets", "virtual_tools")


def to_yaml(root: MapNode, comments: Comments) -> str:
    """The YAML text of a tree, comments included."""
    lines = [*comments.heading, *_map_lines(root, 0, comments), *comments.left()]
    return "\n".join(lines) + "\n"


def lines_of(node: Node) -> set[int]:
    """The source lines that the parts of a tree stand on."""
    found: set[int] = set()
    waiting = [node]
    while waiting:
        part = waiting.pop()
        found.add(part.span.line)
        if isinstance(part, MapNode):
            found.update(part.key_span(key).line for key in part.entries)
        waiting += [child for _, child in children(part)]
    return found - {0}


def _map_lines(node: MapNode, indent: int, comments: Comments) -> Iterator[str]:
    pad = " " * indent
    for key, child in node.entries.items():
        yield from _entry(f"{pad}{_scalar(key)}:", key, child, node.key_span(key).line, indent, comments)


def _entry(head: str, key: str, child: Node, line: int, indent: int, comments: Comments) -> Iterator[str]:
    pad = " " * indent
    short = f"{head} {_flow(child)}"
    if key not in _BLOCKS and (len(short) <= _WIDTH or isinstance(child, Scalar)):
        yield from (pad + text for text in comments.above({line} | lines_of(child)))
        yield short + comments.beside(line)
        return
    if not children(child):
        yield short
        return
    yield from (pad + text for text in comments.above([line]))
    yield head + comments.beside(line)
    if isinstance(child, MapNode):
        yield from _map_lines(child, indent + 2, comments)
    elif isinstance(child, ListNode):
        for item in child.items:
            yield from _item(item, indent + 2, comments, block=key in _BLOCKS)


def _item(item: Node, indent: int, comments: Comments, *, block: bool) -> Iterator[str]:
    pad = " " * indent
    flow = f"{pad}- {_flow(item)}"
    alone = isinstance(item, MapNode) and len(item.entries) == 1
    if isinstance(item, Scalar | ListNode) or not item.entries or (not block and len(flow) <= _WIDTH):
        yield from (pad + text for text in comments.above(lines_of(item)))
        yield flow + comments.beside(item.span.line)
        return
    if alone and len(flow) <= _WIDTH + 2:
        yield from (pad + text for text in comments.above(lines_of(item)))
        yield f"{pad}- {flow[len(pad) + 3 : -1]}" + comments.beside(item.span.line)
        return
    yield from (pad + text for text in comments.above([item.span.line]))
    marked = False
    for line in _map_lines(item, indent + 2, comments):
        if not marked and not line.lstrip().startswith("#"):
            yield f"{pad}- {line[indent + 2 :]}"
            marked = True
        else:
            yield line if marked else line[2:]


def _flow(node: Node) -> str:
    if isinstance(node, MapNode):
        return "{" + ", ".join(f"{_scalar(key)}: {_flow(value)}" for key, value in node.entries.items()) + "}"
    if isinstance(node, ListNode):
        return "[" + ", ".join(_flow(item) for item in node.items) + "]"
    return _scalar(node.value)


def _scalar(value: object) -> str:
    """A scalar that reads back as itself, in a block and between brackets alike."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        return repr(value)
    style = None if value.isprintable() else '"'
    text: str = yaml.safe_dump([value], width=2**31, default_flow_style=True, allow_unicode=True, default_style=style)
    text = text.strip()[1:-1]
    if text == value and not isinstance(resolve(value), str):
        return f"'{value}'"
    doubled = text.startswith("'") and "'" in value and not set(value) & {'"', "\\"}
    return f'"{value}"' if doubled else text
