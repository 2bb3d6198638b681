"""Rewrites any accepted format and spelling as YAML of this language."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import yaml

from .load import parse_policies, policy_nodes
from .rewriting import with_durations
from .sources import SUFFIXES, read_json, read_source
from .tree import NOWHERE, ListNode, MapNode, Node, ProblemReport, Scalar, Unreadable, children
from .yaml_source import resolve


class _Comment(NamedTuple):
    line: int
    text: str
    alone: bool


class Comments:
    """The comments of a text, each written once.

    A comment on a line of its own belongs to the next line that is kept, one at the end of a line to that line.
    """

    def __init__(self, text: str, lines: Iterable[int]) -> None:
        numbers = sorted(set(lines))
        found = _comments(text)
        first = numbers[0] if numbers else 0
        self.heading = [c.text for c in found if c.line < first]
        self._alone: dict[int, list[str]] = {}
        self._beside: dict[int, list[str]] = {}
        self._rest: list[str] = []
        for comment in found[len(self.heading) :]:
            line = next((line for line in numbers if line >= comment.line), None)
            if line is None:
                self._rest.append(comment.text)
            elif line == comment.line and not comment.alone:
                self._beside.setdefault(line, []).append(comment.text)
            else:
                self._alone.setdefault(line, []).append(comment.text)

    def above(self, lines: Iterable[int]) -> list[str]:
        """The comments to write above the content of these lines, without the one at the end of the first."""
        first, *others = sorted(set(lines)) or [0]
        found = self._alone.pop(first, [])
        for line in others:
            found += self._alone.pop(line, []) + self._beside.pop(line, [])
        return found

    def beside(self, line: int) -> str:
        """The comment to write at the end of a line, with the blanks before it."""
        return "".join(f"  {text}" for text in self._beside.pop(line, []))

    def left(self) -> list[str]:
        """The comments that were not written yet."""
        waiting = [*self._alone.values(), *self._beside.values()]
        return [text for texts in waiting for text in texts] + self._rest


def _comments(text: str) -> list[_Comment]:
    found = []
    at = 0
    for token in yaml.scan(text, Loader=yaml.SafeLoader):
        start, end = token.start_mark.index, token.end_mark.index
        if start > at:
            found += _comments_in(text, at, start)
        at = max(at, end)
    return found + _comments_in(text, at, len(text))


def _comments_in(text: str, start: int, end: int) -> list[_Comment]:
    found = []
    at = start
    for part in text[start:end].splitlines(keepends=True):
        mark = part.find("#")
        if mark >= 0:
            position = at + mark
            before = text[text.rfind("\n", 0, position) + 1 : position]
            line = text.count("\n", 0, position) + 1
            found.append(_Comment(line, part[mark:].rstrip(), not before.strip()))
        at += len(part)
    return found


_WIDTH = 100
_BLOCKS = ("policies", "tool_rules", "rules", "nets", "virtual_tools")


def to_yaml(root: MapNode, comments: Comments) -> str:
    lines = [*comments.heading, *_map_lines(root, 0, comments), *comments.left()]
    return "\n".join(lines) + "\n"


def lines_of(node: Node) -> set[int]:
    """The source lines of the parts of a tree."""
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
    """The lines of a list's item: on one line if it is short enough, else as a block below its dash."""
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
    """A scalar as text that reads back as itself, in a block and between brackets."""
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


def migrate(text: str, *, file: str = "", format: str | None = None) -> str:
    """Rewrite a policy text in the standard spelling; YAML in that spelling is returned unchanged.

    Args:
        text: a policy in any format and spelling that can be read.
        file: the name problems are reported under; its suffix tells the format if `format` does not.
        format: `yaml`, `json` or `toml`.

    Raises:
        PolicyError: the text is wrong; every problem is listed.
    """
    format = format or SUFFIXES.get(Path(file).suffix.lower())
    parse_policies(text, file=file, format=format)
    roots, report = read_source(text, ProblemReport(file), file, format)
    nodes = policy_nodes(roots, report)
    is_yaml = format in (None, "yaml") and not _is_json(text)
    if is_yaml and _standard(roots, nodes):
        return text
    policies = [_with_header(node) for node in nodes]
    written = policies[0] if len(policies) == 1 else MapNode({"policies": ListNode([*policies])})
    return to_yaml(written, Comments(text if is_yaml else "", lines_of(written)))


def _standard(roots: Sequence[MapNode], nodes: Sequence[MapNode]) -> bool:
    """Whether nothing in the documents was rewritten except durations."""
    written: list[Node] = []
    for root in roots:
        listed = root.entries.get("policies")
        written += listed.items if isinstance(listed, ListNode) else [root]
    return len(nodes) == len(written) and all(
        a is b or (isinstance(b, MapNode) and _flow(a) == _flow(with_durations(b, ProblemReport())))
        for a, b in zip(nodes, written, strict=True)
    )


def _with_header(node: MapNode) -> MapNode:
    """A policy with its version and name first."""
    head = {"version": node.entries.get("version", Scalar(1)), "name": node.entries["name"]}
    spans = {**dict.fromkeys(head, NOWHERE), **node.key_spans}
    return MapNode({**head, **node.entries}, spans, node.span, node.path)


def _is_json(text: str) -> bool:
    try:
        read_json(text, ProblemReport())
    except Unreadable:
        return False
    return True
