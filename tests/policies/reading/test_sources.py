"""YAML, JSON and TOML: the same meaning, and the right positions in each."""

from typing import Any

import pytest

from proctor.policies import Limit, Policy, PolicyError, parse_policies

from .test_load import problems_of


def metadata_of(text: str, format: str | None = None) -> dict[str, Any]:
    return parse_policies(text, format=format)[0].metadata


@pytest.mark.parametrize(("written", "meant"), [
    *(("true", True), ("no", "no"), ("on", "on"), ("Yes", "Yes"), ("2020-01-01", "2020-01-01")),
    *(("12:30:00", "12:30:00"), ("1_000", "1_000"), ("0", 0), ("0o10", 8), ("-00.5", -0.5), ("'010'", "010")),
    *(("1e5", 100000.0), ("-.5", -0.5), ("~", None), ("'3'", "3"), ("!!str 3", "3"), ('"\\ud83d\\ude00"', "😀")),
    ("=", "="),
])  # fmt: skip
def test_unquoted_words_follow_the_yaml_core_schema(written: str, meant: Any) -> None:
    """There are no dates, base-60 numbers, or `yes` and `no`: only the types of YAML 1.2."""
    assert metadata_of(f"name: p\nmetadata: {{a: {written}}}") == {"a": meant}


def test_metadata_may_have_keys_named_like_parts_of_a_policy() -> None:
    """A `ticket` in the metadata is no approval, and decides nothing."""
    about = {"approval": "SEC-12", "name": "x", "version": 3, "rules_of": [1]}
    assert metadata_of(f"name: p\nmetadata: {about}") == about


@pytest.mark.parametrize("word", ["on", "yes", "1", "true", "null", "1.0"])
def test_keys_are_text_as_written(word: str) -> None:
    """YAML does not resolve keys, so they equal JSON's."""
    assert metadata_of(f"name: p\nmetadata: {{{word}: 1}}") == {word: 1}


@pytest.mark.parametrize("name", ["{}", "\t{}\r\n", "\ufeff{}"])
def test_json_text_loads_alike_under_any_format(name: str) -> None:
    """Tabs, escapes and surrogate pairs, which confuse YAML parsers, are parsed as JSON. Bytes are decoded first."""
    assert parse_policies(b"\xef\xbb\xbfname: p") == parse_policies("name: p")
    text = '{"name":\t"p",\n\t"metadata": {"a": "\\ud83d\\ude00\\/\\u0000\\t", "b": [1E5, -0, 1.50, null]}}'
    meant = {"a": "😀/\x00\t", "b": [100000.0, 0, 1.5, None]}

    assert [metadata_of(name.format(text), format) for format in (None, "yaml", "json")] == [meant] * 3


def test_anchors_aliases_and_merge_keys_are_resolved() -> None:
    """A key beside a merge key overrides it."""
    text = "name: p\nmetadata: {a: &a {x: 1, y: 2}, b: *a, c: {<<: *a, y: 3}}"

    assert metadata_of(text) == {"a": {"x": 1, "y": 2}, "b": {"x": 1, "y": 2}, "c": {"x": 1, "y": 3}}


