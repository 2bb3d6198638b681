"""Paths into JSON: the subset of RFC 9535 that the policy language spells.

`$`, `.key`, `['key']`, `[0]`, `[-1]`, `[*]`, `[?@.key == literal]`. A path gives zero or more values; `[*]` of
a lone value is that value, so `to: "a@x"` and `to: ["a@x"]` are evaluated alike.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias
from unicodedata import normalize

from .json_values import container_of, same
from .model_base import Aliased, Issue, Where

Step: TypeAlias = Callable[[list[Any]], list[Any]]
PathFn: TypeAlias = Callable[[Any], list[Any]]
_NAME = r"[^\x00-@\[-^`{-\x7f][^\x00-/:-@\[-^`{-\x7f]*"
"""Letters, digits, `_` and all beyond ASCII, by what they are not: that compiles twenty times faster."""

_QUOTED = r"""(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
_KEY = re.compile(rf"\.({_NAME})")
_BRACKET_KEY = re.compile(rf"\[\s*({_QUOTED})\s*\]")
_INDEX = re.compile(r"\[\s*(0|-?[1-9]\d{0,8})\s*\]")
_WILD = re.compile(r"\[\s*\*\s*\]")

_FILTER = re.compile(
    rf"\[\s*\?\s*@(?:\.({_NAME})|\[\s*({_QUOTED})\s*\])"
    rf"\s*==\s*({_QUOTED}|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null)\s*\]"
)


class _BadPathError(ValueError):
    pass


def problems(path: str, where: Where = ()) -> Iterator[Issue]:
    """Why a path cannot be used, if it cannot."""
    try:
        path_steps(path)
    except _BadPathError as error:
        yield where, str(error)


def keys_of(path: str) -> tuple[str, ...]:
    """The keys that a path has; empty for text that is not a path."""
    try:
        return tuple(argument for kind, argument in path_steps(path) if kind == "key")
    except _BadPathError:
        return ()


def path_to(key: str) -> str:
    """The path to the value of a key."""
    if key.isidentifier():
        return f"$.{key}"
    quoted = json.dumps(key, ensure_ascii=False)[1:-1].replace('\\"', '"').replace("'", "\\'")
    return f"$['{quoted}']"


@lru_cache(maxsize=4096)
def compile_path(path: str, loose: bool = False) -> PathFn:
    """The function from a document to the values at `path`; `loose` compares filters as a call's input."""
    steps = path_steps(path)
    if len(steps) == 1 and steps[0][0] == "key":
        return _member(steps[0][1])
    functions = [_step(kind, argument, loose) for kind, argument in steps]

    def values(doc: Any) -> list[Any]:
        found = [doc]
        for function in functions:
            if loose:
                found = [each for value in found for each in _as_read(value)]
            found = function(found)
        return found

    return values


def _as_read(value: Any) -> tuple[Any, ...]:
    """A value, and what it says where it is the text of an object or a list."""
    inner = container_of(value) if type(value) is str else None
    return (value,) if inner is None else (value, inner)


def path_steps(path: str) -> list[tuple[str, Any]]:
    """The steps of a path: `key`, `index`, `wild` or `filter`, each with its argument. Raises ValueError."""
    if not path.startswith("$"):
        raise _BadPathError(f"bad path `{path}`: a path starts with `$`, as in `$.order_id`")
    steps: list[tuple[str, Any]] = []
    at = 1
    while at < len(path):
        at, step = _next_step(path, at)
        steps.append(step)
    return steps


def _next_step(path: str, at: int) -> tuple[int, tuple[str, Any]]:
    if match := _WILD.match(path, at):
        return match.end(), ("wild", None)
    if match := _KEY.match(path, at):
        return match.end(), ("key", match[1])
    if match := _BRACKET_KEY.match(path, at):
        return match.end(), ("key", _unquoted(match[1]))
    if match := _INDEX.match(path, at):
        return match.end(), ("index", int(match[1]))
    if match := _FILTER.match(path, at):
        key = match[1] if match[1] is not None else _unquoted(match[2])
        literal = _unquoted(match[3]) if match[3][0] in "'\"" else _number(match[3])
        return match.end(), ("filter", (key, literal))
    raise _BadPathError(
        f"bad path `{path}` at character {at + 1}: expected `.key`, `['key']`, `[0]`, `[*]` or `[?@.key == value]`"
    )


def _number(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise _BadPathError("a number in a path has too many digits") from None


def _unquoted(quoted: str) -> str:
    body = quoted[1:-1]
    if quoted[0] == "'":
        body = body.replace("\\'", "'").replace('"', '\\"')
    try:
        return str(json.loads(f'"{body}"'))
    except ValueError:
        raise _BadPathError(f"bad text {quoted} in a path") from None


def _step(kind: str, argument: Any, loose: bool) -> Step:
    """A function from the values at one place to those that a step of a path leads to."""
    if kind == "key":
        member = _member(argument)
        return lambda found: [item for v in found for item in member(v)]
    if kind == "index":
        return lambda found: [
            v[argument] for v in found if isinstance(v, list | tuple) and -len(v) <= argument < len(v)
        ]
    if kind == "wild":
        return lambda found: [item for v in found for item in _elements(v, lone=[v])]
    key, literal = argument
    return lambda found: [
        item
        for v in found
        for item in _elements(v, lone=[])
        if isinstance(item, dict) and key in item and same(item[key], literal, loose)
    ]


def _member(key: str) -> PathFn:
    def values(doc: Any) -> list[Any]:
        if not isinstance(doc, dict):
            return []
        own = [doc[key]] if key in doc else []
        return own if type(doc) is not Aliased else [*own, *doc.also.get(key, ())]

    return values


def _elements(value: Any, lone: list[Any]) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return list(value) if isinstance(value, list | tuple) else lone


_AMBIGUOUS = re.compile(
    r"\\|\x00|^$|^\s|\s$|^[A-Za-z][A-Za-z0-9+.-]*:|(?:^|/)\$|\{[^{}]*(?:,|\.\.)[^{}]*\}"
    r"|:\$|(?:^|/)[^/.]{1,6}~[0-9]{1,2}(?:\.[^/]{0,3})?(?:/|$)|(?:^|/)\.\. [ .]*(?:/|$)"
)
"""Texts that some tools read as another path: Windows paths, its short names and streams, what it leaves out behind
`..`, URLs, variables, blanks at an edge, `{a,b}`.
"""
_LINKS = {
    "proc": {"root", "cwd", "fd", "task", "exe", "map_files"},
    "dev": {"fd", "stdin", "stdout", "stderr"},
    "run": {"host"},
    "Volumes": {"Macintosh HD", "Macintosh HD - Data"},
}
"""Links that lead elsewhere on most systems, by the first part of their path."""
_ELSEWHERE = {".vol", ".nofollow", ".resolve"}
"""Folders of macOS's root by which every file has another path."""
_SAME_PLACES = (
    *((("sbin",), ("usr", "bin")), (("usr", "sbin"), ("usr", "bin"))),
    *(((name,), ("usr", name)) for name in ("bin", "lib", "lib32", "lib64", "libx32")),
    *((("var", "run"), ("run",)), (("var", "lock"), ("run", "lock"))),
    *((("usr", "tmp"), ("var", "tmp")), (("var", "mail"), ("var", "spool", "mail"))),
)
"""Folders that are links on most Linux systems, and where they lead."""
_SAME_ROOTS = (("private",), ("System", "Volumes", "Data"))
"""Places of macOS where the root's folders are, too."""


class PathPlace(NamedTuple):
    """Where a text leads: from the root (`/`), the workspace (`.`) or home (`~`), so many levels up, then down."""

    start: str
    up: int
    down: tuple[str, ...]


def place_of(text: str, workspace: str | None = None, home: str | None = None) -> PathPlace | None:
    """The place of a path; None where the text does not tell.

    Args:
        text: the path; `..`, `.`, `~`, repeated and trailing separators are resolved in it.
        workspace: the absolute directory that relative paths start from, where it is known.
        home: the absolute directory that `~` stands for, where it is known.
    """
    if _AMBIGUOUS.search(text):
        return None
    first, _, rest = text.partition("/")
    if first == "":
        return _walked(PathPlace("/", 0, ()), rest)
    if first == "~":
        return _walked(_base(home, "~"), rest)
    return None if first.startswith("~") else _walked(_base(workspace, "."), text)


def _base(directory: str | None, start: str) -> PathPlace:
    place = None if directory is None or not directory.startswith("/") else place_of(directory)
    return place or PathPlace(start, 0, ())


def _walked(base: PathPlace, rest: str) -> PathPlace | None:
    """Where a relative path leads from a place; None where it may lead elsewhere, by a link."""
    up, down = base.up, list(base.down)
    for part in rest.split("/"):
        if part == "..":
            if base.start == "/" and any(tuple(down) == link for link, _ in _SAME_PLACES):
                return None
            if down:
                down.pop()
            elif base.start != "/":
                up += 1
        elif part not in ("", "."):
            down.append(part)
            if base.start == "/" and (down[0] in _ELSEWHERE or (len(down) > 1 and part in _LINKS.get(down[0], ()))):
                return None
    return PathPlace(base.start, up, tuple(down))


def inside(place: PathPlace | None, directory: PathPlace | None) -> bool | None:
    """Whether a place is a directory or inside it; None where the texts do not tell."""
    if place is None or directory is None or place.start != directory.start:
        return None
    if place.up < directory.up:
        return None if directory.down else True
    if place.up > directory.up:
        return None
    depth = len(directory.down)
    if place.down[:depth] == directory.down:
        return True
    return None if _may_lead(_bare(place), _bare(directory)) else False


def _bare(place: PathPlace) -> tuple[str, ...]:
    """The names on the way, as they are on a system whose folders of old are links."""
    if place.start != "/":
        return place.down
    down = next((place.down[len(root) :] for root in _SAME_ROOTS if place.down[: len(root)] == root), place.down)
    return next(((*to, *down[len(link) :]) for link, to in _SAME_PLACES if down[: len(link)] == link), down)


def _may_lead(down: tuple[str, ...], directory: tuple[str, ...]) -> bool:
    """Whether a way may lead into a directory: `*` stands for any names where a tool reads it so, and file systems
    differ in what they take for one name.
    """
    if "**" in down[: len(directory)]:
        return True
    return len(down) >= len(directory) and all(
        _folded(name) == _folded(other) or fnmatchcase(_folded(other), _folded(name))
        for name, other in zip(down, directory, strict=False)
    )


_IGNORED = re.compile("[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]|[ .]+$")
"""What some file systems leave out of a name."""


def _folded(name: str) -> str:
    return _IGNORED.sub("", normalize("NFKC", name).casefold()) or name
