"""Retired names do not come back."""

import ast
import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROWS = ("policies", "supervisor", "adapters")
WORDS = frozenset(
    re.findall(
        r"\w+",
        """
    anew ask asking bell clash clashing desk door errand give hand knock ladder look objections outlook owes
    pump remains retell retold ring room say seen_from share_of steers take tell told torn_down unseen way
    ways_round
    """,
    )
)
"""Verbs and metaphors that say nothing about what they name, as a whole name or as a part of one."""
NAMES = frozenset(
    re.findall(
        r"\w+",
        """
    Ahead ApprovalJudge Bell BudgetClaim BudgetJudge CallInFlight Complaint Desk Draw Drawn Errands Facet Feed GaveUp
    HookJudge HurryRecord Instruction JudgeCall JudgedCall Latch Letter Lift LimitJudge LimitUse Loosened Met Owed
    Questions RanOtherwise
    Remains Returned RightOfWay Rung Sink Tellers Track Truth UserWords Visit Visits blame_adapter flaw_in
    hang_up hold_budgets is_mark_of judges_order judging let_run loose_fingerprint named_object not_run ordinals
    outline outlines printable set_aside tally whole_file
    """,
    )
)
"""Whole names that were replaced."""
PROMISED = {
    "tell_model": "a key of rules, a field of events and of answers",
    "tell_model_default": "what `tell_model` is without one",
    "tell": "an argument of `deny`, and an option of `proctor deny`",
    "asking": "a field of the event of a grant",
    "Ask": "a step of the fake agent that tests of adapters and stores are written with",
    "say": "a key of a script's steps",
    "Say": "the step that this key writes",
    "take_overs": "a field of `RunSpec`",
    "test_a_tool_that_launch_options_take_away_does_not_run": "a test of the suite that adapters are tested with",
}
"""Names that are written elsewhere, and so stay."""


def retired(source: str) -> Counter[str]:
    """How often a source text defines each retired name: as a class, function, parameter, variable or field."""
    found: Counter[str] = Counter()
    for name in _defined(ast.parse(source)):
        if name not in PROMISED:
            found.update(_retired_in(name))
    return found


def _retired_in(name: str) -> set[str]:
    parts = {part.lower() for part in re.findall(r"[A-Z]?[a-z]+", name)}
    return {*(NAMES & {name.strip("_")}), *(WORDS & parts), *(word for word in WORDS if "_" in word and word in name)}


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


def test_no_file_has_a_retired_name() -> None:
    """Give a new one another name, or add it to `PROMISED` with the place where it is written."""
    found = {}
    for path in sorted(path for row in ROWS for path in (ROOT / row).rglob("*.py")):
        if here := retired(path.read_text(encoding="utf-8")):
            found[path.relative_to(ROOT).as_posix()] = dict(here)

    assert found == {}
