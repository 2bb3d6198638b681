"""Loading policies: which texts are accepted, and how each mistake is reported."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from proctor.policies import Policy, PolicyError, compile_policy, draw, merge_policies, parse_policies, preflight
from proctor.policies.errors import Problem
from proctor.policies.limits import Limit, Limits
from proctor.policies.policy import Allow, Deny
from proctor.policies.reading import check_policy, load_policies
from proctor.policies.rules.count import Count
from proctor.policies.rules.precedence import Before
from proctor.policies.rules.python_check import Check
from proctor.policies.rules.response import Require
from proctor.policies.values.model_base import Issue

from .test_schema import RULE_EXAMPLES

DAMAGED = """\
version: 1
name: production
on_violation: halt
limit: {max_turns: 3}
limits:
  max_total_tokens: "8000"
  max_cost_usd: .inf
  max_tool_calls: true
  max_turns: -1
tool_rules:
  - deny: bash
  - alow: [read]
  - {allow: [read], deny: [bash]}
rules:
  - type: befor
  - {type: before, first: read}
  - {type: before, then: "[ab"}
  - {type: count, tool: {tool: x, where: [{path: a, regex: "("}]}, max: 1.5}
"""


def problems_of(source: Any, **options: Any) -> tuple[Problem, ...]:
    with pytest.raises(PolicyError) as caught:
        parse_policies(source, **options)
    return caught.value.problems


def test_a_policy_in_text_equals_the_same_policy_in_python() -> None:
    """Python lists become the same types as those of a text."""
    text = (
        "name: p\non_violation: cancel\nlimits: {max_tool_calls: 3, max_cost_usd: {max: 5, action: deny}}\n"
        "tool_rules: [{deny: [bash]}, {allow: [read]}]\nrules: [{type: before, first: [a, b], then: c}]\n"
        "aliases: {Both: [a, b]}\n"
    )

    made = Policy(
        name="p",
        on_violation="cancel",
        limits=Limits(max_tool_calls=3, max_cost_usd=Limit(max=5, action="deny")),
        tool_rules=[Deny(["bash"]), Allow(["read"])],
        rules=[Before(first=["a", "b"], then="c")],
        aliases={"Both": ["a", "b"]},
    )
    check_policy(made)

    assert [made] == parse_policies(text)


def test_every_problem_is_reported_at_once_with_its_line_and_column() -> None:
    """In the order of the text."""
    found = [(p.line, p.column, p.path) for p in problems_of(DAMAGED)]

    assert found == [
        (3, 15, "on_violation"),
        (4, 1, "limit"),
        (6, 21, "limits.max_total_tokens"),
        (7, 17, "limits.max_cost_usd"),
        (8, 19, "limits.max_tool_calls"),
        (9, 14, "limits.max_turns"),
        (11, 11, "tool_rules[0].deny"),
        (12, 5, "tool_rules[1].alow"),
        (13, 5, "tool_rules[2]"),
        (15, 11, "rules[0].type"),
        (16, 5, "rules[1]"),
        (17, 5, "rules[2]"),
        (17, 26, "rules[2].then"),
        (18, 50, "rules[3].tool.where[0].path"),
        (18, 60, "rules[3].tool.where[0].regex"),
        (18, 73, "rules[3].max"),
    ]


def test_a_problem_includes_its_source_line() -> None:
    problem = problems_of("name: p\nlocked: yes\n", file="team.yaml")[0]

    assert problem.source == "locked: yes"
    assert str(problem) == "team.yaml:2:9: expected true or false, got the text `yes` at `locked`"


@pytest.mark.parametrize(
    "rule",
    [
        {"type": "loop", "threshold": 3},
        {"type": "count", "tool": "x", "maximum": 3},
        {"type": "blocklist", "tools": [{"tool": "bash", "where": [{"path": "$.command", "run": ["rm"]}]}]},
    ],
)
def test_one_mistake_is_one_problem(rule: dict[str, Any]) -> None:
    """What a missing or misspelt key leaves open is not reported as well."""
    with pytest.raises(PolicyError) as caught:
        parse_policies({"name": "p", "rules": [rule]})

    assert len(caught.value.problems) == 1


PAY = {"type": "provenance", "tool": "pay", "path": "$.iban"}
REFUND = {"type": "precondition", "tool": "refund"}


@pytest.mark.parametrize(("source", "path", "suggestion"), [
    ("org.yaml", "", "`load_policies(path)` reads a file"),
    ({"name": "p", "limit": {}}, "limit", "did you mean `limits`?"),
    ({"name": "p", "limits": {"maxToolCalls": 1}}, "limits.maxToolCalls", "did you mean `max_tool_calls`?"),
    ({"name": "p", "on_violation": "halt"}, "on_violation", "did you mean `cancel`?"),
    ({"name": "p", "on_violation": "dney"}, "on_violation", "did you mean `deny`?"),
    ({"name": "p", "rules": [{"type": "blacklist"}]}, "rules[0].type", "did you mean `blocklist`?"),
    ({"name": "p", "tool_rules": [{"denny": ["x"]}]}, "tool_rules[0].denny", "did you mean `deny`?"),
    ({"name": "p", "limits": {"max_turns": "3"}}, "limits.max_turns", "remove the quotes"),
    ({"name": "p", "version": "1"}, "version", "remove the quotes"),
    ({"name": "p", "limits": {"max_cost_usd": "$5"}}, "limits.max_cost_usd", "write `5`"),
    ({"name": "p", "limits": {"max_cost_usd": {"max": 5, "warn_at": "80%"}}}, "limits.max_cost_usd.warn_at",
        "write it as a fraction: `0.8`"),
    ({"name": 3}, "name", "put it in quotes"),
    ({"name": "p", "tool_rules": [{"deny": "bash"}]}, "tool_rules[0].deny", "put it in brackets: `[bash]`"),
    ({"name": "p", "tool_rules": {"deny": ["x"]}}, "tool_rules", "put it in brackets: `[{...}]`"),
    ({"name": "p", "rules": [{**PAY, "from": ["book"]}]}, "rules[0].from[0]", "write `{tool: book}`"),
    ({"name": "p", "rules": [{**PAY, "from": ["usermessage"]}]}, "rules[0].from[0]", "did you mean `user_message`?"),
    ({"name": "p", "rules": [{**PAY, "from": "book"}]}, "rules[0].from", "put it in brackets: `[{tool: book}]`"),
    ({"name": "p", "rules": [{**PAY, "from": "user_message"}]},
        "rules[0].from", "put it in brackets: `[user_message]`"),
    ({"name": "p", "rules": [{**REFUND, "requires": [{"prior": "check", "same": "$.order"}]}]},
        "rules[0].requires[0].same", "put it in brackets: `[{path: $.order}]`"),
    ({"name": "p", "rules": [{**REFUND, "requires": ["check"]}]}, "rules[0].requires[0]", "write `{prior: check}`"),
    ({"name": "p", "rules": [{**REFUND, "requires": [{"any_of": "check"}]}]}, "rules[0].requires[0].any_of",
        "put it in brackets: `[{prior: check}]`"),
    ({"name": "p", "rules": [{"before": {"first": "a", "then": "b"}}]}, "rules[0]",
        "write `type: before`, and its fields beside it"),
    ({"name": "p", "rules": [{**PAY, "when": "$.tenant == acme"}]}, "rules[0].when",
        "put it in brackets: `[{path: $.tenant, equals: acme}]`"),
    ({"name": "p", "rules": [{**PAY, "when": ["$.labels.n>=5"]}]}, "rules[0].when[0]",
        "write `{path: $.labels.n, gte: 5}`"),
    ({"name": "p", "rules": [{**PAY, "when": [{"path": "$.tenant", "equals": "a", "eq": "acme"}]}]},
        "rules[0].when[0].eq", "did you mean `equals`?"),
])  # fmt: skip
def test_the_error_for_a_misspelt_word_suggests_the_nearest_known_word(
    source: Any, path: str, suggestion: str
) -> None:
    problem = problems_of(source)[0]

    assert (problem.path, problem.suggestion) == (path, suggestion)


@pytest.mark.parametrize("source", [
    {"version": "1", "name": "p"},
    {"name": ""},
    {"name": "p", "description": None},
    {"name": "p", "limits": {"max_turns": float("nan")}},
    {"name": "p", "aliases": {"A": []}},
    {"name": "p", "prices": {"m": {"input_usd_per_mtok": 1}}},
    *({"name": "p", "metadata": each} for each in ({"at": 10**30}, {"at": float("inf")}, {"at": object()}, {1: 2})),
    *({"name": "p", "nets": [net]} for net in ("require before delete", 3)),
    *({"name": "p", "rules": [rule]} for rule in ({"type": ["before"]}, {"type": "check", "check": "x"}, "before")),
    *({"policies": each} for each in ({"name": "p"}, [3])),
    *([], None, 3, "", "- name: p", "{", "name: ["),
])  # fmt: skip
def test_a_document_that_is_no_policy_is_a_policy_error(source: Any) -> None:
    """It is never read as something else, and no other exception is raised."""
    assert problems_of(source)


def test_a_file_may_have_a_list_of_policies() -> None:
    """The second is checked even if the first is wrong."""
    assert [p.name for p in parse_policies("policies: [{name: a}, {name: b}]")] == ["a", "b"]
    found = problems_of({"policies": [{"nam": "a"}, {"name": 3}]})
    assert [p.path for p in found] == ["policies[0].nam", "policies[0]", "policies[1].name"]


def test_a_duplicate_id_or_name_is_reported_with_both_lines() -> None:
    """Of rules and of nets, to which validators are attached by name. A line of shorthand is its net's name."""
    text = "name: p\nrules:\n- {type: require, id: r, tool: a}\n- {type: require, id: r, tool: b}\n"
    problem = problems_of(text)[0]
    nets = "name: p\nnets:\n- block rm\n- {line: block rm, action: deny}\n- {name: block rm, places: [a]}\n"
    found = problems_of(nets)

    assert (problem.line, problem.message) == (4, "the id `r` is taken by `rules[0]` on line 3")
    assert [(problem.line, problem.column) for problem in found] == [(4, 10), (5, 10)]
    assert {problem.message for problem in found} == {"the name `block rm` is taken by `nets[0]` on line 3"}


