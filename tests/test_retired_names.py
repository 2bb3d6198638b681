"""Words that were retired as names stay out: each file has as many as it had, or fewer.

`retired_names.json` beside this file says how often each file still has each of them. It only shrinks: when a name is
gone, `python tests/test_retired_names.py` writes the counts anew, and refuses where one of a package would grow.
"""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROWS = ("policies", "supervisor", "adapters")
ALLOWED = Path(__file__).with_name("retired_names.json")
WORDS = frozenset(
    re.findall(
        r"\w+",
        """
    anew ask asking bell clash clashing desk door errand give hand knock ladder look objections outlook owes
    pump remains retell retold ring room say seen_from share_of steers tell told torn_down unseen way
    ways_round
    """,
    )
)
"""Verbs and pictures that say nothing of what they name; each is counted as a whole name, or as a part of one."""
NAMES = frozenset(
    re.findall(
        r"\w+",
        """
    Ahead Bell BudgetClaim BudgetJudge CallInFlight Complaint Desk Draw Drawn Errands Facet Feed GaveUp
    HurryRecord Instruction Latch Letter Lift LimitJudge LimitUse Loosened Met Owed Questions RanOtherwise
    Remains Returned RightOfWay Rung Sink Tellers Track Truth UserWords Visit Visits blame_adapter flaw_in
    hang_up hold_budgets is_mark_of let_run loose_fingerprint named_object not_run outline printable set_aside
    tally whole_file
    """,
    )
)
"""Whole names that have another now."""
PROMISED = {
    "tell_model": "a key of rules, a field of events and of answers",
    "tell_model_default": "what `tell_model` is without one",
    "tell": "an argument of `deny`, and an option of `proctor deny`",
    "asking": "a field of the event of a grant",
    "Ask": "a step of the fake agent that tests of adapters and stores are written with",
    "say": "a key of a script's steps",
    "Say": "the step that this key writes",
}
"""Names that are written down elsewhere, and so stay."""


def retired(source: str) -> Counter[str]:
    """How often a source text defines each retired name: as a class, function, parameter, variable or field."""
    found: Counter[str] = Counter()
    for name in _defined(ast.parse(source)):
        if name in PROMISED:
            continue
        if name.strip("_") in NAMES:
            found[name.strip("_")] += 1
        found.update(WORDS.intersection(part.lower() for part in re.findall(r"[A-Z]?[a-z]+", name)))
        found.update(word for word in WORDS if "_" in word and word in name)
    return found


def _defined(tree: ast.Module) -> list[str]:
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.append(node.name)
        elif isinstance(node, ast.arg):
            names.append(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.append(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.append(node.attr)
    return names


def counts() -> dict[str, dict[str, int]]:
    """The retired names of each file of the product that has any."""
    found = {}
    for path in sorted(path for row in ROWS for path in (ROOT / row).rglob("*.py")):
        if here := retired(path.read_text(encoding="utf-8")):
            found[path.relative_to(ROOT).as_posix()] = dict(sorted(here.items()))
    return found


def totals(of: dict[str, dict[str, int]]) -> Counter[tuple[str, str]]:
    """The same for each package: a file that moves within one brings nothing new."""
    found: Counter[tuple[str, str]] = Counter()
    for path, here in of.items():
        for name, times in here.items():
            found[path.partition("/")[0], name] += times
    return found


def test_no_package_gains_a_retired_name() -> None:
    """Not one more of any of them."""
    allowed = totals(json.loads(ALLOWED.read_text()))

    assert {key: times for key, times in totals(counts()).items() if times > allowed[key]} == {}


def test_no_file_gains_a_retired_name_that_it_never_had() -> None:
    """Of the files that are listed; a new file has none."""
    listed = json.loads(ALLOWED.read_text())
    new = {
        f"{path}: {name}": times
        for path, here in counts().items()
        if path in listed
        for name, times in here.items()
        if times > listed[path].get(name, 0)
    }

    assert new == {}


def main() -> None:
    """Write the counts, if no package gains one."""
    before = totals(json.loads(ALLOWED.read_text())) if ALLOWED.exists() else None
    now = counts()
    grown = {key: times for key, times in totals(now).items() if before is not None and times > before[key]}
    if grown:
        raise SystemExit(f"these are more than before: {grown}")
    ALLOWED.write_text(json.dumps(now, indent=1) + "\n")


if __name__ == "__main__":
    main()
