"""No small policy text is expensive to load, and none that restricts nothing passes as one that does."""

import functools
import json
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from calling import called

from proctor.policies import PolicyError, ToolCall, compile_policy, merge_policies, parse_policies, preflight

PATIENCE_S = 10.0
"""Processor time on a slow machine; each takes a fraction of a second."""
LETTERS = "abcdefghijklmnopqrstuvwx"


def nested(inner: Any, times: int, wrap: Any) -> Any:
    return functools.reduce(lambda value, _: wrap(value), range(times), inner)


def doubling(depth: int) -> dict[str, list[str]]:
    """Aliases that each stand for the next one, twice."""
    return {f"a{n}": [f"a{n + 1}"] * 2 for n in range(depth)}


def bomb(item: str, depth: int = 12) -> str:
    """YAML whose aliases multiply by ten at each line."""
    lines = [f"  a{n}: &a{n} {item % ', '.join([f'*a{n - 1}'] * 10)}\n" for n in range(1, depth)]
    return "name: p\nmetadata:\n  a0: &a0 {x: 1}\n" + "".join(lines)


REFUSED: dict[str, tuple[Any, str]] = {
    "aliases of a text within aliases": (bomb("[%s]"), "stand for too much text"),
    "mappings merged within mappings": (bomb("{<<: [%s]}"), "stand for too much text"),
    "an alias inside itself": ("name: &a [*a]", "stands inside itself"),
    "brackets": ("name: p\nmetadata: " + "[" * 100_000, "nested deeper than 64 levels"),
    "closed brackets": ("name: p\nmetadata: " + "[" * 5_000 + "]" * 5_000, "nested deeper than 64 levels"),
    "dashes": ("- " * 100_000, "nested deeper than 64 levels"),
    "indented keys": ("a:\n" + "".join(" " * n + "a:\n" for n in range(1, 500)), "nested deeper than 64 levels"),
    "JSON brackets": ('{"name": "p", "metadata": ' + "[" * 100_000, "nested deeper than 64 levels"),
    "a nested value": ({"name": "p", "metadata": {"a": nested(1, 100_000, lambda v: [v])}}, "nested deeper"),
    "a long text": ("name: " + "a" * 1_000_000, "longer than 1,000,000 characters"),
    "a long number": ("name: p\nlimits: {max_turns: " + "9" * 100_000 + "}", "too many digits"),
    "aliases in a circle": ({"name": "p", "aliases": {f"a{n}": [f"a{m}" for m in range(12)] for n in range(12)}},
        "aliases refer to each other in a circle: a0 -> a1 -> a0"),
    "a circle of three": ({"name": "p", "aliases": {"A": ["b"], "B": ["x", "c"], "C": ["a", "A"]}},
        "aliases refer to each other in a circle: a -> b -> c -> a"),
    "a long glob": ({"name": "p", "tool_rules": [{"deny": ["*a" * 4_000]}]}, "at most 500 characters"),
    "a glob of wildcards": ({"name": "p", "tool_rules": [{"deny": ["*a" * 30]}]}, "at most 24 wildcards"),
    "a glob of classes": ({"name": "p", "rules": [{"type": "require", "tool": "[ab]*" * 30}]},
        "at most 24 wildcards"),
    "a long glob in a net": ({"name": "p", "nets": ["block " + "*a" * 4_000]}, "at most 500 characters"),
    "a regex that repeats repetitions": ({"name": "p",
        "virtual_tools": [{"tool": "a", "path": "$", "match": "(a{1000}){1000}", "as": "x"}]},
        "bad regular expression"),
    "nested groups": ({"name": "p", "virtual_tools": [{"tool": "a", "path": "$", "match": "(" * 2_000 + ")" * 2_000,
        "as": "x"}]}, "bad regular expression"),
}  # fmt: skip


def written(policy: dict[str, Any]) -> str:
    """A policy as YAML that is JSON."""
    return json.dumps({"name": "p", **policy})


