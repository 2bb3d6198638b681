"""`test`: unit tests of policies."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...common import json_option
from ...exits import FINE, VIOLATED
from ...output_file import output_option
from ...terminal.output import console, say, say_json

if TYPE_CHECKING:
    from proctor.adapters.evaluate.expectations import PolicyTests


@click.command(name="test")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@output_option
@json_option
def test(files: tuple[str, ...], as_json: bool) -> int:
    """Run the unit tests of policies: sessions given as lists of calls, with the decisions expected.

    Exit code 1 when a test fails. With --json: one line per test.
    """
    from proctor.adapters.evaluate.policy_tests import failed_test, judge_test

    from ...inputs import check_standard_input

    check_standard_input(*files)
    passed = failed = 0
    for given in _read(files):
        for one, context in given.tests:
            session, judged = judge_test(given.compiled, one, context, file=given.file)
            passed, failed = passed + judged.passed, failed + (not judged.passed)
            if as_json:
                say_json(judged)
            elif not judged.passed:
                console().print(failed_test(session, judged))
    if not as_json:
        say(f"{passed} passed, {failed} failed" if failed else f"{passed} passed")
    return VIOLATED if failed else FINE


def _read(files: tuple[str, ...]) -> list[PolicyTests]:
    """The tests of all files. Raises PolicyError with the problems of all of them."""
    from proctor.adapters.evaluate.expectations import read_policy_tests
    from proctor.policies import PolicyError
    from proctor.policies.errors import Problem

    from ...inputs import read_text

    found: list[PolicyTests] = []
    problems: list[Problem] = []
    for file in files:
        try:
            text, name = read_text(file)
            found.append(read_policy_tests(text, name, Path() if file == "-" else Path(file).parent))
        except PolicyError as error:
            problems += error.problems
    if problems:
        raise PolicyError(problems)
    return found
