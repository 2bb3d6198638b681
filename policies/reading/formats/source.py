"""From what a caller hands over - text, bytes, a mapping - to one tree of nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..records_tree import node_of
from ..tree import NOWHERE, ListNode, MapNode, Node, ProblemReport, Scalar, TextSpan, Unreadable, describe, set_paths
from .json_text import CommentInJsonError, read_json
from .yaml_text import read_yaml

SUFFIXES = {".yaml": "yaml", ".yml": "yaml", ".json": "json", ".toml": "toml"}


def read_source(
    source: object, report: ProblemReport, file: str, format: str | None
) -> tuple[list[MapNode], ProblemReport]:
    """Read a policy source into the trees of its documents; the report given back knows the text's lines.

    Raises:
        PolicyError: the source cannot be read at all.
    """
    try:
        if isinstance(source, Mapping):
            roots = [node_of(source)]
        else:
            text = _text(source)
            report = ProblemReport(file, text)
            roots = read_text(text, report, format)
        mappings = [_mapping(root) for root in roots]
    except Unreadable as error:
        report.problems.clear()  # the text as a whole is the one thing to say
        report.add(error.message, error.span, suggestion=error.suggestion)
        report.raise_if_any()
        raise
    for mapping in mappings:
        set_paths(mapping)
    return mappings, report


def read_text(text: str, report: ProblemReport, format: str | None) -> list[Node]:
    """Read text in a format: `yaml`, `json`, `toml`, or None for JSON where it is JSON, else YAML.

    Raises:
        Unreadable: it is not text of that format, or no such format.
    """
    readers: dict[str, Callable[[], list[Node]]] = {
        "json": lambda: [read_json(text, report)],
        "toml": lambda: [_read_toml(text)],
        "yaml": lambda: _read_yaml_or_json(text, report),
    }
    if format is not None and format not in readers:
        raise Unreadable(f"the format `{format}` is not known", suggestion="use `yaml`, `json` or `toml`")
    return readers[format or "yaml"]()


def _read_toml(text: str) -> Node:
    from .toml_text import read_toml  # seldom needed, and slow to import

    return read_toml(text)


def _read_yaml_or_json(text: str, report: ProblemReport) -> list[Node]:
    """YAML holds JSON, save for a few escapes and tabs: what is JSON is read as JSON."""
    begins = text.lstrip()[:1]
    if begins not in ("{", "[", "/"):
        return read_yaml(text, report)
    found = ProblemReport()
    try:
        root = read_json(text, found)
    except CommentInJsonError:
        raise
    except Unreadable as as_json:
        try:
            return read_yaml(text, report)
        except Unreadable as as_yaml:
            raise (as_json if text.lstrip()[1:].lstrip()[:1] in ('"', "{", "}", "") else as_yaml) from None
    for problem in found.problems:
        report.add(problem.message, TextSpan(problem.line, problem.column))
    return [root]


def _text(source: object) -> str:
    if isinstance(source, bytes | bytearray | memoryview):
        source = _decoded(bytes(source))
    if not isinstance(source, str):
        kind = type(source).__name__
        raise Unreadable(f"a policy is text or a mapping, not a value of type `{kind}`", NOWHERE)
    return source.removeprefix("\ufeff")


def _decoded(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line_start = data.rfind(b"\n", 0, error.start) + 1
        column = len(data[line_start : error.start].decode("utf-8", "replace")) + 1
        span = TextSpan(data.count(b"\n", 0, error.start) + 1, column)
        raise Unreadable("the text is not UTF-8", span, "save the file as UTF-8") from None


def _mapping(root: Node) -> MapNode:
    if isinstance(root, MapNode):
        return root
    hint = "list several policies under `policies:`" if isinstance(root, ListNode) else ""
    if root == Scalar(None, root.span):
        raise Unreadable("the file is empty", root.span, "a policy is a mapping with at least a `name`")
    raise Unreadable(f"a policy is a mapping, not {describe(root)}", root.span, hint)
