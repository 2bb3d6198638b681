"""Long runs of which a share is one test of the suite, many times: in processes of its own, and with real clients."""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from .ledger import Share

KILLS: Final = 30
"""Of one share."""
EXAMPLES: Final = 10
"""Scripts of one share, on each client."""
ROOT: Final = Path(__file__).parents[2]
OF_KILLS: Final = (
    "tests/adapters/stores/tables/test_claiming.py::test_killing_one_of_three_owners_at_random_moments_loses_nothing",
)
CLIENTS: Final = ("acp", "amp", "claude", "codex")
OF_CLIENTS: Final = [f"tests/attacks/{name}/test_reports.py::test_random_ids_evade_no_rule" for name in CLIENTS]


def kills(seed: int, number: int) -> Share:
    """Owners of the runs of one store are killed. Neither seed nor number reproduces the moments: they depend on the
    machine.
    """
    _, wrong = _run(OF_KILLS, PROCTOR_KILLS=KILLS)
    return Share({"owners killed": KILLS}, [f"share {number}: {wrong}"] if wrong else [])


def client_ids(seed: int, number: int) -> Share:
    """Reused call ids on the real Claude Code and Codex, and on stand-ins for Amp and an ACP agent."""
    first = (seed * 1_003 + number) * EXAMPLES
    passed, wrong = _run(OF_CLIENTS, PROCTOR_IDS=EXAMPLES, PROCTOR_SEED=first)
    return Share({"sessions": passed}, [f"share {number} of seed {seed}: {wrong}"] if wrong else [])


def _run(tests: Sequence[str], **variables: int) -> tuple[int, str]:
    """How many of these tests have passed, or 0 and the output: a skipped one proves nothing."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests],
        env=os.environ | {name: str(value) for name, value in variables.items()},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    found = re.search(r"^(\d+) passed in ", done.stdout, re.MULTILINE)
    if done.returncode or found is None:
        return 0, done.stdout[-4_000:] + done.stderr[-500:]
    return int(found[1]), ""