PRICE = {"input_usd_per_mtok": 1, "output_usd_per_mtok": 2}
TOO_MANY = "more than 30,000 values"
HUGE: dict[str, tuple[str, str, str]] = {
    "a deny list": ("yaml", written({"tool_rules": [{"deny": [f"t{n}" for n in range(40_000)]}]}), TOO_MANY),
    "a deny list, block by block": ("yaml",
        "name: p\ntool_rules:\n- deny:\n" + "".join(f"  - t{n}\n" for n in range(32_000)), TOO_MANY),
    "a deny list that the slow parser reads": ("yaml",
        "name: p\ntool_rules:\n- deny:\n" + "".join(f"  - t{n}\n" for n in range(32_000)) + '  - "\u2028"\n',
        TOO_MANY),
    "a deny list in JSON": ("json", written({"tool_rules": [{"deny": ["t"] * 40_000}]}), TOO_MANY),
    "a deny list in TOML": ("toml", f'name = "p"\ntool_rules = [{{deny = {["t"] * 40_000}}}]', TOO_MANY),
    "prices": ("yaml", written({"prices": {f"m{n}": PRICE for n in range(12_000)}}), TOO_MANY),
    "documents": ("yaml", "--- {name: p}\n" * 35_000, TOO_MANY),
    "nets": ("yaml", written({"nets": [f"require a{n} before b{n}" for n in range(10_001)]}), "10,000 are the most"),
    "JSON": ("json", written({"metadata": {"x": "y" * 1_000_000}}), "longer than 1,000,000 characters"),
    "TOML": ("toml", f'name = "{"y" * 1_000_000}"', "longer than 1,000,000 characters"),
    "a bomb": ("yaml", bomb("[%s]"), "stand for too much text"),
    "a regex": ("yaml", written({"virtual_tools": [{"tool": "a", "path": "$", "match": "(a{1,900}){1,900}" * 20_000,
        "as": "x"}]}), "bad regular expression"),
}  # fmt: skip


