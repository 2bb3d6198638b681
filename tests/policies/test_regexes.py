"""Conditions find with RE2 what Python's `re` finds, on patterns that are accepted."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from proctor.policies import PolicyError, parse_policies
from proctor.policies.values.regexes import Regex, problems

ATOMS = [
    *("", "a", "b", "A", "1", "_", " ", ".", r"\.", r"\d", r"\w", r"\s", r"\D", r"\W", r"\S", r"\b", r"\A", "^", "$"),
    *(r"\n", "é", "[ab]", "[^a]", r"[\d_]", r"[^\n]", "(?:)", "()", "(?i:a)"),
]
QUANTITIES = ["*", "+", "?", "*?", "+?", "??", "{0}", "{0,1}", "{2}", "{1,2}", "{,2}", "{,}", "{0,}"]


def _larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map("(?:{0[0]}|{0[1]})".format),
        inner.map("({})".format),
        st.tuples(inner, st.sampled_from(QUANTITIES)).map("(?:{0[0]}){0[1]}".format),
    )


PATTERNS = st.recursive(st.sampled_from(ATOMS), _larger, max_leaves=6)


@settings(max_examples=500, deadline=None)
@given(st.sampled_from(["", "(?i)", "(?s)", "(?m)", "(?ims)"]), PATTERNS, st.text("abA1_ .\n\ré", max_size=6))
@example("", "(?:){2}", "")
@example("", "(?:a*)*", "b")
@example("(?m)", "^$", "a\n\nb")
@example("(?m)", "^$", "a\n")
@example("", "(?:|a)+?", "aa")
@example("", "^a", "ba")
@example("", "^a b", "a b.")
@example("", "a b", "1a b")
def test_both_find_the_same_also_where_a_match_is_empty(flags: str, pattern: str, text: str) -> None:
    """Anywhere, and as the whole text; `$` without `(?m)` is the end of the text."""
    assume(not list(problems(flags + pattern)))
    own = pattern if "m" in flags else pattern.replace("$", r"\Z")
    expected = re.compile(flags + own, re.ASCII)

    assert Regex(flags + pattern).found_in(text) == (expected.search(text) is not None)
    assert Regex(rf"{flags}\A(?:{pattern})\z").found_in(text) == (expected.fullmatch(text) is not None)


@pytest.mark.parametrize(
    ("pattern", "instead"),
    [("a{,2}", "`{0,2}`"), ("a{,}", "`{0,}`"), (r"\\{,3}", "`{0,3}`"), ("a{0,2}", ""), (r"\{,2}", "")],
)
def test_a_quantity_without_its_least_is_an_error(pattern: str, instead: str) -> None:
    """Python takes it for `{0,2}`, RE2 for the text."""
    found = [text for _, text in problems(pattern)]

    assert len(found) == bool(instead)
    assert all(instead in text for text in found)


def test_the_patterns_of_one_file_are_bounded_together() -> None:
    """Each is small enough; reading stops where together they are not, with one error, and the next file is read."""

    def file(patterns: int) -> dict[str, Any]:
        conditions = [{"path": "$.c", "regex": f"a{{1,900}}{n}"} for n in range(patterns)]
        return {"name": "x", "rules": [{"type": "blocklist", "tools": [{"tool": "b", "where": conditions}]}]}

    with pytest.raises(PolicyError) as raised:
        parse_policies(file(400))
    [problem] = raised.value.problems
    assert "too large together" in problem.message
    assert parse_policies(file(100))


@pytest.mark.parametrize(
    ("pattern", "text", "found", "python"),
    [
        ("x*", "axb", ["", "x", "", ""], ["", "x", "", ""]),
        ("x*?", "xx", ["", "", ""], ["", "x", "", "x", ""]),
        ("(a|)", "ba", ["", "a", ""], ["", "a", ""]),
        ("(?:)", "é", ["", ""], ["", ""]),
        (r"\w+", "ab c", ["ab", "c"], ["ab", "c"]),
    ],
)
def test_after_an_empty_match_the_search_goes_on_one_character_further(
    pattern: str, text: str, found: list[str], python: list[str]
) -> None:
    """As the page says; Python looks for one that is not empty at the same place."""
    assert list(Regex(pattern).values([text])) == found
    assert [match.group(match.re.groups and 1) for match in re.finditer(pattern, text)] == python
