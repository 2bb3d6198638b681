"""Values, paths, conditions and tool names, each on its own (docs: Policies, Names, values, conditions)."""

import json
import math
import re
from typing import Any

import msgspec
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from proctor.policies import PolicyError, parse_policies
from proctor.policies.events.calls import copied
from proctor.policies.events.run_context import PORTABLE
from proctor.policies.language.conditions import Condition, OutputRef
from proctor.policies.language.facts import Directories, SeenValues
from proctor.policies.language.predicates import compile_conditions
from proctor.policies.values.globs import glob_problems, matcher
from proctor.policies.values.json_values import is_finite, order, parsed_output, same, text_of
from proctor.policies.values.paths import compile_path, inside, place_of, problems
from proctor.policies.values.regexes import Regex
from proctor.policies.values.regexes import problems as regex_problems

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


class About:
    """The call's input, and the outputs of earlier calls."""

    def __init__(self, input: Any = None, returned: SeenValues | None = None) -> None:
        self.input = input
        self.returned = returned or SeenValues()
        self.directories = Directories()

    def outputs(self, ref: OutputRef) -> SeenValues:
        return self.returned


def is_satisfied(
    condition: dict[str, Any], doc: Any, *, allows: bool = False, loose: bool = True, about: Any = None
) -> bool:
    record = msgspec.convert(condition, Condition)
    assert list(record.problems()) == []
    return compile_conditions([record], allows=allows, loose=loose).holds(doc, about or About())


DOC: dict[str, Any] = {
    "a": {"b": [1, 2, {"c": "x"}]},
    "list": [{"k": "one", "v": 1}, {"k": "two", "v": 2}],
    "table": {"p": {"k": "one"}, "q": {"k": "two"}},
    "it's": 1,
    "null": None,
}


@pytest.mark.parametrize(("path", "values"), [
    *(("$", [DOC]), ("$.a.b[0]", [1]), ("$.a.b[-1].c", ["x"]), ("$.a.b[7]", []), ("$.a.b[*]", [1, 2, {"c": "x"}])),
    *(("$['it\\'s']", [1]), ('$["a"]["b"][1]', [2]), ("$.list[?@.k == 'two'].v", [2])),
    *(("$.list[?@.v == 1].k", ["one"]), ('$.table[?@.k == "two"]', [{"k": "two"}]), ("$.table[*].k", ["one", "two"])),
    *(("$.null", [None]), ("$.null[*]", [None]), ("$.a.b[0][*]", [1]), ("$.missing[*]", [])),
])  # fmt: skip
def test_a_path_selects_zero_or_more_values(path: str, values: list[Any]) -> None:
    """The supported subset of RFC 9535."""
    assert compile_path(path)(DOC) == values


@pytest.mark.parametrize("path", [
    *("", "a", "$a", "$.", "$.a b", "$[", "$[01]", "$..a", "$.a[?@.b > 1]", "$[1:2]", "$['a", "$.*"),
    f"$[?@.k == {'9' * 5_000}]",
])  # fmt: skip
def test_a_path_outside_the_supported_subset_is_an_error(path: str) -> None:
    assert list(problems(path))


@pytest.mark.parametrize(("left", "right", "typed", "loose"), [
    (7, 7.0, True, True),
    (7, "7", False, True),
    (7, "7.0", False, True),
    ("7", "7.0", False, False),
    ("007", "7", False, False),
    (True, 1, False, False),
    (True, "true", False, False),
    (None, "", False, False),
    ([1, {"a": "2"}], ["1", {"a": 2}], False, True),
    (float("nan"), float("nan"), False, False),
    (10**400, 10**400, True, True),
])  # fmt: skip
def test_values_are_compared_as_json_and_loosely_as_text(left: Any, right: Any, typed: bool, loose: bool) -> None:
    """Changing an argument's JSON type does not evade a rule. A boolean never equals a number."""
    assert (same(left, right, loose=False), same(left, right, loose=True)) == (typed, loose)


