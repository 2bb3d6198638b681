"""`--junit` and `--sarif` of `test` and `prove`: reports of policy tests and of proofs for other programs."""

import json
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, parse

import pytest

POLICY = """\
name: pay
on_violation: deny
rules:
  - {id: approved, type: before, first: approve, then: pay}
"""
TESTS = """\
policies: [pay.yaml]
tests:
  - {name: unapproved, calls: [{tool: pay, expect: deny}]}
  - {name: approved, calls: [approve, {tool: pay, expect: deny}]}
prove:
  - {name: payable, reach: pay}
  - {name: never, unreachable: pay}
"""
HUGE = """\
name: huge
tool_rules:
  - allow: [{tool: send, where: [{path: $.text, length: 500000000}]}]
"""


@pytest.fixture
def files(place: Path) -> Path:
    """A policy with tests, of which a unit test and a proof fail."""
    place.joinpath("pay.yaml").write_text(POLICY)
    place.joinpath("pay.test.yaml").write_text(TESTS)
    return place


def cases(path: Path) -> dict[str, Element]:
    return {case.attrib["name"]: case for case in parse(path).iter("testcase")}


def test_failed_tests_and_proofs_are_failures(cli: Any, files: Path) -> None:
    """Each with the expectation and the counterexample. A passed test is a case without a failure."""
    ran = cli("test", "pay.test.yaml", "--junit", "out.xml", "--sarif", "out.sarif")

    found = cases(files / "out.xml")
    failures = {name: case.find("failure") for name, case in found.items()}
    root = parse(files / "out.xml").getroot()
    (run,) = json.loads((files / "out.sarif").read_text())["runs"]
    assert ran.code == 1
    assert (root.attrib["tests"], root.attrib["failures"], root.attrib["errors"]) == ("4", "2", "0")
    assert {name for name, failure in failures.items() if failure is not None} == {"approved", "never"}
    assert failures["approved"] is not None
    assert failures["approved"].attrib["message"] == "expected deny, got allow"
    assert failures["never"] is not None
    assert "pay" in str(failures["never"].text)
    assert {result["ruleId"] for result in run["results"]} == {"test", "reach"}
    assert {rule["id"] for rule in run["tool"]["driver"]["rules"]} == {"test", "reach"}
    (place,) = {r["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for r in run["results"]}
    assert place == "pay.test.yaml"


@pytest.mark.parametrize(("question", "code", "counts"), [
    (["pay.yaml", "--reach", "pay"], 1, ("1", "1", "0")),
    (["pay.yaml", "--reach", "pay", "--tools", "pay"], 0, ("1", "0", "0")),
    (["huge.yaml", "--reach", "send"], 3, ("1", "0", "1")),
    (["pay.yaml"], 0, None),
])  # fmt: skip
def test_a_refuted_question_is_a_failure(
    cli: Any, files: Path, question: list[str], code: int, counts: tuple[str, str, str] | None
) -> None:
    """A proved one passes, and one without an answer is an error. Without a question, each rule and tool
    is a case.
    """
    files.joinpath("huge.yaml").write_text(HUGE)
    answer = cli("prove", *question, "--junit", "out.xml", "--sarif", "out.sarif")

    root = parse(files / "out.xml").getroot()
    (run,) = json.loads((files / "out.sarif").read_text())["runs"]
    assert answer.code == code
    if counts is not None:
        assert (root.attrib["tests"], root.attrib["failures"], root.attrib["errors"]) == counts
    else:
        assert {case.attrib["classname"] for case in root.iter("testcase")} == {"sanity"}
        assert set(cases(files / "out.xml")) == {"rule approved", "callable approve", "callable pay"}
    errors = [name for name, case in cases(files / "out.xml").items() if case.find("error") is not None]
    assert errors == (["reach send"] if code == 3 else [])
    levels = ["error"] * int(root.attrib["failures"]) + ["warning"] * len(errors)
    assert [result["level"] for result in run["results"]] == levels