@pytest.mark.parametrize(("source", "format", "place", "message"), [
    (b"name: p\nb: \xff", None, (2, 4), "the text is not UTF-8"),
    ("", None, (1, 1), "the file is empty"),
    ("# nothing\n", None, (1, 1), "the file is empty"),
    ("---\n", None, (2, 1), "the file is empty"),
    ("", "json", (1, 1), "the file is empty"),
    ("", "toml", (1, 1), "the file is empty"),
    ("[]", None, (1, 1), "a policy is a mapping, not a list"),
    ("just text", None, (1, 1), "a policy is a mapping, not the text `just text`"),
    ("a: b: c", None, (1, 5), "mapping values are not allowed here"),
    ("name: p\n\x07", None, (2, 1), "a character that YAML does not allow"),
    ("name: p\nname: q", None, (2, 1), "the key `name` is given twice, first on line 1"),
    ('{"name": "p",\n "name": "q"}', "json", (2, 2), "the key `name` is given twice, first on line 1"),
    ('{"name": "p"} x', "json", (1, 15), "something follows the value"),
    ('{"name": "p"', "json", (1, 13), "expected `,` or `}`"),
    ('{"name": NaN}', "json", (1, 10), "expected a value"),
    ('{"name": 01}', "json", (1, 11), "expected `,` or `}`"),
    ('{name: "p"}', "json", (1, 2), "expected a key in double quotes"),
    ('{"name": "\\ud800"}', "json", (1, 10), "an incomplete character"),
    ('{"name": "a\nb"}', "json", (1, 12), "invalid control character"),
    ('name: "\\ud800"', None, (1, 7), "an incomplete character"),
    ("a: *b", None, (1, 4), "no `&b` comes before `*b`"),
    ("a: &a [*a]", None, (1, 8), "`*a` stands inside itself"),
    ("a: !!python/object x", None, (1, 4), "the tag `!!python/object` is not known"),
    ("? [a]\n: b", None, (1, 3), "a key must be text"),
    ("name: p\n---\n[q]", None, (3, 1), "a policy is a mapping, not a list"),
    ("name: p\n---\na: *b", None, (3, 4), "no `&b` comes before `*b`"),
    ("a: &b 1\n---\na: *b", None, (3, 4), "no `&b` comes before `*b`"),
    ("---\n---\n", None, (3, 1), "the file is empty"),
    ("name: p" + " " * 1_000_000, None, (1, 1), "longer than 1,000,000 characters"),
    ("a: " + "9" * 5000, None, (1, 4), "too many digits"),
    ("a: 0777", None, (1, 4), "a number does not begin with 0; text does in quotes: '0777'"),
    ("a: [-010]", None, (1, 5), "a number does not begin with 0; text does in quotes: '-010'"),
    ('{"a": ' + "9" * 5000 + "}", "json", (1, 7), "too many digits"),
    ("name = 1\nname = 2", "toml", (2, 9), "cannot overwrite a value"),
    ("name = ", "toml", (1, 8), "invalid value"),
    ("name: p", "ini", (0, 0), "the format `ini` is not known"),
    ("name = 'p'\n[metadata]\nteam = 'core'\nlocked = true\n", "toml", (4, 10),
        "`locked` does nothing under `metadata`; it is a key of the policy"),
    ("rules:\n- type: require\n  tool: x\n  when:\n  - path: $.a\n    equals: yes", None, (6, 13), "`yes` is a text"),
    ("rules:\n- type: require\n  tool: x\n  when:\n  - path: $.a\n    in: ['no', Off]", None, (6, 16), "`Off` is a"),
    ("name: p\nmetadata:\n  rules: []", None, (3, 10), "`rules` does nothing under `metadata`"),
])  # fmt: skip
def test_a_text_that_cannot_be_parsed_is_one_error(
    source: Any, format: str | None, place: tuple[int, int], message: str
) -> None:
    """One problem, with the position where parsing stopped."""
    problem = problems_of(source, format=format)[0]

    assert (problem.line, problem.column) == place
    assert message in problem.message


@pytest.mark.parametrize(("written", "message"), [
    (r'"\brm\b"', r"use single quotes, or `\\b`"),
    (r'"[\P{L}]"', r"use single quotes, or `\\P`"),
    ("|\n      rm\n", "write `|-` where `|` is"),
    (r"'\brm\b'", ""),
    (r'"\\brm\\b"', ""),
    ("|-\n      rm\n", ""),
    (r"'rm\n'", ""),
])  # fmt: skip
def test_a_pattern_whose_escapes_the_file_format_changed_is_an_error(written: str, message: str) -> None:
    """No call would have the resulting text, so a deny with it would deny nothing."""
    text = f"name: p\nvirtual_tools:\n  - tool: bash\n    path: $.command\n    as: it\n    match: {written}\n"
    if message:
        problem = problems_of(text)[0]
        assert (problem.line, message in problem.message) == (6, True), problem
    else:
        assert parse_policies(text)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "a: " + "{b: " * 100_000, "- " * 50_000])
@pytest.mark.parametrize("format", [None, "json", "toml"])
def test_deep_nesting_is_an_error_not_a_crash(text: str, format: str | None) -> None:
    """The parsers stop at a fixed depth, below the interpreter's."""
    assert problems_of(text, format=format)


def test_an_expanding_document_is_an_error() -> None:
    """A mapping that contains itself, and nine lists of nine aliases each."""
    loop: dict[str, Any] = {"name": "p"}
    loop["metadata"] = loop
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]

    assert "nested deeper than 64 levels" in problems_of(loop)[0].message
    assert "stand for too much text" in problems_of("\n".join(lines))[0].message