def test_integers_may_be_written_with_a_point_or_an_exponent() -> None:
    """JSON does not distinguish 3 from 3.0."""
    (policy,) = parse_policies('{"name": "p", "rules": [{"type": "count", "tool": "x", "max": 3E0}]}')
    rule = policy.rules[0]

    assert isinstance(rule, Count)
    assert (rule.max, type(rule.max)) == (3, int)


def test_the_suffix_of_a_file_selects_its_format(tmp_path: Path) -> None:
    texts = {
        "p.yaml": "name: p\nlimits: {max_turns: 3}\n",
        "p.yml": "name: p\nlimits:\n  max_turns: 3\n",
        "p.json": '{"name": "p", "limits": {"max_turns": 3}}',
        "p.toml": 'name = "p"\n[limits]\nmax_turns = 3\n',
        "policy": "name: p\nlimits: {max_turns: 3}\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    read = [load_policies(tmp_path / name) for name in texts]

    assert read == [[Policy(name="p", limits=Limits(max_turns=3))]] * len(texts)


@pytest.mark.parametrize("block", ["tests: [{name: one, calls: [Bash]}]", "prove: [{name: one, reach: Bash}]"])
def test_policy_tests_in_a_folder_are_not_loaded_as_policies(block: str, tmp_path: Path) -> None:
    """Loaded by its own path, such a file is an error, and so is a folder with only such files."""
    (tmp_path / "p.yaml").write_text("name: p\nlimits: {max_turns: 3}\n")
    tests = tmp_path / "p.test.yaml"
    tests.write_text(f"policies: [p.yaml]\n{block}\n")

    assert [policy.name for policy in load_policies(tmp_path)] == ["p"]
    with pytest.raises(PolicyError, match=r"p\.test\.yaml:1:1: a file of tests, not a policy; `proctor test`"):
        load_policies(tests)
    (tmp_path / "p.yaml").unlink()
    with pytest.raises(PolicyError, match="no policy is in the directory, only tests of policies"):
        load_policies(tmp_path)


@pytest.mark.parametrize("name", ["sessions.jsonl", "sessions.jsonl.gz", "sessions.ndjson", "sessions.ndjson.gz"])
def test_recorded_sessions_are_no_policy(tmp_path: Path, name: str) -> None:
    """Who mixes up the order of a command's files learns what this one is for."""
    (tmp_path / name).write_bytes(b"\x1f\x8b\x08" if name.endswith(".gz") else b'{"id": "s", "events": []}\n')

    with pytest.raises(
        PolicyError, match=r":1:1: recorded sessions, not a policy; `proctor eval --policy FILE` reads"
    ):
        load_policies(tmp_path / name)


def test_a_missing_file_is_a_policy_error(tmp_path: Path) -> None:
    """The error names the file and the cause."""
    with pytest.raises(PolicyError, match=r"nowhere\.yaml: cannot read the file: no such file"):
        load_policies(tmp_path / "nowhere.yaml")
    with pytest.raises(PolicyError, match="no policy file is in the directory; their names end in"):
        load_policies(tmp_path)


def test_a_dangling_link_in_a_policy_folder_is_an_error(tmp_path: Path) -> None:
    """Its rules were meant to apply."""
    (tmp_path / "a.yaml").write_text("name: a")
    (tmp_path / "org.yaml").symlink_to(tmp_path / "unmounted" / "org.yaml")

    with pytest.raises(PolicyError, match=r"org\.yaml: cannot read the file: no such file"):
        load_policies(tmp_path)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (Policy(name=""), "must not be empty at `name`"),
        (Policy(name="p", limits={"max_turns": 1}), "expected a `Limits`, got a mapping at `limits`"),  # type: ignore[arg-type]
        (Policy(name="p", limits=Limits(max_turns="3")), "expected a number"),  # type: ignore[arg-type]
        (Policy(name="p", rules=(Deny(("x",)),)), "expected a `Rule`, got a `Deny` at `rules"),  # type: ignore[arg-type]
        (Policy(name="p", tool_rules=(Deny("bash"),)), "expected a list"),
        (Policy(name="p", rules=(Check(check=3),)), "expected a Python callable"),  # type: ignore[arg-type]
        (Policy(name="p", metadata={"a": float("nan")}), "must be finite"),
        ("p", "expected a policy, got a value of type `str`; `load_policies(path)` reads a file"),
        ([Policy(name="p")], "expected a policy, got a value of type `list`; `merge_policies` makes one of a list"),
    ],
)
def test_a_policy_built_in_python_is_checked_as_a_text_is(policy: Any, message: str) -> None:
    """Python does not check a record's types."""
    with pytest.raises(PolicyError) as caught:
        check_policy(policy)

    assert message in str(caught.value)