any_values = st.recursive(
    st.none() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


@given(any_values)
@example([math.nan, math.inf, -math.inf, 2**70])
@example({"a": 0xCB7FF0, "b": "\u02ff\ud800", "c": [1.7e308, 2**70]})
def test_a_value_is_finite_if_json_has_each_of_its_numbers(value: Any) -> None:
    """As the standard library writes it, which takes five times as long."""
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        finite = False
    else:
        finite = True

    assert is_finite(value) is finite


@given(json_values, json_values)
def test_strict_equality_implies_loose_equality_and_both_are_symmetric(left: Any, right: Any) -> None:
    """Every value equals itself."""
    assert same(left, left, loose=False)
    assert same(left, right, loose=True) or not same(left, right, loose=False)
    assert same(left, right, loose=True) == same(right, left, loose=True)


@pytest.mark.parametrize(("left", "right", "typed", "loose"), [
    (1, 2, -1, -1),
    ("b", "a", 1, 1),
    ("9", 10, None, -1),
    ("9", "10", 1, -1),
    (True, 2, None, None),
    (None, 2, None, None),
    ("2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z", -1, -1),
    ([1], [2], None, None),
])  # fmt: skip
def test_numbers_order_with_numbers_and_text_with_text(left: Any, right: Any, typed: Any, loose: Any) -> None:
    """No other values can be ordered."""
    assert (order(left, right, loose=False), order(left, right, loose=True)) == (typed, loose)


@pytest.mark.parametrize(("condition", "doc", "denies", "allows"), [
    ({"path": "$.a", "equals": 1}, {"a": 1}, True, True),
    ({"path": "$.a[*]", "equals": 1}, {"a": [1, 2]}, True, False),
    ({"path": "$.a", "equals": 1}, {}, False, False),
    ({"path": "$.a", "not_equals": 1}, {}, True, False),
    ({"path": "$.a", "not_equals": 1}, {"a": 2}, True, True),
    ({"path": "$.a", "not_in": [1]}, {}, True, False),
    ({"path": "$.a", "in": [1, "x"]}, {"a": "x"}, True, True),
    ({"path": "$.a", "exists": False}, {}, True, True),
    ({"path": "$.a", "exists": True}, {"a": None}, True, True),
    ({"path": "$.a", "exists": True}, {}, False, False),
    ({"path": "$.a", "gt": 5}, {"a": "many"}, True, False),
    ({"path": "$.a", "gt": 5}, {"a": "6"}, True, True),
    ({"path": "$.a", "gt": 5}, {}, False, False),
    ({"path": "$.a", "lte": 5}, {"a": True}, True, False),
    ({"path": "$.a", "gt": 1, "lt": 3}, {"a": 2}, True, True),
    ({"path": "$.a[*]", "gt": 1, "lt": 3}, {"a": [0, 9]}, False, False),
    ({"path": "$.a", "regex": "rm"}, {"a": ["ls", "rm"]}, True, False),
    ({"path": "$.a", "regex": "rm -rf"}, {"a": ["rm", "-rf"]}, True, False),
    ({"path": "$.a", "regex": "^7$"}, {"a": 7}, True, True),
    ({"path": "$.a", "contains": "b"}, {"a": "abc"}, True, True),
    ({"path": "$.a", "contains": 2}, {"a": [1, "2"]}, True, True),
    ({"path": "$.a", "length": 2}, {"a": [1, 2]}, True, True),
    ({"path": "$.a", "length_gte": 3}, {"a": 7}, True, False),
    ({"path": "$.a", "length": 4}, {"a": 1234}, True, False),
    ({"path": "$.a", "length_lte": 2}, {"a": "abc"}, False, False),
    ({"path": "$.a", "type": "string"}, {"a": "x"}, True, True),
    ({"path": "$.a", "type": ["null", "integer"]}, {"a": 2.0}, True, True),
    ({"path": "$.a", "set_equals": [1, 2]}, {"a": [2, 1, 1]}, True, True),
    ({"path": "$.a[*]", "set_equals": [1]}, {"a": [1, 2]}, False, False),
    ({"path": "$.a", "set_equals": []}, {}, False, False),
    ({"path": "$.a[*]", "equals": 1, "at_least": 2}, {"a": [1, 2]}, False, False),
    ({"any_of": [{"path": "$.a", "equals": 1}, {"path": "$.b", "equals": 1}]}, {"b": 1}, True, True),
])  # fmt: skip
def test_conditions_fail_closed(condition: dict[str, Any], doc: Any, denies: bool, allows: bool) -> None:
    """To deny, one value is enough. To allow, there must be a value, and all must satisfy the condition."""
    assert (is_satisfied(condition, doc), is_satisfied(condition, doc, allows=True)) == (denies, allows)


@pytest.mark.parametrize(("condition", "doc", "input", "denies", "allows"), [
    ({"path": "$.max", "gte": {"arg": "$.n[*]"}}, {"max": 50}, {"n": [1, 99]}, True, False),
    ({"path": "$.max", "gte": {"arg": "$.n[*]"}}, {"max": 50}, {"n": [1, 9]}, True, True),
    ({"path": "$.max", "gte": {"arg": "$.n[*]"}}, {"max": 50}, {}, True, False),
    ({"path": "$.id", "equals": {"arg": "$.ids[*]"}}, {"id": 2}, {"ids": [1, 2]}, True, True),
    ({"path": "$.id", "in": {"arg": "$.ids"}}, {"id": 2}, {"ids": [1, 2]}, True, True),
    ({"path": "$.id", "not_equals": {"arg": "$.x"}}, {"id": 2}, {}, True, False),
    ({"path": "$.seats", "length": {"arg": "$.seats"}}, {"seats": [1, 2]}, {"seats": "ab"}, True, True),
])  # fmt: skip
def test_an_operand_may_refer_to_the_evaluated_call(
    condition: dict[str, Any], doc: Any, input: Any, denies: bool, allows: bool
) -> None:
    """Several values are alternatives. To allow, an ordering must hold for all of them."""
    about = About(input)

    assert (is_satisfied(condition, doc, about=about), is_satisfied(condition, doc, allows=True, about=about)) == (
        denies,
        allows,
    )


def test_outputs_are_compared_strictly() -> None:
    """Only the input of a call is compared loosely."""
    assert not is_satisfied({"path": "$.v", "equals": 1}, {"v": "1"}, loose=False)
    assert not is_satisfied({"path": "$.v", "regex": "a"}, {"v": ["a"]}, loose=False)


def test_values_dropped_at_the_bound_deny() -> None:
    """Beyond the bound, neither `in` nor `not_in` allows a call."""
    full = About({}, SeenValues(full=True))
    source = {"output_of": ["find"], "path": "$.id"}

    assert is_satisfied({"path": "$.a", "in": source}, {"a": 1}, about=full)
    assert not is_satisfied({"path": "$.a", "in": source}, {"a": 1}, allows=True, about=full)
    assert not is_satisfied({"path": "$.a", "not_in": source}, {"a": 1}, allows=True, about=full)


def test_every_value_of_a_duplicate_key_is_checked() -> None:
    """Programs differ in which of them they use."""
    first, last = ({"o": f'{{"x": "{a}", "x": "{b}"}}'} for a, b in ("ab", "ba"))
    condition = {"path": "$.o.x", "equals": "a"}

    assert [is_satisfied(condition, each) for each in (first, last)] == [True, True]
    assert [is_satisfied(condition, each, allows=True) for each in (first, last)] == [False, False]
    assert is_satisfied(condition, {"o": '{"x": "a", "x": "a"}'}, allows=True)


@pytest.mark.parametrize(("condition", "word"), [
    ({"path": "$.a"}, "operator"),
    ({"equals": 1}, "`path`"),
    ({"path": "$.a", "gt": [1]}, "number or a text"),
    ({"path": "$.a", "in": 1}, "takes a list"),
    ({"path": "$.a", "length": -1}, "whole number"),
    ({"path": "$.a", "regex": "(?=a)"}, "bad regular expression"),
    ({"path": "$.a", "regex": r"(a)\1"}, "bad regular expression"),
    ({"path": "$.a", "gt": {"output_of": ["t"]}}, "`output_of` goes with"),
    ({"any_of": []}, "no condition"),
    ({"any_of": [{"path": "$.a", "equals": 1}], "equals": 1}, "must be alone"),
    ({"not": []}, "no condition"),
    ({"not": [{"path": "$.a", "equals": 1}], "path": "$.b"}, "must be alone"),
    ({"not": [{"path": "$.a", "equals": 1}], "any_of": [{"path": "$.a", "equals": 1}]}, "two conditions"),
    ({"any_of": [{"path": "$.a", "equals": 1}], "at_least": 2}, "must be alone"),
    ({"path": "$.a", "within": ""}, "takes a directory"),
    ({"path": "$.a", "within": "C:\\work"}, "takes a directory"),
    ({"path": "$.a", "within": {"arg": "$.b"}}, ""),
    ({"path": "$.a", "runs": []}, "no command"),
    ({"path": "$.a", "runs": ["rm", " "]}, "first words"),
    ({"path": "$.a", "runs": "git *"}, "first words"),
    *(({"path": "$.a", "runs": odd}, "first words") for odd in ("^rm", '"rm"', "git 'push'", "git\\ push")),
    *(({"path": "$.a", "runs": odd}, "lists commands") for odd in ("rm, mv", "rm,mv", "[rm]", "FOO=1 rm")),
    *(({"path": "$.a", "within": odd}, "leave out") for odd in ("*", "src/**", "a?")),
    *(({"path": "$.a", "gt": odd}, "a number alone") for odd in ("5,000", "$5", "1_000", "5k", "5 %", "--5")),
    ({"path": "$.a", "contains": ""}, "every text"),
    ({"path": "$.a", "regex": ""}, "every text"),
    ({"path": "$.a", "regex": "/rm -rf/gi"}, "write `(?i)rm -rf`"),
    ({"path": "$.a", "regex": "/^rm/"}, "write `^rm`"),
    ({"path": "$.a", "gt": 5, "lt": 3}, "no value meets both"),
    ({"path": "$.a", "gte": "2026-02", "lt": "2026-02"}, "no value meets both"),
    ({"path": "$.a", "length_gte": 5, "length_lte": 3}, "no value meets both"),
    ({"path": "$.a", "in": [{"arg": "$.b"}]}, "one reference alone"),
    ({"path": "$.a", "equals": {"arg": "$.b", "x": 1}}, "one reference alone"),
    ({"path": "$.a", "runs": {"output_of": "t"}}, ""),
    ({"path": "$.a", "type": "text"}, ""),
])  # fmt: skip
def test_an_unsound_condition_is_an_error(condition: dict[str, Any], word: str) -> None:
    """At load; the message says what the condition needs."""
    try:
        found = [message for _, message in msgspec.convert(condition, Condition).problems()]
    except msgspec.ValidationError as error:
        found = [str(error)]

    assert found
    assert word in found[0]


@pytest.mark.parametrize("condition", [
    {"regex": "/etc/"},
    {"regex": "/etc/$|^/x/s"},
    {"gt": "2026-11-20T10:00:00Z", "lte": "2026-11-20T10:00:01Z"},
    {"gte": "2026-02", "lte": "2026-02"},
    {"gt": "v5"},
    {"gt": "1.2.3"},
    {"gt": "09:30"},
    {"within": "app/[slug]"},
    {"runs": ["./run.sh a,b", "kubectl get pods,svc", "["]},
    {"equals": {"arg": 1, "x": 2}},
    {"set_equals": []},
], ids=repr)  # fmt: skip
def test_an_unusual_but_sound_condition_is_accepted(condition: dict[str, Any]) -> None:
    """Paths between slashes, times, versions, names with signs."""
    assert [*msgspec.convert({"path": "$.a", **condition}, Condition).problems()] == []


PLACES = [
    *(("a/b", ".", True), ("a/../..", ".", None), ("../a", "..", True), ("a", "../b", None)),
    *(("../b/c", "../b", True), ("../../b", "../b", None), ("/a//b/./c/", "/a/b", True), ("/../a", "/a", True)),
    *(("/ab", "/a", False), ("/a", "/", True), ("/a", ".", None), ("~/a/b", "~/a", True), ("~", "~", True)),
    *(("~root/a", "~", None), ("a/~/b", "a", True), ("/A/b", "/a", None), ("/e\u0301/x", "/\u00e9", None)),
    *(("a\\..\\b", ".", None), ("a\0", ".", None), ("a/.. /b", ".", None), ("a/.../b", ".", True)),
    *(("a/..b/.c.", "a", True), (" a", ".", None), ("$HOME/a", ".", None), ("a/${X}/b", ".", None)),
    *(("https://a.b/c", ".", None), ("", ".", None), ("{a,/etc}/b", ".", None), ("{a..c}/b", ".", None)),
    *(("app/[id]/{x}", "app", True), ("/proc/self/root/etc/a", "/etc", None), ("//proc/./1/cwd/../a", "/etc", None)),
    *(("/proc/cpuinfo", "/etc", False), ("/dev/fd/3", "/etc", None), ("/dev/null", "/etc", False)),
    *(("a/proc/self/root", "a", True), ("/private/etc/a", "/etc", None), ("/etc/a", "/private/etc", None)),
    *(("/System/Volumes/Data/etc/a", "/etc", None), ("/private/x", "/etc", False), ("s*t/x", "secret", None)),
    *(("[s]ecret/x", "secret", None), ("**/x", "secret/deep", None), ("s*t", "secret/deep", False)),
    *(("*.md", "secret", False), ("[id]/x", "secret", False), ("secret./x", "secret", None)),
    *(("secret /x", "secret", None), ("se\u200ccret/x", "secret", None), (".../x", "secret", False)),
    *(("/bin/a", "/usr/bin", None), ("/usr/bin/a", "/bin", None), ("/sbin/a", "/usr/sbin", None)),
    *(("/lib/x.so", "/usr/lib", None), ("/lib64/a", "/usr", None), ("/usr/lib/a", "/usr/bin", False)),
    *(("/usr/sbin/a", "/usr/bin", None), ("/usr/bin/a", "/usr/bin", True), ("/bin/a", "/etc", False)),
    *(("/var/run/docker.sock", "/run", None), ("/run/a", "/var/run", None), ("/var/lock/a", "/run", None)),
    *(("/usr/tmp/a", "/var/tmp", None), ("/var/mail/a", "/var/spool/mail", None), ("/var/lib/a", "/run", False)),
    *(("/var/run/../etc/a", "/etc", None), ("/bin/../x", "/x", None), ("/var/runs/../etc/a", "/etc", False)),
    *(("/run/host/etc/a", "/etc", None), ("/run/hosts/a", "/etc", False), ("/.vol/1/2", "/etc", None)),
    *(("/.nofollow/etc/a", "/etc", None), ("/Volumes/Macintosh HD/etc/a", "/etc", None)),
    *(("/Volumes/work/a", "/Volumes/work", True), ("GIT~1/config", ".git", None), ("a/b~12.c/d", "a", None)),
    *(("backup~2024/x", "secret", False), ("notes.txt~", "secret", False), (".env::$DATA", ".env", None)),
]  # fmt: skip


def test_a_path_is_inside_a_directory_if_their_texts_prove_it() -> None:
    """If the texts prove neither, the answer is unknown."""
    for path, directory, answer in PLACES:
        assert inside(place_of(path), place_of(directory)) is answer, (path, directory, answer)


@pytest.mark.parametrize(("pattern", "name", "matches"), [
    ("bash", "Bash", True),
    ("bash", "bash2", False),
    ("mcp__*", "mcp__a__b", True),
    ("*search*", "web_search_api", True),
    ("read_?", "read_a", True),
    ("[ab]x", "BX", True),
    ("[!a]x", "ax", False),
    ("a.b", "axb", False),
    ("slack.*", "slack", False),
    ("é*", "Éclair", True),
    ("*", "", True),
])  # fmt: skip
def test_a_tool_pattern_is_a_case_insensitive_glob_of_the_whole_name(pattern: str, name: str, matches: bool) -> None:
    """`*` crosses every separator."""
    assert matcher([pattern])(name) is matches


def test_the_portable_names_are_those_of_the_documentation() -> None:
    acts = "bash delete edit fetch glob grep move read task web_search write"

    assert sorted(PORTABLE) == acts.split()


@pytest.mark.parametrize("pattern", ["", "  ", "[ab", "[", "[z-a]"])
def test_a_bad_tool_pattern_is_an_error(pattern: str) -> None:
    assert list(glob_problems(pattern))


@given(st.text(min_size=1, max_size=6, alphabet="ab*?[]-!^.\\&|~"), st.text(max_size=6, alphabet="ab-.\\["))
@example("[a--b]", "b")
@example("[a&&b]", "&")
def test_a_tool_pattern_that_loads_can_be_matched(pattern: str, name: str) -> None:
    """No pattern passes the check and fails in use."""
    if not list(glob_problems(pattern)):
        matcher([pattern])(name)


@given(st.text(max_size=12))
def test_a_regular_expression_that_loads_can_be_searched(pattern: str) -> None:
    """No pattern passes the check and fails in use, even on text that is not UTF-8."""
    if not list(regex_problems(pattern)):
        Regex(pattern).found_in("abc \ud800")


def test_a_pattern_that_would_backtrack_runs_in_linear_time() -> None:
    """A model can't hang the monitor: an engine that backtracks would need years."""
    assert not Regex("(a+)+$").found_in("a" * 100_000 + "b")


@pytest.mark.parametrize(
    ("scalar", "text"), [(7, "7"), (7.0, "7"), (7.5, "7.5"), (True, "true"), (None, "null"), ("x", "x")]
)
def test_a_numeric_id_equals_its_text(scalar: Any, text: str) -> None:
    """7, 7.0 and "7" are the same id."""
    assert text_of(scalar) == text


@pytest.mark.parametrize(
    ("raw", "value"), [('{"a": 1}', {"a": 1}), (" [1]", [1]), ("7", "7"), ("{no", "{no"), ({"a": 1}, {"a": 1})]
)
def test_only_an_output_text_with_an_object_or_array_is_parsed(raw: Any, value: Any) -> None:
    assert parsed_output(raw) == value


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
def test_both_engines_find_the_same_matches_including_empty_ones(flags: str, pattern: str, text: str) -> None:
    """In a part and in the whole of a text. Without `(?m)`, `$` is the end of the text."""
    assume(not list(regex_problems(flags + pattern)))
    own = pattern if "m" in flags else pattern.replace("$", r"\Z")
    expected = re.compile(flags + own, re.ASCII)

    assert Regex(flags + pattern).found_in(text) == (expected.search(text) is not None)
    assert Regex(rf"{flags}\A(?:{pattern})\z").found_in(text) == (expected.fullmatch(text) is not None)


@pytest.mark.parametrize(
    ("pattern", "instead"),
    [("a{,2}", "`{0,2}`"), ("a{,}", "`{0,}`"), (r"\\{,3}", "`{0,3}`"), ("a{0,2}", ""), (r"\{,2}", "")],
)
def test_a_quantifier_without_a_minimum_is_an_error(pattern: str, instead: str) -> None:
    """Python reads `{,2}` as `{0,2}`, RE2 as literal text."""
    found = [text for _, text in regex_problems(pattern)]

    assert len(found) == bool(instead)
    assert all(instead in text for text in found)


def test_the_patterns_of_one_file_share_a_bound() -> None:
    """Each pattern is small enough. If all of a file together are not, loading it stops with one error; the next file
    loads.
    """

    def file(patterns: int) -> dict[str, Any]:
        conditions = [{"path": "$.c", "regex": f"a{{1,900}}{n}"} for n in range(patterns)]
        return {"name": "x", "rules": [{"type": "blocklist", "tools": [{"tool": "b", "where": conditions}]}]}

    with pytest.raises(PolicyError) as raised:
        parse_policies(file(400))
    [problem] = raised.value.problems
    assert "too large together" in problem.message
    assert parse_policies(file(100))


@pytest.mark.parametrize(("pattern", "text", "found", "python"), [
    ("x*", "axb", ["", "x", "", ""], ["", "x", "", ""]),
    ("x*?", "xx", ["", "", ""], ["", "x", "", "x", ""]),
    ("(a|)", "ba", ["", "a", ""], ["", "a", ""]),
    ("(?:)", "é", ["", ""], ["", ""]),
    (r"\w+", "ab c", ["ab", "c"], ["ab", "c"]),
])  # fmt: skip
def test_after_an_empty_match_the_search_continues_one_character_later(
    pattern: str, text: str, found: list[str], python: list[str]
) -> None:
    """As documented. Python would look for a non-empty match at the same position."""
    assert list(Regex(pattern).values([text])) == found
    assert [match.group(match.re.groups and 1) for match in re.finditer(pattern, text)] == python


def test_a_copy_shares_no_object_or_list_with_the_original() -> None:
    """A value that occurs twice, or contains itself, does so in the copy."""
    shared: list[Any] = [1]
    value: dict[str, Any] = {"flat": {"a": 1}, "list": [shared, shared, "text"], "none": None}
    copy = copied(value)
    circle: list[Any] = []
    circle.append(circle)
    around = copied(circle)

    assert copy == value
    assert copied({"a": 1}) == {"a": 1}
    copy["list"][0].append(2)
    copy["flat"]["a"] = 2
    assert copy["list"][1] == [1, 2]
    assert value == {"flat": {"a": 1}, "list": [[1], [1], "text"], "none": None}
    assert around[0] is around
    assert around is not circle
