"""`test`: unit tests of policies."""

from __future__ import annotations

from pathlib import Path

import click

from ...common import json_option
from ...exits import FINE, VIOLATED
from ...output_file import output_option
from ...terminal.output import console, say, say_json


@click.command(name="test")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@output_option
@json_option
def test(files: tuple[str, ...], as_json: bool) -> int:
    """Run the unit tests of policies: sessions given as lists of calls, with the decisions expected.

    Exit code 1 when a test fails. With --json: one line per test.
    """
    from proctor.adapters.evaluate.expectations import PolicyTests, read_policy_tests
    from proctor.adapters.evaluate.policy_tests import failed_test, judge_test
    from proctor.policies.errors import read_each

    from ...inputs import check_standard_input, read_text

    def read(file: str) -> PolicyTests:
        text, name = read_text(file)
        return read_policy_tests(text, name, Path() if file == "-" else Path(file).parent)

    check_standard_input(*files)
    passed = failed = 0
    for given in read_each(read, files):
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
