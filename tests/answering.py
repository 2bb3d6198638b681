"""Answering pending calls in tests. Commands use a token of the store, as they have no terminal."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
from anyio.lowlevel import checkpoint

from proctor.adapters.cli.options import beside
from proctor.supervisor import ApprovalAnswer, ApprovalError, ApprovalRequest, Store, Supervisor, UsageError, answer
from proctor.supervisor.testing.fakes import PATIENCE_S

TOKEN = "the-token-of-the-tests"
ANSWERING = ("approve", "deny", "kill", "reap")


async def until_held(supervisor: Supervisor) -> ApprovalRequest:
    """The oldest pending approval request, once there is one."""
    with anyio.fail_after(PATIENCE_S):
        while not supervisor.approvals():
            await checkpoint()
    return supervisor.approvals()[0]


async def kind(store: Store, approval_id: str, **given: Any) -> str:
    """The result of ana's approval, or of this answer: that it counts, or the kind of its error."""
    try:
        await answer(store, approval_id, ApprovalAnswer(**{"granted": True, "by": "ana", **given}))
    except ApprovalError as error:
        return error.kind
    return "counts"


async def answered_by_a_process(store: Path, approval_id: str, by: str, *, granted: bool = True) -> str:
    """The same for an answer from a separate process."""
    command = answering_command(store, approval_id, by, granted=granted)
    return (await anyio.run_process(command, stderr=subprocess.STDOUT)).stdout.decode().strip()


def answering_command(store: Path, approval_id: str, by: str, *, granted: bool = True) -> list[str]:
    """The command of that process."""
    return [sys.executable, "-c", _ANSWERS, str(store), approval_id, by, str(granted)]


_ANSWERS = """
import sys, anyio
from proctor.adapters.stores import SQLiteStore
from tests.answering import kind

async def main(path, approval_id, by, granted):
    async with SQLiteStore(path) as store:
        print(await kind(store, approval_id, by=by, granted=granted == "True"))

anyio.run(main, *sys.argv[1:])
"""


def token_of(arguments: Sequence[str]) -> dict[str, str]:
    """The same for a command line; empty if it needs no token or names no possible store."""
    if not arguments or arguments[0] not in ANSWERING:
        return {}
    named = arguments[list(arguments).index("--store") + 1] if "--store" in arguments else None
    try:
        return token_for(named)
    except UsageError:
        return {}


def token_for(store: str | Path | None) -> dict[str, str]:
    """The variable with a token of all roles for commands on that store; `None` is the default store."""
    file = Path(f"{beside(None if store is None else str(store))}-tokens")
    if store is None:
        file.parent.mkdir(parents=True, exist_ok=True)
    if file.parent.is_dir() and not file.exists():
        file.touch(0o600)
        file.write_text(f"tokens: [{{name: ana, token: {TOKEN}, roles: [answer, stop]}}]\n")
    return {"PROCTOR_TOKEN": TOKEN}
