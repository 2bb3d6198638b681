"""The long runs by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from .command_lines import command_lines
from .kills import kills
from .ledger import Share
from .sessions import sessions


class Run(msgspec.Struct, frozen=True):
    """A long run: what it does in a sentence, and one share of it by seed and number."""

    does: str
    share: Callable[[int, int], Share]


RUNS: Final = {
    "commands": Run("the reading of command lines against the real bash and the real dash", command_lines),
    "kills": Run("processes that own runs of one store, killed at random moments and replaced", kills),
    "sessions": Run("supervised sessions of generated policies, on the monitor and on a second reading", sessions),
}
