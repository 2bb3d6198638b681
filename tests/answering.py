"""A token of a store, for tests that answer, end or lift by the command line: they have no terminal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from proctor.adapters.cli.options import beside
from proctor.supervisor.errors import UsageError

TOKEN = "the-token-of-the-tests"
ANSWERING = ("approve", "deny", "kill", "reap")


def token_of(arguments: Sequence[str]) -> dict[str, str]:
    """The same for a command line; nothing where it needs none, or names no store that could be."""
    if not arguments or arguments[0] not in ANSWERING:
        return {}
    named = arguments[list(arguments).index("--store") + 1] if "--store" in arguments else None
    try:
        return token_for(named)
    except UsageError:
        return {}


def token_for(store: str | Path | None) -> dict[str, str]:
    """The variable under which commands about that store are allowed everything; `None` is the default store."""
    file = Path(f"{beside(None if store is None else str(store))}-tokens")
    if store is None:
        file.parent.mkdir(parents=True, exist_ok=True)
    if file.parent.is_dir() and not file.exists():
        file.touch(0o600)
        file.write_text(f"tokens: [{{name: tests, token: {TOKEN}, roles: [answer, stop]}}]\n")
    return {"PROCTOR_TOKEN": TOKEN}