TOML = """\
name = "p"
limits.max_turns = -1
aliases."a b" = []

[limits.max_tool_calls]
max = 1
'warn_at' = 2 # too much

[[tool_rules]]
deny = [
  "bash", # a comment with ] and "
  "", ]

[[rules]]
type = "befor"
[[rules]]
type = '''count'''
tool = { tool = "x", where = [ { path = "a" , exists = true } ] }
max = 2020-01-01 10:00:00
[rules.unknown]
[metadata]
a.b = inf
"""


def test_problems_in_toml_have_their_line_and_column() -> None:
    """Tables, lists of tables, dotted and quoted keys, inline tables."""
    assert [(p.line, p.column, p.path) for p in problems_of(TOML, format="toml")] == [
        (2, 20, "limits.max_turns"),
        (3, 17, "aliases.a b"),
        (7, 13, "limits.max_tool_calls.warn_at"),
        (12, 3, "tool_rules[0].deny[1]"),
        (15, 8, "rules[0].type"),
        (18, 41, "rules[1].tool.where[0].path"),
        (19, 7, "rules[1].max"),
        (20, 8, "rules[1].unknown"),
        (22, 7, "metadata.a.b"),
    ]


def test_problems_in_json_have_their_line_and_column() -> None:
    """Columns count characters, not bytes."""
    text = '{\n  "name": "p",\n  "metadata": {"é": 1},  "locked": "no",\n  "limits": {"max_turns": -1}\n}'
    assert [(p.line, p.column) for p in problems_of(text)] == [(3, 36), (4, 27)]


@pytest.mark.parametrize(("text", "words"), [
    ("name: x\ntool_rules: [{deny: [ *_x ]}]\n", "put a name that begins with `*` in quotes: `'*_x'`"),
    ("name: x\ntool_rules:\n  - deny:\n    - *\n", "put a name that begins with `*` in quotes"),
    ("name: x\nlimits:\n\tmax_turns: 3\n", "a tab where YAML allows only spaces"),
    ('{"name": "x", // why\n "limits": {"max_turns": 3}}', "JSON: it has no comments"),
    ('/* why */ {"name": "x"}', "JSON: it has no comments"),
    ("name: x\nlimits: {max_turns: 3} // why\n", "a comment begins with `#`"),
    ("name: x\napproval: {approvers: [@sre]}\n", "put the text in quotes"),
    ('name: x\ndescription: "\\.env"\n', "put the text in single quotes"),
    ("name: x\ndescription: a: b\n", "put a text that contains `: ` in quotes"),
    ("name: x\nrules:\n - type: before\n   first: a\n  then: b\n", "indent it like the other lines"),
    ("name: x\nrules: [{type: before,\n  first: a\n", "2:9: not YAML"),
    ("name: 'x\nlimits: {max_turns: 3}\n", "1:7: not YAML"),
    ("name: x\nlimits: [{max_turns: 3}, {max_turns: 4}]\n", "the limit `max_turns` is given twice"),
    ("name: x\nlimits: [3]\n", "expected a mapping, got the number 3"),
    ("name: x\nrationale: y\n", "did you mean `description`?"),
    ("transitions: [{name: t}]\nname: n\n", "`places` is missing"),
    ("name: x\nrules: [{type: precondition, tool: t, requires: [{user_said: 'a\\Bb'}]}]\n",
        "does not mean the same"),
])  # fmt: skip
def test_the_error_for_a_common_mistake_says_what_to_write(text: str, words: str) -> None:
    with pytest.raises(PolicyError) as raised:
        parse_policies(text)

    assert words in str(raised.value)


def test_limits_may_be_a_list_and_have_grouped_digits() -> None:
    """Text that looks like a number stays text."""
    (policy,) = parse_policies(
        "name: x\nlimits: [{max_total_tokens: 8_000}, {max_duration: 2m}]\nmetadata: {a: 8_000}\n"
    )

    assert policy.limits is not None
    assert (policy.limits.max_total_tokens, policy.limits.max_duration_ms) == (8000, 120_000)
    assert policy.metadata == {"a": "8_000"}


def test_a_value_outside_a_fields_choices_is_rejected_at_construction() -> None:
    """For every record."""
    with pytest.raises(PolicyError, match="use one of `cancel`"):
        Policy(name="x", on_violation="explode")  # type: ignore[arg-type]
    with pytest.raises(PolicyError, match="use one of `run`"):
        Limit(max=1, scope="week")  # type: ignore[arg-type]
