"""Tests in several processes: what fails, skips or dies in any of them is reported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

COUNTED = "def test_{}():\n    print('said', {!r})\n    assert {}\n"


@pytest.mark.parametrize(
    ("last", "code", "summary"),
    [("True", 1, "1 failed, 3 passed"), ("__import__('os')._exit(1)", 3, "a process ended (1) in c_test.py::test_c")],
)
def test_each_file_runs_once_and_a_process_that_dies_ends_it(
    tmp_path: Path, last: str, code: int, summary: str
) -> None:
    for name, claim in (("a", "True"), ("b", "not 'kept'"), ("c", last), ("d", "True")):
        (tmp_path / f"{name}_test.py").write_text(COUNTED.format(name, name, claim))
    command = [sys.executable, "-m", "pytest", "-p", "no:xdist", "-p", "several_processes", "-n", "2"]
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parent), "PYTHONDONTWRITEBYTECODE": "1"}
    ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=env, check=False)
    assert (ended.returncode, summary in ended.stdout) == (code, True), ended.stdout + ended.stderr
    assert code == 3 or "said b" in ended.stdout
