"""The long runs by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from .command_lines import command_lines
from .hook_wire import hook_wire
from .ids import client_ids, ids
from .kills import kills
from .ledger import Share
from .proxy_wire import proxy_wire
from .sessions import sessions


class Run(msgspec.Struct, frozen=True):
    """A long run: what it does in a sentence, and one share of it by seed and number."""

    does: str
    share: Callable[[int, int], Share]


RUNS: Final = {
    "commands": Run("the reading of command lines against the real bash and the real dash", command_lines),
    "hook": Run("what Claude Code could write to a hook, byte by byte", hook_wire),
    "ids": Run("call ids that come again, on every adapter that lives in this process", ids),
    "ids-of-clients": Run("the same on Claude Code, Codex, Amp and an ACP agent", client_ids),
    "kills": Run("processes that own runs of one store, killed at random moments and replaced", kills),
    "proxy": Run("what a client writes to the MCP proxy, byte by byte, and what reaches its server", proxy_wire),
    "sessions": Run("supervised sessions of generated policies, on the monitor and on a second reading", sessions),
}
