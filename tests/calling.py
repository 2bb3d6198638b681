"""The command line, called in this process."""

import json
from typing import Any

import msgspec
import pytest

from proctor.adapters.cli import main


class Answer(msgspec.Struct, frozen=True):
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


def called(capsys: pytest.CaptureFixture[str], *arguments: object) -> Answer:
    """Call `proctor` with these arguments."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as raised:
        main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return Answer(int(raised.value.code or 0), captured.out, captured.err)
