"""`check`, `migrate` and `schema`: the commands for policy files."""

import json
from pathlib import Path
from typing import Any

import pytest

from proctor.policies import PolicyError, parse_policies


def test_valid_files_are_summarised(cli: Any) -> None:
    """One line a policy, then ok. `-` reads standard input, whose problems have the file <stdin>."""
    checked = cli("check", "org.yaml", "team.yaml")

    assert checked.code == 0
    assert checked.out == "org: 1 limit, 1 tool rule, locked\nteam: 1 net\nok\n"
    assert cli("check", "-", stdin="name: x").out == "x: nothing in it\nok\n"
    budget = "name: x\nbudgets: [{name: month, max_cost_usd: 5, window: month}]"
    assert cli("check", "-", stdin=budget).out == "x: 1 budget\nok\n"
    assert cli("check", "-", stdin="nam: x").err.startswith("<stdin>:1:1: error: unknown key `nam`")


def test_problems_show_the_line_with_a_caret_and_a_suggestion(cli: Any, place: Path) -> None:
    """All of them, in the order of the text. As JSON they go to standard output, with the same exit code."""
    place.joinpath("bad.yaml").write_text("name: bad\nlimitz: {}\nlimits: {max_total_tokens: lots}\n")
    checked = cli("check", "bad.yaml")

    assert checked.code == 2
    assert checked.out == ""
    assert checked.err == (
        "bad.yaml:2:1: error: unknown key `limitz` at `limitz`\n"
        "    2 | limitz: {}\n"
        "      | ^\n"
        "  did you mean `limits`?\n"
        "bad.yaml:3:28: error: expected a number or a mapping, got the text `lots` at `limits.max_total_tokens`\n"
        "    3 | limits: {max_total_tokens: lots}\n"
        "      |                            ^\n"
        "2 problems\n"
    )
    listed = cli("check", "--json", "bad.yaml")
    assert (listed.code, listed.lines[0]["problems"][0]["suggestion"]) == (2, "did you mean `limits`?")


def test_the_problems_of_all_files_are_reported(cli: Any, place: Path) -> None:
    """An empty stack, a missing file, and one that is not UTF-8, together."""
    place.joinpath("empty.yaml").write_text("policies: []")
    place.joinpath("latin.yaml").write_bytes(b"name: caf\xe9\n")
    checked = cli("check", "empty.yaml", "missing.yaml", "latin.yaml")

    assert checked.code == 2
    assert "empty.yaml:1:11: error: expected a list of policies, got an empty one" in checked.err
    assert "missing.yaml: error: cannot read the file: no such file or directory" in checked.err
    assert "latin.yaml:1:10: error: the text is not UTF-8" in checked.err


def test_of_many_problems_only_the_first_are_shown(cli: Any, place: Path) -> None:
    """JSON has all of them."""
    place.joinpath("bad.yaml").write_text("name: bad\n" + "".join(f"k{n}: 1\n" for n in range(3000)))
    checked = cli("check", "bad.yaml")

    assert checked.err.count("error: ") == 20
    assert checked.err.endswith("\n3,000 problems, of which the first 20 are shown\n")
    assert len(json.loads(cli("check", "bad.yaml", "--json").out)["problems"]) == 3_000
    with pytest.raises(PolicyError, match=r"\A(.*unknown key.*\n){20}\.\.\. and 2,980 more\Z"):
        parse_policies((place / "bad.yaml").read_text())


def test_a_stack_too_large_for_a_full_check_is_checked_in_part(cli: Any, place: Path) -> None:
    """This is no error, as runs enforce its rules anyway."""
    files = [f"{part}.yaml" for part in range(2)]
    for file in files:
        rules = "".join(f"  - {{type: max_calls, tool: {file[0]}t{n}, max: 3}}\n" for n in range(300))
        place.joinpath(file).write_text(f"name: p{file[0]}\nrules:\n{rules}")
    checked = cli("check", *files)

    assert checked.code == 0
    assert "too large to check in full; not finished: the order of calls" in " ".join(checked.out.split())


