"""Whether the client took the terms it was started on: what it says is in force, not what it was told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from proctor.supervisor.errors import ProviderError

from .connection import Connection
from .sandboxing import PROFILE, SANDBOXES
from .settings import UNASKED

APPROVALS: Final = {"approvalPolicy": "untrusted", "approvalsReviewer": "user"}
"""The client asks about everything, and asks us."""
_ALL: Final = 10_000


async def check_terms(
    connection: Connection, answer: Mapping[str, Any], *, sandbox: str, held: bool, turned_on: Iterable[str]
) -> None:
    """Raise ProviderError unless a thread asks about everything, as far as the caller did not say otherwise.

    Args:
        connection: the client.
        answer: what it answered when the thread was taken up.
        sandbox: the sandbox that was asked for.
        held: nothing is to leave it.
        turned_on: features that are to be on though they act unasked.
    """
    for name, wanted in APPROVALS.items():
        if answer.get(name) != wanted:
            raise _refused(f"`{name}` is `{answer.get(name)}`, not `{wanted}`")
    kind = (answer.get("sandbox") or {}).get("type")
    if kind != SANDBOXES[sandbox]:
        raise _refused(f"the sandbox is `{kind}`, not `{sandbox}`")
    if held and (answer.get("activePermissionProfile") or {}).get("id") != PROFILE:
        raise _refused("it does not say that nothing leaves the sandbox")
    thread_id = (answer.get("thread") or {}).get("id")
    listed = await connection.ask("experimentalFeature/list", {"threadId": thread_id, "limit": _ALL})
    allowed = set(turned_on)
    for feature in listed.get("data") or ():
        name = feature.get("name")
        if name in UNASKED and name not in allowed and feature.get("enabled"):
            raise _refused(f"feature `{name}` stays on ({UNASKED[name]})")


def _refused(what: str) -> ProviderError:
    return ProviderError(
        f"codex did not take the terms of the run: {what}; look for a managed configuration",
        details={"kind": "terms"},
    )
