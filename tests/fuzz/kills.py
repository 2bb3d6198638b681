"""Processes that own the runs of one store, killed at random moments: a share is some kills in one store."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from .ledger import Share

KILLS: Final = 30
"""Of one share."""
ROOT: Final = Path(__file__).parents[2]
_TEST: Final = ("tests/adapters/stores/tables/test_claiming.py", "-k", "random")


def kills(seed: int, number: int) -> Share:
    """One share. The moments depend on the machine: neither seed nor number reproduces them."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *_TEST],
        env={**os.environ, "PROCTOR_KILLS": str(KILLS)},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    shown = done.stdout[-2_000:] + done.stderr[-500:]
    passed = done.returncode == 0 and " passed" in done.stdout and "skipped" not in done.stdout
    return Share({"owners killed": KILLS}, [] if passed else [f"share {number}: {shown}"])