def test_a_policy_under_which_no_run_could_start_is_a_violation(cli: Any, place: Path) -> None:
    """An error of preflight is exit code 1. `enforcement: required` is fine if every call is gated."""
    place.joinpath("zero.yaml").write_text("name: zero\nlimits: {max_turns: 0}\n")
    checked = cli("check", "zero.yaml")

    assert checked.code == 1
    assert "error   zero/max_turns: `max_turns` is 0" in checked.out
    assert cli("check", "--json", "zero.yaml").lines[0]["findings"][0]["severity"] == "refuse"
    place.joinpath("required.yaml").write_text("name: r\nenforcement: required\n")
    codes = [cli("check", "required.yaml", "--adapter", each).code for each in ("scripted", "acp", "nothing")]
    assert codes == [0, 1, 2]


@pytest.mark.parametrize("adapter", ["claude", "codex", "amp", "acp"])
def test_a_name_that_no_tool_of_the_agent_has_is_reported_with_the_nearest(
    cli: Any, place: Path, adapter: str
) -> None:
    """A deny with it matches nothing, which is an error; a wrong input name is a warning."""
    place.joinpath("slip.yaml").write_text("name: slip\ntool_rules: [{deny: [bahs]}]\n")
    place.joinpath("input.yaml").write_text(
        "name: p\ntool_rules: [{deny: [{tool: bash, where: [{path: $.comand, regex: x}]}]}]\n"
    )
    place.joinpath("strict.yaml").write_text("name: s\nenforcement: required\ntool_rules: [{deny: [bahs]}]\n")
    slip = cli("check", "slip.yaml", "--adapter", adapter)
    block_data = cli("check", "input.yaml", "--adapter", adapter)

    assert (slip.code, block_data.code) == (1, 0)
    assert "error" in slip.out
    assert "ok" not in slip.out.split("\n")
    assert cli("check", "input.yaml", "--adapter", adapter, "--strict").code == 1
    assert "`bahs`; did you mean `bash`?" in " ".join(slip.out.split())
    assert "`bash` has no input `comand`; did you mean `command`?" in " ".join(block_data.out.split())
    assert cli("check", "strict.yaml", "--adapter", adapter).code == 1


def test_without_an_agent_a_misspelt_name_is_a_warning_that_strict_fails(cli: Any, place: Path) -> None:
    """The name of another agent's tool, or of the developer's own, is none."""
    place.joinpath("slip.yaml").write_text("name: slip\ntool_rules: [{deny: [bahs]}]\n")
    place.joinpath("fine.yaml").write_text("name: fine\ntool_rules: [{deny: [bash, issue_refund, mcp__x__y]}]\n")
    place.joinpath("input.yaml").write_text(
        "name: p\ntool_rules: [{deny: [{tool: bash, where: [{path: $.comand, runs: rm}]}]}]\n"
        "rules: [{type: max_calls, tool: delete, max: 1, key: $.order_id}]\n"
    )
    slip, strict = cli("check", "slip.yaml"), cli("check", "slip.yaml", "--strict")
    block_data = cli("check", "input.yaml")

    assert "did you mean `command`?" in " ".join(block_data.out.split())
    assert "order_id" not in block_data.out
    assert (slip.code, strict.code) == (0, 1)
    assert "warning" in slip.out
    assert "`bahs`; did you mean `bash`?" in " ".join(slip.out.split())
    assert slip.out.count("bahs") == 1
    assert cli("check", "fine.yaml", "--strict").code == 0


def test_migrate_prints_the_standard_spelling_or_writes_it(cli: Any, place: Path) -> None:
    """Old sequences become `before` rules. A second migration changes nothing."""
    place.joinpath("old.yaml").write_text("name: old\nsequences: [[read, write]]\n")
    migrated = cli("migrate", "old.yaml")

    assert migrated.code == 0
    assert "type: before" in migrated.out
    assert cli("check", "-", stdin=migrated.out).code == 0
    assert cli("migrate", "--json", "old.yaml").lines[0]["changed"] is True
    assert "rewritten" in cli("migrate", "--write", "old.yaml").err
    assert place.joinpath("old.yaml").read_text() == migrated.out
    assert "nothing to change" in cli("migrate", "--write", "old.yaml").err


def test_migrate_accepts_a_directory(cli: Any, place: Path) -> None:
    """All of its policy files are migrated or, if one is wrong, none."""
    folder = place / "all"
    folder.mkdir()
    for name in ("a", "b"):
        folder.joinpath(f"{name}.yaml").write_text(f"name: {name}\nlimits: [{{max_turns: 3}}]\n")

    assert cli("migrate", "all").out.count("limits: {max_turns: 3}") == 2

    folder.joinpath("c.yaml").write_text("name: c\nlimitz: {max_turns: 3}\n")
    assert cli("migrate", "--write", "all").code == 2
    assert "[{max_turns" in folder.joinpath("a.yaml").read_text()
    folder.joinpath("c.yaml").unlink()
    assert cli("migrate", "--write", "all").code == 0
    assert all("limits: {max_turns: 3}" in path.read_text() for path in folder.iterdir())


