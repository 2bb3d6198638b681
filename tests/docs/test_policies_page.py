"""Every policy on the policies page loads, merges and starts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from proctor.adapters.cli import main
from proctor.policies import compile_policy, merge_policies, parse_policies, preflight
from proctor.policies.rules import RULES

PAGE = (Path(__file__).parents[2] / "docs" / "policies.md").read_text()
POLICIES = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("text", POLICIES, ids=lambda text: text.split("name: ")[1].split("\n")[0])
def test_a_policy_of_the_page_can_be_used(text: str) -> None:
    """Read, merged, checked, compiled."""
    stack = merge_policies(parse_policies(text))
    preflight(stack).check()

    assert compile_policy(stack).rules or dict(stack.limits.given())


@pytest.mark.parametrize("program", re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
def test_a_program_of_the_page_makes_a_policy(program: str) -> None:
    """What it imports is public, and what it makes can be used."""
    made: dict[str, Any] = {}
    exec(compile(program, "docs/policies.md", "exec"), made)

    assert compile_policy(made["policy"]).rules


def test_the_policy_tests_of_the_page_end_as_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The files are written and the command runs; `...` stands for anything in a line."""
    monkeypatch.chdir(tmp_path)
    for name, text in re.findall(r"```yaml file=(\S+)\n(.*?)```", PAGE, re.DOTALL):
        tmp_path.joinpath(name).write_text(text)
    command, shown = re.findall(r"```console\n\$ proctor ([^\n]*)\n(.*?)```", PAGE, re.DOTALL)[0]
    with pytest.raises(SystemExit) as ended:
        main(command.split())

    assert ended.value.code == 1
    assert re.fullmatch(re.escape(shown).replace(r"\.\.\.", ".*"), capsys.readouterr().out)


def test_the_page_has_every_family() -> None:
    """A family that is not in the table is not documented."""
    missing = [name for name in RULES if f"`{name}`" not in PAGE and name != "max_calls"]

    assert missing == []