@pytest.mark.parametrize(("policy", "message"), [
    ({"tool_rules": [{"allow": [{"tool": "a", "where": []}]}]},
        "must not be empty at `tool_rules[0].allow[0].where`"),
    ({"rules": [{"type": "count", "tool": "a", "min": 0}]}, "asks for nothing"),
    ({"nets": ["map bash.command /rm/i as x"]}, "flags stand in the expression: `/(?i)rm/`"),
    ({"nets": ['map bash.command "" as x']}, "names no words"),
])  # fmt: skip
def test_empty_requirements_are_an_error(policy: dict[str, Any], message: str) -> None:
    """An empty list of conditions would match every input."""
    with pytest.raises(PolicyError, match=re.escape(message)):
        parse_policies({"name": "p", **policy})


def test_a_check_rule_can_only_be_created_in_python() -> None:
    check_policy(Policy(name="p", rules=(Check(check=lambda call: True),)))

    assert "unknown rule type `check`" in problems_of({"name": "p", "rules": [{"type": "check"}]})[0].message


def test_lines_of_nets_are_checked_beside_other_errors() -> None:
    """A wrong line, an alias without tools and a misspelt key are reported together."""
    found = problems_of({"name": "p", "nets": ["limit push to x per session"], "aliases": {"a": []}, "x": 1})

    assert {problem.path for problem in found} == {"nets[0]", "aliases.a", "x"}


