"""What holds for every test: who leaves something open or running is the one that fails."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
TESTS = """
import subprocess, sys

KEPT = []

def test_that_leaves_a_process():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    KEPT.append(child.pid)
    again = [child]
    again.append(again)

def test_that_leaves_a_pipe():
    child = subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE)
    child.wait()

def test_that_leaves_nothing():
    import os, signal
    os.kill(KEPT[0], signal.SIGKILL)
"""


def test_what_is_left_fails_the_test_that_left_it(tmp_path: Path) -> None:
    """And no other, even where only the garbage collector finds it."""
    (tmp_path / "test_them.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "-p", "conftest"]
    command += ["-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path / "test_them.py")]

    ended = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    )

    failed = {
        line.split("::")[1].split()[0] for line in ended.stdout.splitlines() if line.startswith(("ERROR ", "FAILED "))
    }
    assert failed == {"test_that_leaves_a_process", "test_that_leaves_a_pipe"}, ended.stdout + ended.stderr
    assert "2 passed" in ended.stdout
