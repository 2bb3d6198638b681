"""A short, seeded part of the long run on command lines."""

from pathlib import Path

import pytest

from tests.fuzz.command_lines import ZSH, run_share
from tests.fuzz.shells import can_be_closed


@pytest.mark.skipif(not can_be_closed(), reason="needs bash, dash and process namespaces")
@pytest.mark.parametrize("number", range(4))
def test_real_shells_run_no_command_that_the_parser_misses(number: int) -> None:
    """The same lines each time; the last result of the long run is in docs/agents/shell.md."""
    if not Path(ZSH[0]).exists():
        pytest.skip("needs zsh: apt-get install zsh")
    outcome = run_share(0, number, lines=250)

    assert (outcome.past, outcome.hung) == ([], 0)
    assert outcome.bash > 60
    assert outcome.dash > 45
    assert outcome.zsh == outcome.dash
    assert outcome.programs > 150