class Counted(Require, tag="require", frozen=True):
    """A rule that counts its checks."""

    def problems(self) -> Iterator[Issue]:
        checks.append(1)
        yield from super().problems()


checks: list[int] = []


def test_a_valid_policy_is_checked_once() -> None:
    """Merging checks each policy; preflight, drawing and compiling do not repeat it. The parser has checked what it
    loaded.
    """
    checks.clear()
    stack = merge_policies([Policy(name="a", rules=[Counted(tool="x")]), Policy(name="b")])
    preflight(stack)
    draw(stack)
    compile_policy(stack)
    assert len(checks) == 1

    (policy,) = parse_policies({"name": "a", "rules": [Counted(tool="x")]})
    compile_policy(merge_policies([policy]))
    assert len(checks) == 2


@pytest.mark.parametrize("changed", [{"name": ""}, {"prices": {"m": 3}}, {"rules": [{"type": "require"}]}])
def test_a_modified_copy_is_checked_again(changed: dict[str, Any]) -> None:
    """Only the checked record itself counts as valid. An invalid one is an error each time."""
    wrong = msgspec.structs.replace(parse_policies({"name": "a"})[0], **changed)
    for _ in range(2):
        with pytest.raises(PolicyError):
            compile_policy(wrong)


SELF = {"tool": "x", "where": [{"path": "$.a", "equals": {"arg": "$.b"}}]}
INSIDE = {"tool": "x", "where": [{"not": [{"any_of": [{"path": "$.a", "equals": {"arg": "$.b"}}]}]}]}

