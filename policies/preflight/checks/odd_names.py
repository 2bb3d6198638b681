"""Patterns that look as if they were meant for another program: no tool has such a name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ...stack.clauses import Clause
from ..findings import PreflightFinding, finding

_UNSEEN = r"[\x00-\x1f\x7f-\xa0\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufeff]"
_TWO_ALPHABETS = r"[A-Za-z][\u0370-\u052f]|[\u0370-\u052f][A-Za-z]"
_OTHERS = re.compile(rf"[(){{}}|,\\^$]|^[!/]|^\s|\s$|{_UNSEEN}|{_TWO_ALPHABETS}")
"""Signs of a client's permission, of alternatives, of a regular expression; blanks at an edge; what nobody sees."""


def odd_names(clauses: Iterable[Clause]) -> Iterator[PreflightFinding]:
    """Names that hold nothing, as no tool goes by them."""
    for clause in clauses:
        odd = [name for name in dict.fromkeys(clause.patterns(*clause.roles.all())) if _OTHERS.search(name)]
        if odd:
            yield finding(
                "odd_name",
                clause,
                f"{', '.join(ascii(name) for name in odd)} is not a name that a tool can have: it is compared as a"
                " whole, with `*`, `?` and `[abc]`",
                witness=tuple(odd),
                suggestion="list several names; look into an input with `{tool: ..., where: [...]}`",
            )
