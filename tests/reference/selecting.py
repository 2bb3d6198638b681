"""The calls that a selector names: globs, aliases, virtual names, conditions on the input, evaluated naively."""

import fnmatch
import json
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from .trace import Call, World


def text(scalar: Any) -> str:
    """The text that identifies a scalar."""
    if isinstance(scalar, str):
        return scalar
    if isinstance(scalar, float) and scalar == int(scalar):
        return str(int(scalar))
    return json.dumps(scalar)


def scalars(value: Any) -> list[Any]:
    """The scalars of a value."""
    if isinstance(value, dict):
        return [s for item in value.values() for s in scalars(item)]
    if isinstance(value, list):
        return [s for item in value for s in scalars(item)]
    return [value]


@lru_cache(maxsize=1000)
def _steps(path: str) -> list[tuple[str, str]]:
    return re.findall(r"\.(\w+)|(\[\*\])", path)


def at(path: str, document: Any) -> list[Any]:
    """The values at a path of `.key` and `[*]` steps."""
    found = [document]
    for key, wild in _steps(path):
        if wild:
            found = [
                i
                for v in found
                for i in (list(v.values()) if isinstance(v, dict) else v if isinstance(v, list) else [v])
            ]
        else:
            found = [v[key] for v in found if isinstance(v, dict) and key in v]
    return found


def ids(path: str, document: Any) -> list[str]:
    """The texts of the values at a path; null and "" are omitted."""
    return [text(s) for value in at(path, document) for s in scalars(value) if s is not None and s != ""]


def texts(value: Any) -> Iterator[str]:
    """Every text inside an argument that a pattern searches."""
    if isinstance(value, dict):
        for item in value.values():
            yield from texts(item)
    elif isinstance(value, list):
        joined = [text(item) for item in value if isinstance(item, str | int | float) and not isinstance(item, bool)]
        if len(joined) > 1:
            yield " ".join(joined)
        for item in value:
            yield from texts(item)
    elif isinstance(value, str | int | float) and not isinstance(value, bool):
        yield text(value)


def virtual_names(call: Call, world: World) -> list[str]:
    """The virtual names of a call, by its input."""
    return [
        virtual["as"]
        for virtual in world.policy.get("virtual_tools", ())
        if any(globbed(pattern, call.tool) for pattern in _spelt_out(virtual["tool"], world))
        and any(re.search(virtual["match"], t) for v in at(virtual["path"], call.input) for t in texts(v))
    ]


def names(call: Call, world: World) -> list[str]:
    """All names of a call, its own first."""
    return [call.tool, *virtual_names(call, world)]


@lru_cache(maxsize=10_000)
def globbed(pattern: str, name: str) -> bool:
    """Whether a whole name matches a glob, case-insensitively."""
    return fnmatch.fnmatchcase(name.lower(), pattern.lower())


def meets(selector: Any, call: Call, world: World, *, permits: bool, of: list[str] | None = None) -> bool:
    """Whether a selector names the call by any of its names, or of these."""
    if isinstance(selector, list):
        return any(meets(item, call, world, permits=permits, of=of) for item in selector)
    tools, where = (selector, []) if isinstance(selector, str) else (selector["tool"], selector.get("where", []))
    given = names(call, world) if of is None else of
    if not any(globbed(pattern, name) for pattern in _spelt_out(tools, world) for name in given):
        return False
    return all(holds(condition, call.input, permits=permits) for condition in where)


def _spelt_out(tools: Any, world: World) -> list[str]:
    listed = [tools] if isinstance(tools, str) else tools
    if not (written := world.policy.get("aliases")):
        return listed
    aliases = {name.lower(): members for name, members in written.items()}
    return [name for tool in listed for name in aliases.get(tool.lower(), [tool])]


def applies(when: Any, context: Any) -> bool:
    """Whether the conditions on a run's context are satisfied."""
    return all(holds(condition, context, permits=False, loose=False) for condition in when)


def holds(condition: Any, document: Any, *, permits: bool, loose: bool = True) -> bool:
    """Whether a condition of `equals`, `not_equals`, `gt` or `exists` is satisfied."""
    found = at(condition["path"], document)
    if not found:
        negative = "not_equals" in condition and not permits
        return negative or condition.get("exists") is False
    answers = [_holds_of(condition, value, permits, loose) for value in found]
    return all(answers) if permits else any(answers)


def _holds_of(condition: Any, value: Any, permits: bool, loose: bool) -> bool:
    if "exists" in condition:
        return bool(condition["exists"])
    if "gt" in condition:
        number = _number(value, loose)
        return not permits if number is None else number > condition["gt"]
    operand = condition.get("equals", condition.get("not_equals"))
    return same(value, operand, loose) != ("not_equals" in condition)


def _number(value: Any, loose: bool) -> float | None:
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        return value
    return float(value) if loose and isinstance(value, str) and re.fullmatch(r"[+-]?\d+(\.\d+)?", value) else None


def same(left: Any, right: Any, loose: bool) -> bool:
    """Whether two values are equal; loosely, a number is also its text."""
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(same(a, b, loose) for a, b in zip(left, right, strict=True))
    if isinstance(left, bool) or isinstance(right, bool) or type(left) is type(right):
        return type(left) is type(right) and bool(left == right)
    a, b = _number(left, loose), _number(right, loose)
    return a is not None and a == b
