"""Policies in the files, folders and formats of other tools; each loads with the meaning it has there."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from proctor.policies import Limits, Policy, PolicyError, load_policies, merge_policies, migrate, parse_policies
from proctor.policies import events as ev
from proctor.policies.reading import yaml_source

from .test_load import problems_of

CASES: list[dict[str, Any]] = yaml.load((Path(__file__).parent / "formats_in_use.yaml").read_text(), yaml.CSafeLoader)


def case_id(case: dict[str, Any]) -> str:
    return str(case["it"])


def read(case: dict[str, Any]) -> list[Policy]:
    return parse_policies(case["text"], file=case.get("file", "book.yaml"))


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_a_text_of_another_tool_loads_with_its_meaning(case: dict[str, Any]) -> None:
    """It equals the policy in the standard spelling, which `migrate` returns and then leaves unchanged."""
    written = migrate(case["text"], file=case.get("file", "book.yaml"))

    assert parse_policies({"policies": case["means"]}) == read(case) == parse_policies(written)
    assert migrate(written) == written


@pytest.mark.parametrize("case", [case for case in CASES if "answers" in case], ids=case_id)
def test_a_policy_decides_as_in_the_tool_it_comes_from(case: dict[str, Any], drive: Any) -> None:
    """A call denied there is denied here, and the run continues if it does there."""
    session = drive(*case["means"])
    for tool, answer, *more in case["answers"]:
        input, out = [*more, {}, {}][:2]
        decision = session.propose(tool, **input)

        assert decision.action == answer, (tool, input)
        if answer == "allow":
            done = ev.ToolCallCompleted(tool_call_id=decision.tool_call_id, tool_name=tool, tool_output=out)
            session.see(done)


def test_a_directory_loads_every_policy_file_in_name_order(tmp_path: Path) -> None:
    """Other files, hidden files and subfolders are ignored."""
    (tmp_path / "b.yaml").write_text("rules: [{type: require, tool: x}]")
    (tmp_path / "a.json").write_text('{"policies": [{"name": "one"}, {"name": "two"}]}')
    (tmp_path / "c.YML").write_text("name: last\n---\nname: very last")
    (tmp_path / "README.md").write_text("# not a policy")
    (tmp_path / ".hidden.yaml").write_text("not: a policy")
    (tmp_path / "sub.yaml").mkdir()

    assert [policy.name for policy in load_policies(tmp_path)] == ["one", "two", "b", "last", "very last"]


def test_a_directory_of_contracts_is_one_policy(tmp_path: Path) -> None:
    """It has the directory's name. A contract's tool is its file's name, unless it names one."""
    folder = tmp_path / "library"
    folder.mkdir()
    (folder / "find.yaml").write_text("preconditions: [{requires_prior_tool: greet}]")
    (folder / "lend.yaml").write_text("tool: lend_book\nforbids_after: [lend_book]")
    (folder / "z.yaml").write_text("name: other\n")
    rules = [
        {"type": "precondition", "tool": "find", "action": "deny", "requires": [{"prior": "greet"}]},
        {"type": "forbids_after", "tool": "lend_book", "tools": ["lend_book"], "action": "deny"},
    ]

    assert load_policies(folder) == parse_policies(
        {"policies": [{"name": "library", "rules": rules}, {"name": "other"}]}
    )
    assert merge_policies(load_policies(folder)).name == "library + other"


def test_every_problem_in_a_directory_is_reported_with_its_file(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("name: p\nnope: 1\n---\nname: q\nnope: 2")
    (tmp_path / "b.yaml").write_text("name: [")
    with pytest.raises(PolicyError) as caught:
        load_policies(tmp_path)
    places = [(Path(p.file).name, p.line) for p in caught.value.problems]

    assert places == [("a.yaml", 2), ("a.yaml", 5), ("b.yaml", 1)]


@pytest.mark.parametrize(("written", "ms"), [
    ("10m", 600_000),
    ("90s", 90_000),
    ("2h", 7_200_000),
    ("250ms", 250),
    ("1h30m", 5_400_000),
    ("1.5h", 5_400_000),
    ("1d", 86_400_000),
    (" 5 s ", 5_000),
    ("1h 5s", 3_605_000),
    ("0s", 0),
])  # fmt: skip
def test_a_duration_with_a_unit_is_the_limit_in_milliseconds(written: str, ms: int) -> None:
    """Alone, or as the `max` of a limit with more fields."""
    full = {"max": written, "scope": "session", "action": "warn"}
    found = [
        p.limits for value in (written, full) for p in parse_policies({"name": "p", "limits": {"max_idle": value}})
    ]

    assert found == [
        Limits(max_idle_ms=ms),
        parse_policies({"name": "p", "limits": {"max_idle_ms": {**full, "max": ms}}})[0].limits,
    ]


@pytest.mark.parametrize(
    "written", ["10", 10, "", "10 x", "m", "-5m", "1m2h", "5m5m", "1e3s", "1,5h", True, "9" * 400 + "s"]
)
def test_a_bad_duration_is_the_only_error_at_its_position(written: Any) -> None:
    (problem,) = problems_of({"name": "p", "limits": {"max_duration": written, "max_turns": 3}})

    assert problem.path == "limits.max_duration"
    assert "expected a duration with its unit" in problem.message
    assert "`10m`" in problem.suggestion


@pytest.mark.parametrize(("text", "problems"), [
    ("limits: {max_turns: 3}", ["`name` is missing"]),
    ("name: p\nlimits:\n  max_duration_ms: 5\n  max_duration: 5s\n",
        ["4:3: `max_duration` and `max_duration_ms` are the same limit"]),
    ("{name: p, nets: [{name: n, places: [p], toolMapper: [block rm, 3], transitions: []}]}",
        ["1:54: expected a `map` line, got the text `block rm`", "1:64: expected a `map` line, got the number 3"]),
])  # fmt: skip
def test_a_text_outside_the_language_is_an_error(text: str, problems: list[str]) -> None:
    """A plain name for a policy with more than rules, one number for a limit, and text for another tool's code."""
    found = [f"{p.line}:{p.column}: {p.message}" for p in problems_of(text)]

    assert [problem.endswith(says) for problem, says in zip(found, problems, strict=True)] == [True] * len(
        problems
    ), found
    assert [policy.name for policy in parse_policies("rules: []")] == ["policy"]


@pytest.mark.skipif(not yaml.__with_libyaml__, reason="this PyYAML has no libyaml")
def test_both_yaml_parsers_give_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same policies, texts and positions for every case and every mistake in these tests."""
    policies = Path(__file__).parents[1]
    texts = [case["text"] for case in CASES] + [path.read_text() for path in sorted(policies.rglob("*.yaml"))]
    texts += [policy.read_text() for policy in sorted((policies.parents[1] / "examples").glob("*/*.yaml"))]
    texts += (policies / "analysis" / "mistakes.yaml").read_text().splitlines()
    texts += ["\n".join(text.splitlines()[:n]) for text in texts for n in (1, 2, 3, 5, 8, 13)]
    with monkeypatch.context() as slow:
        slow.setattr(yaml_source, "_FAST", None)
        slowly = [outcome(text) for text in texts]

    assert [outcome(text) for text in texts] == slowly


def outcome(text: str) -> Any:
    try:
        return parse_policies(text, file="p.yaml")
    except PolicyError as error:
        return error.problems