@pytest.mark.parametrize("name", HUGE)
def test_a_huge_file_is_rejected_with_advice(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By `proctor check`, early, and as one problem."""
    format, text, says = HUGE[name]
    file = tmp_path / f"huge.{format}"
    file.write_text(text, encoding="utf-8")
    started = time.process_time()
    answer = called(capsys, "check", file)

    assert (answer.code, answer.err.count("error: ")) == (2, 1)
    assert says in answer.err
    assert "Traceback" not in answer.err
    assert len(answer.err) < 2_000
    assert time.process_time() - started < PATIENCE_S


def test_rules_from_many_files_are_bounded_together() -> None:
    """Each file is small. A policy created in Python has the same bound."""
    rules = [{"deny": [f"t{n}"]} for n in range(2_100)]
    policies = [policy for n in range(5) for policy in parse_policies({"name": f"p{n}", "tool_rules": rules})]
    with pytest.raises(PolicyError, match=r"10,500 rules, nets and budgets, and 10,000 are the most"):
        compile_policy(merge_policies(policies))
    with pytest.raises(PolicyError, match=TOO_MANY):
        compile_policy(msgspec.structs.replace(policies[0], metadata={"x": ["y"] * 40_000}))


@pytest.mark.parametrize("name", REFUSED)
def test_an_expensive_text_is_one_quick_error(name: str) -> None:
    source, says = REFUSED[name]
    started = time.process_time()
    with pytest.raises(PolicyError) as caught:
        parse_policies(source)

    assert [says in problem.message for problem in caught.value.problems] == [True]
    assert time.process_time() - started < PATIENCE_S


READ: dict[str, dict[str, Any]] = {
    "aliases that double": {"aliases": doubling(60), "tool_rules": [{"deny": ["a0"]}]},
    "a chain of aliases": {"aliases": {f"a{n}": [f"a{n + 1}"] for n in range(3_000)},
        "tool_rules": [{"deny": ["a0"]}]},
    "an alias for its own name": {"aliases": {"Bash": ["bash", "shell"]}, "tool_rules": [{"deny": ["bash"]}]},
    "globs of many wildcards": {"tool_rules": [{"deny": ["*".join(LETTERS[:20]), "*".join(LETTERS[::-1][:20])]}]},
    "wildcards alone": {"tool_rules": [{"allow": ["*" * 24]}, {"deny": ["?" * 500]}]},
    "a long list": {"tool_rules": [{"deny": [f"t{n}" for n in range(5_000)]}]},
    "many nets": {"nets": [f"limit a{n} to 10000 per b{n}" for n in range(100)]},
    "a long path": {"virtual_tools": [{"tool": "a", "path": "$" + "[*]" * 1_000, "match": "x", "as": "b"}]},
    "conditions within conditions": {"rules": [{"type": "blocklist",
        "tools": [{"tool": "a", "where": [nested({"path": "$.x", "exists": True}, 20, lambda v: {"not": [v]})]}]}]},
}  # fmt: skip


@pytest.mark.parametrize("name", READ)
def test_a_long_legitimate_policy_is_usable_in_bounded_time(name: str) -> None:
    """Loaded, checked, compiled, evaluated."""
    started = time.process_time()
    (policy,) = parse_policies({"name": "p", **READ[name]})
    preflight(policy)
    compile_policy(policy).monitor().propose(ToolCall(id="1", name="a" * 300, input={"x": "y" * 1_000}))

    assert time.process_time() - started < PATIENCE_S


def test_an_alias_with_many_paths_to_it_expands_once() -> None:
    """Each tool once. An alias that contains its own name also stands for the tool of that name."""
    policy = {"aliases": {**doubling(3), "a3": ["b", "a3"]}, "tool_rules": [{"deny": ["A0"]}]}
    (read,) = parse_policies({"name": "p", **policy})
    compiled = compile_policy(read)
    names = ("a0", "a1", "a2", "a3", "b", "c")
    denied = [n for n in names if compiled.monitor().propose(ToolCall(id="1", name=n)).action == "cancel"]

    assert denied == ["a3", "b"]


@pytest.mark.parametrize("name", [
    *("bash ", " bash", "bash\u00a0", "ba\u200bsh", "b\u0430sh", "Bash(git push:*)", "bash(*)", "{bash,ls}"),
    *("bash|ls", "bash,ls", "/bash/", "^bash$", "!bash", "ba\\sh"),
    *('"bash"', "bash;ls", "[bash]", ".*", "git push", "\uff42ash"),
], ids=ascii)  # fmt: skip
def test_a_name_that_no_tool_can_have_is_reported(name: str) -> None:
    """It denies nothing: a client's permission, a regular expression, a lookalike character."""
    policy = merge_policies(parse_policies({"name": "p", "tool_rules": [{"deny": [name]}]}))

    assert [(finding.code, finding.witness) for finding in preflight(policy)] == [("odd_name", (name,))]


@pytest.mark.parametrize(
    "name",
    ["bash", "mcp__x__*", "slack.post", "D.x", "Search Flights", "b[!a]sh", "a/b", "x?", "Überweisung", "検索"],
)
def test_a_possible_tool_name_is_not_reported(name: str) -> None:
    """Globs, and characters that protocols allow."""
    policy = merge_policies(parse_policies({"name": "p", "tool_rules": [{"deny": [name]}]}))

    assert [finding.code for finding in preflight(policy)] == []


@pytest.mark.parametrize(
    "command", ["/bin/rm", "/usr/bin/git push", "rm;ls", "rm && ls", "$x", "(rm)", "a|b", "`rm`"]
)
def test_a_command_that_runs_can_never_match_is_an_error(command: str) -> None:
    """`runs` compares the names of commands, and does not search the line."""
    where = [{"path": "$.command", "runs": [command]}]
    with pytest.raises(PolicyError, match="`runs` takes"):
        parse_policies({"name": "p", "tool_rules": [{"deny": [{"tool": "bash", "where": where}]}]})
