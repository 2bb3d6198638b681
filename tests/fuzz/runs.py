"""The long runs by name."""

from collections.abc import Callable
from typing import Final

import msgspec

from . import chaos, load
from .broken_policies import broken_policies
from .command_lines import command_lines
from .hook_wire import hook_wire
from .id_drivers import ids
from .ledger import Share
from .power import power
from .proofs import proofs
from .proxy_wire import proxy_wire
from .sessions import sessions
from .signals import signals
from .suite import client_ids, kills


class Run(msgspec.Struct, frozen=True):
    """A long run: its description in a sentence, and the function that runs one share of it by seed and number."""

    does: str
    share: Callable[[int, int], Share]


RUNS: Final = {
    "chaos-postgres": Run("workers, connections and a PostgreSQL server in trouble for a minute", chaos.on_postgres),
    "chaos-sqlite": Run("workers and a SQLite file in trouble for a minute", chaos.on_sqlite),
    "commands": Run("the reading of command lines against the real bash and the real dash", command_lines),
    "hook": Run("what Claude Code could write to a hook, byte by byte", hook_wire),
    "ids": Run("call ids that come again, on every adapter that lives in this process", ids),
    "ids-of-clients": Run("the same on Claude Code, Codex, Amp and an ACP agent", client_ids),
    "kills": Run("processes that own runs of one store, killed at random moments and replaced", kills),
    "load-postgres": Run("the same as load-sqlite, on a PostgreSQL server", load.on_postgres),
    "load-sqlite": Run("2,000 sessions in one process, with orders, answers, followers and the page", load.on_sqlite),
    "policies": Run("broken variants of the examples and the cookbook, each beside its original", broken_policies),
    "power": Run("the log of a store cut off at any byte, as a loss of power may leave it", power),
    "proofs": Run("stacks with a question to `verify`, each answered by force on the monitor too", proofs),
    "proxy": Run("what a client writes to the MCP proxy, byte by byte, and what reaches its server", proxy_wire),
    "sessions": Run("supervised sessions of generated policies, on the monitor and on a second reading", sessions),
    "signals": Run(
        "`proctor run` signalled or killed at any moment of its start, its agent's work and its end", signals
    ),
}
