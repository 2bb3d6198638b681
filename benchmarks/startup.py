"""What importing proctor and asking for help cost, beside importing what it stands on."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

from .rows import Row, Size

_COMMANDS = {
    "base": "import anyio, msgspec, structlog",
    "supervisor": "import proctor.supervisor",
    "used": "from proctor.supervisor import Supervisor, run_once",
    "help": "import sys; sys.argv = ['proctor', '--help']; from proctor.adapters.cli import main; main()",
}
BOUND = 2.5


def run(size: Size) -> list[Row]:
    """Milliseconds of processor time of a fresh interpreter, less those of an empty one."""
    commands = {"nothing": "pass", **_COMMANDS}
    least = dict.fromkeys(commands, float("inf"))
    for _ in range(size.of(15, 1)):
        for name, code in commands.items():
            least[name] = min(least[name], _cpu_seconds(code))
    ms = {name: (least[name] - least["nothing"]) * 1000 for name in _COMMANDS}
    return [
        Row("import anyio, msgspec, structlog", ms["base"], "ms"),
        Row("import proctor.supervisor", ms["supervisor"], "ms"),
        Row("from proctor.supervisor import Supervisor, run_once", ms["used"], "ms"),
        Row("proctor --help", ms["help"], "ms"),
        Row("import proctor.supervisor / what it stands on", ms["supervisor"] / ms["base"], "x", BOUND),
        Row("... and its names / what it stands on", ms["used"] / ms["base"], "x", BOUND),
        Row("proctor --help / what it stands on", ms["help"] / ms["base"], "x", BOUND),
    ]


def _cpu_seconds(code: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    compiled = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[1],
        env=compiled,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise RuntimeError(f"`{code}` failed: {done.stderr.strip().splitlines()[-1:]}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
