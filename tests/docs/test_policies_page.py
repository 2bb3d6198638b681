"""The policies of guides and of the policy pages decide as documented, and every kind of rule is covered."""

from pathlib import Path

import pytest
from page_blocks import ROOT, blocks, environment, run

from proctor.adapters.evaluate.policy_tests import judge_test, read_policy_tests
from proctor.policies.rules import RULES

PAGES = ROOT / "docs" / "policies"
EXAMPLES = {block.file: block.text for block in blocks(PAGES / "rules.md") if block.file}
ALIASES = ("allowlist", "blocklist", "max_calls")
"""Aliases of other kinds; the page has a line on each."""


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule not in ALIASES])
def test_every_rule_has_a_session_that_satisfies_it_and_one_that_violates_it(rule: str) -> None:
    """The example's policy has no other rule."""
    example = f"{rule}.test.yaml"
    read = read_policy_tests(EXAMPLES[example], example, PAGES)
    results = [(one, judge_test(read.compiled, one, context, file=example)[1]) for one, context in read.tests]
    refuses = [
        any(call.expect != "allow" for call in test.calls) or "violated" in test.ends.values() for test, _ in results
    ]

    assert [result.mismatches for _, result in results if not result.passed] == []
    assert {type(one).__name__ for one in read.compiled.policy.rules} == {RULES[rule].__name__}
    assert set(refuses) == {True, False}


@pytest.mark.parametrize("rule", ALIASES)
def test_every_alias_is_on_the_page(rule: str) -> None:
    """As it is written in a policy."""
    assert f"`{{type: {rule}, " in (PAGES / "rules.md").read_text()


TESTS = sorted((Path(__file__).parent / "guides").glob("*.test.yaml"))


@pytest.mark.parametrize("tests", TESTS, ids=lambda path: path.name)
def test_the_policies_of_a_guide_decide_as_it_says(tests: Path, tmp_path: Path) -> None:
    """With its policies as they are on the page."""
    folder = tmp_path / "tour"
    folder.mkdir()
    for block in blocks(ROOT / "docs" / "how-to" / f"{tests.name.removesuffix('.test.yaml')}.md"):
        if block.kind == "yaml" and block.file:
            folder.joinpath(block.file).write_text(block.text)
    folder.joinpath(tests.name).write_text(tests.read_text())

    assert run(f"proctor test {tests.name}", folder, environment(folder)).endswith(" passed\n")
