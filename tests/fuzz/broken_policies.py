"""Mutated variants of real policies: each is distinguished from its original, or proved equal.

The policies are those of `examples/` and of the cookbook. A variant drops a rule, a list, a limit or a condition,
widens a name, reads conditions as alternatives, increases a count, or removes a lock from a stack.
"""

import re
from collections import Counter
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from proctor.policies import PolicyError, merge_policies, parse_policies, verify

from .ledger import Share

ROOT: Final = Path(__file__).parents[2]
COOKBOOK: Final = ROOT / "docs" / "policies" / "cookbook.md"
SHARES: Final = 10
"""The number of shares for all of them; the next ones start again."""
MOST_WORK: Final = 2_000_000
_NUMBERS: Final = ("max", "within", "within_turns", "threshold", "consecutive", "total", "turns_gte", "gt", "lte")
_NAMES: Final = ("tool", "first", "then", "trigger", "forbidden", "prior")
_LOOSER: Final = {
    "name": "later",
    "on_violation": "warn",
    "limits": {"max_cost_usd": 1_000_000, "max_tool_calls": 1_000_000, "max_turns": 1_000_000},
}
"""Changes that have no effect because of a lock."""


class Variant(NamedTuple):
    """A mutated policy and the original."""

    policy: str
    way: str
    whole: list[Any]
    broken: list[Any]


def policies() -> Iterator[tuple[str, list[Any]]]:
    """Every policy of the examples and the cookbook, by name."""
    for file in sorted(ROOT.glob("examples/*/policy.yaml")):
        yield file.parent.name, list(yaml.safe_load_all(file.read_text()))
    for name, text in re.findall(r'```yaml title="([\w-]+)\.yaml"\n(.*?)```', COOKBOOK.read_text(), re.DOTALL):
        yield name, list(yaml.safe_load_all(text))


def variants() -> Iterator[Variant]:
    """All of them, in order."""
    for name, written in policies():
        for n, document in enumerate(written):
            for way, broken in _broken(document):
                yield Variant(name, way, written, [*written[:n], broken, *written[n + 1 :]])
            if document.get("locked"):
                unlocked = {key: value for key, value in document.items() if key != "locked"}
                yield Variant(name, "without its lock", [document, _LOOSER], [unlocked, _LOOSER])


def _broken(document: Any) -> Iterator[tuple[str, Any]]:
    for path in _places(document):
        parent = document
        for step in path[:-1]:
            parent = parent[step]
        at, value = path[-1], parent[path[-1]]
        where = ".".join(map(str, path))
        if isinstance(parent, list) and isinstance(value, dict):
            yield f"without {where}", _with(document, path, drop=True)
        if path[0] == "limits" and len(path) == 2:
            yield f"without {where}", _with(document, path, drop=True)
        if at in _NAMES and isinstance(value, str) and not value.endswith("*") and value != "human-approval":
            yield f"{where} widened", _with(document, path, f"{value}*")
        if at in _NUMBERS and isinstance(value, int) and not isinstance(value, bool):
            yield f"{where} one more", _with(document, path, value + 1)
        if path[0] == "limits" and len(path) == 2 and isinstance(value, int | float):
            yield f"{where} one more", _with(document, path, value + 1)
        if at in ("where", "output") and isinstance(value, list) and len(value) > 1:
            yield f"{where} as alternatives", _with(document, path, [{"any_of": value}])
        if at == "any_of" and isinstance(parent, dict) and len(parent) == 1:
            yield f"{where} all together", _with(document, path[:-1], {"not": [{"not": value}]})


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from _places(item, (*path, key))


def _with(document: Any, path: tuple[Any, ...], value: Any = None, *, drop: bool = False) -> Any:
    """The document with another value at a path, or without it."""
    made = parent = deepcopy(document)
    for step in path[:-1]:
        parent = parent[step]
    if drop:
        del parent[path[-1]]
    else:
        parent[path[-1]] = value
    return made


def distinguish(variant: Variant) -> str:
    """`refuted`, `proved` (equal) or `unknown`; `no policy` if the variant is invalid."""
    whole = merge_policies(parse_policies({"policies": variant.whole}))
    try:
        broken = merge_policies(parse_policies({"policies": variant.broken}))
    except PolicyError:
        return "no policy"
    return verify(broken, same_as=whole, steps=MOST_WORK).verdict


def broken_policies(seed: int, number: int) -> Share:
    """Every tenth variant; nothing is random."""
    counts: Counter[str] = Counter()
    for variant in list(variants())[number % SHARES :: SHARES]:
        verdict = distinguish(variant)
        if verdict != "no policy":
            counts["variants"] += 1
            counts[{"refuted": "told apart", "proved": "proved the same"}.get(verdict, verdict)] += 1
    return Share(dict(counts))