OTHERS = {
    "tests.yaml": "policies: [old.yaml]\ntests: [{name: one, calls: [{tool: read}]}]\n",
    "compose.yaml": 'name: web\nversion: "3"\nservices: {web: {image: nginx}}\n',
    "ci.yml": "name: CI\non: [push]\njobs: {}\n",
    "pod.yaml": "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\n---\napiVersion: v1\nkind: Service\n",
    "package.json": '{"name": "x", "version": "1.0.0", "dependencies": {}}',
    "pyproject.toml": '[project]\nname = "x"\n',
}


def test_migrate_skips_files_that_are_no_policies_and_reports_them(cli: Any, place: Path) -> None:
    """By name. Policies in any spelling are rewritten, and a misspelt one is an error."""
    folder = place / "mixed"
    folder.mkdir()
    for name, text in OTHERS.items():
        folder.joinpath(name).write_text(text)
    empty = cli("migrate", "mixed")
    for name, text in (
        ("old.yaml", "sequences: [[read, write]]\n"),
        ("contract.yaml", "preconditions: [{requires_prior_tool: a}]\n"),
        ("head.yaml", "name: head\n"),
        ("several.yaml", "policies: [{name: a, limits: [{max_turns: 3}]}]\n"),
    ):
        folder.joinpath(name).write_text(text)
    migrated = cli("migrate", "--write", "mixed")

    assert empty.code == 2
    assert all(f"`{name}`" in empty.err for name in OTHERS)
    assert migrated.code == 0
    assert all(
        f"{name}: {'tests of policies' if 'tests' in name else 'no policy'}, left as it is"
        in migrated.err.replace("mixed/", "")
        for name in OTHERS
    )
    assert {name: folder.joinpath(name).read_text() for name in OTHERS} == OTHERS
    assert "type: before" in folder.joinpath("old.yaml").read_text()
    assert "type: precondition" in folder.joinpath("contract.yaml").read_text()
    assert "name: head\n" in folder.joinpath("head.yaml").read_text()
    assert "limits: {max_turns: 3}" in folder.joinpath("several.yaml").read_text()


@pytest.mark.parametrize("text", ["name: x\ntool_rule: []\n", "Limts: {}\n", "rules: 3\n", "a: [\n"])
def test_migrate_of_a_folder_does_not_skip_a_wrong_policy(cli: Any, place: Path, text: str) -> None:
    """With a misspelt section, an invalid one, or text that is not YAML."""
    folder = place / "wrong"
    folder.mkdir()
    folder.joinpath("good.yaml").write_text("name: good\n")
    folder.joinpath("bad.yaml").write_text(text)
    migrated = cli("migrate", "wrong")

    assert migrated.code == 2
    assert "bad.yaml:" in migrated.err
    assert migrated.out == ""


def test_schema_prints_the_json_schema(cli: Any) -> None:
    """Indented for people, one line for programs, with the same content."""
    assert json.loads(cli("schema").out) == cli("schema", "--json").lines[0]


def test_the_launch_options_that_a_policy_becomes_are_listed(cli: Any, place: Path) -> None:
    """As text and as JSON. An adapter with a required option, and no adapter, have none."""
    place.joinpath("web.yaml").write_text("name: w\non_violation: deny\ntool_rules: [{deny: [web_search]}]\n")

    codex = cli("check", "web.yaml", "--adapter", "codex")
    assert 'setting config: {"web_search":"disabled"}\n' in codex.out
    [report] = cli("check", "web.yaml", "--adapter", "codex", "--json").lines
    assert report["launch_options"]["options"]["config"] == {"web_search": "disabled"}
    assert report["launch_options"]["expressed"] == ["deny web_search"]
    assert "setting dynamic: false\n" in cli("check", "web.yaml", "--adapter", "shell").out
    assert "setting " not in cli("check", "web.yaml", "--adapter", "acp").out
    assert "setting " not in cli("check", "web.yaml").out
    assert "launch_options" not in cli("check", "web.yaml", "--json").lines[0]