WITHOUT_A_CALL: dict[str, dict[str, Any]] = {
    "before.first": {"type": "before", "first": SELF, "then": "y"},
    "before.first in a list": {"type": "before", "first": ["z", SELF], "then": "y"},
    "before.first, negated": {"type": "before", "first": INSIDE, "then": "y"},
    "immediately_before.first": {"type": "immediately_before", "first": SELF, "then": "y"},
    "after.then": {"type": "after", "trigger": "y", "then": SELF},
    "eventually.tool": {"type": "eventually", "tool": SELF, "within": 2},
    "require.tool": {"type": "require", "tool": SELF},
    "never_after.trigger": {"type": "never_after", "trigger": SELF, "forbidden": "y"},
    "forbids_after.tool": {"type": "forbids_after", "tool": SELF, "tools": ["y"]},
    "sequence.tools": {"type": "sequence", "tools": ["y", SELF]},
    "forbidden_sequence.sequence": {"type": "forbidden_sequence", "sequence": [SELF, "y"]},
    "provenance.from": {"type": "provenance", "tool": "y", "path": "$.a", "from": [{"tool": SELF, "path": "$.a"}]},
}
WITH_THE_CALL: dict[str, dict[str, Any]] = {
    "before.then": {"type": "before", "first": "y", "then": SELF},
    "after.trigger": {"type": "after", "trigger": SELF, "then": "y"},
    "never_after.forbidden": {"type": "never_after", "trigger": "y", "forbidden": SELF},
    "forbids_after.tools": {"type": "forbids_after", "tool": "y", "tools": [SELF]},
    "forbidden_sequence's last": {"type": "forbidden_sequence", "sequence": ["y", SELF]},
    "blocklist.tools": {"type": "blocklist", "tools": [SELF]},
    "count.tool": {"type": "count", "tool": SELF, "max": 1},
    "precondition.tool": {"type": "precondition", "tool": SELF, "requires": [{"turns_gte": 1}]},
    "prior's where": {"type": "precondition", "tool": "y", "requires": [{"prior": SELF}]},
}


