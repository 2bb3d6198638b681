"""Reused call ids on every adapter: those in this process, and clients in their own processes."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

from .call_ids import ids_on
from .id_drivers import IN_PROCESS
from .ledger import Share

EXAMPLES: Final = 10
"""Of one share, on each adapter."""
ROOT: Final = Path(__file__).parents[2]
_CLIENTS: Final = tuple(f"tests/attacks/{name}/test_reports.py" for name in ("acp", "amp", "claude", "codex"))


def ids(seed: int, number: int) -> Share:
    """Scripts on all adapters in this process."""
    return ids_on(IN_PROCESS, EXAMPLES, seed, number)


def client_ids(seed: int, number: int) -> Share:
    """Scripts on the real Claude Code and Codex, and on stand-ins for Amp and an ACP agent."""
    first = (seed * 1_003 + number) * EXAMPLES
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "at_random", *_CLIENTS],
        env={**os.environ, "PROCTOR_IDS": str(EXAMPLES), "PROCTOR_SEED": str(first)},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    found = re.search(r"^(\d+) passed(, \d+ deselected)? in ", done.stdout, re.MULTILINE)
    if done.returncode or found is None:  # a skipped one proves nothing
        shown = done.stdout[-4_000:] + done.stderr[-500:]
        return Share({}, [f"share {number} of seed {seed}: {shown}"])
    return Share({"sessions": int(found[1])}, [])