@pytest.mark.parametrize("rule", WITHOUT_A_CALL.values(), ids=WITHOUT_A_CALL)
def test_a_reference_to_the_call_outside_its_evaluation_is_an_error(rule: dict[str, Any]) -> None:
    """It would compare the call with itself and always pass. The error names the rule."""
    with pytest.raises(PolicyError, match="no call is being evaluated") as raised:
        parse_policies({"name": "p", "rules": [rule]})

    assert raised.value.problems[0].path.startswith("rules[0]")


@pytest.mark.parametrize("rule", WITH_THE_CALL.values(), ids=WITH_THE_CALL)
def test_the_selector_of_the_evaluated_call_may_refer_to_it(rule: dict[str, Any]) -> None:
    """Section 4: `output`, the `where` of a prior, and the selector of the call."""
    assert parse_policies({"name": "p", "rules": [rule]})


@pytest.mark.parametrize("rule", RULE_EXAMPLES, ids=lambda rule: rule["type"])
@pytest.mark.parametrize(
    ("field", "wrong"),
    [("when", [{"path": "$.tenant", "equals": {"arg": "$.t"}}]), ("key", "$.a[")],
    ids=["when", "key"],
)
def test_fields_that_every_rule_has_are_checked_on_each(rule: dict[str, Any], field: str, wrong: Any) -> None:
    found = problems_of({"name": "p", "rules": [rule | {field: wrong}]})

    assert any(problem.path.startswith(f"rules[0].{field}") for problem in found)


BAD: dict[str, Any] = {"tool": "x", "where": [{"path": "$.a[", "exists": True}]}
NO_TOOLS: dict[str, tuple[dict[str, Any], str]] = {
    "count": ({"rules": [{"type": "count", "tool": [], "max": 1}]}, "rules[0].tool"),
    "loop": ({"rules": [{"type": "loop", "tool": [], "window": 2, "threshold": 2}]}, "rules[0].tool"),
    "count's path": ({"rules": [{"type": "count", "tool": BAD, "max": 1}]}, "rules[0].tool"),
    "blocklist's path": ({"rules": [{"type": "blocklist", "tools": [BAD]}]}, "rules[0].tools"),
    "a transition's path": ({"nets": [{"name": "n", "places": ["a"],
        "transitions": [{"name": "t", "tools": [BAD]}]}]}, "nets[0].transitions[0].tools"),
    "a transition": ({"nets": [{"name": "n", "places": ["a"],
        "transitions": [{"name": "t", "tools": [{"tool": []}]}]}]}, "nets[0].transitions[0].tools"),
    "no alternative": ({"rules": [{"type": "precondition", "tool": "x", "requires": [{"any_of": []}]}]},
        "rules[0].requires[0].any_of"),
    "an approval in a list": ({"rules": [{"type": "blocklist", "tools": ["x", "human-approval"]}]},
        "rules[0].tools[1]"),
    "an approval in a transition": ({"nets": [{"name": "n", "places": [],
        "transitions": [{"name": "t", "tools": ["x", "human-approval"]}]}]}, "nets[0].transitions[0].tools[1]"),
}  # fmt: skip


@pytest.mark.parametrize(("document", "where"), NO_TOOLS.values(), ids=NO_TOOLS)
def test_an_empty_tool_or_path_is_an_error_at_its_field(document: dict[str, Any], where: str) -> None:
    found = problems_of({"name": "p", **document})

    assert {problem.path.removeprefix(where)[:1] for problem in found} <= {"", "[", "."}
