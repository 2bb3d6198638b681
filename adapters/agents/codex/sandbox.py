"""The sandbox of a run, as the client holds it.

With approvals on, the client takes an allowed command that its sandbox stops and runs it again without any
sandbox, asking nobody. It does not where its permissions deny reading something: then nothing ever leaves the
sandbox. So a run that is to be confined gets permissions of its own, equal to the sandbox that was requested but
for one file that nobody needs.

Where a folder can be written to, the client keeps commands from a `.git` and the like in it; it makes empty ones
to do so, and with permissions of that kind leaves them behind.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from proctor.supervisor.errors import ProviderError

from .connection import UNASKED, CodexConnection

PROFILE: Final = "proctor"
"""The name of the permissions of a confined run."""
SANDBOXES: Final = {
    "read-only": "readOnly",
    "workspace-write": "workspaceWrite",
    "danger-full-access": "dangerFullAccess",
}
"""The sandboxes, and what the client calls each in its answers."""
_BASES: Final = {"read-only": ":read-only", "workspace-write": ":workspace"}
_DENIED: Final = {"linux": "/etc/shadow", "darwin": "/private/etc/master.passwd"}
_GUARDED: Final = (".git", ".codex", ".agents", ".aws")


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """The confinement of a run, as far as its calls are concerned.

    Args:
        sandboxed: commands run in a sandbox unless the model asks for more.
        confined: a call that would leave the sandbox is refused.
        folder: the folder the sandbox lets file changes touch; None if there is none.
    """

    sandboxed: bool
    confined: bool
    folder: Path | None


def holds(sandbox: str, *, escalation: bool) -> bool:
    """Whether every allowed command stays in the sandbox. On Windows the client cannot."""
    return sandbox in _BASES and not escalation and sys.platform in _DENIED


def sandbox_settings(
    sandbox: str, *, escalation: bool, settings: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The parameters and the configuration of a thread in a sandbox.

    Args:
        sandbox: one of `SANDBOXES`.
        escalation: the gate may allow what would run outside it.
        settings: the client's own `sandbox_workspace_write`, which permissions do not take in by themselves.
    """
    if not holds(sandbox, escalation=escalation):
        return {"sandbox": sandbox}, {}
    paths = {_DENIED[sys.platform]: "deny"}
    profile: dict[str, Any] = {"extends": _BASES[sandbox], "filesystem": paths}
    if sandbox == "workspace-write":
        paths.update((str(root), "write") for root in settings.get("writable_roots") or ())
        paths.update(
            (place, "read")
            for place, excluded in ((":slash_tmp", "exclude_slash_tmp"), (":tmpdir", "exclude_tmpdir_env_var"))
            if settings.get(excluded)
        )
        profile["network"] = {"enabled": bool(settings.get("network_access"))}
    return {"permissions": PROFILE}, {"default_permissions": PROFILE, f"permissions.{PROFILE}": profile}


@contextmanager
def swept(folder: Path, env: Mapping[str, str]) -> Iterator[None]:
    """Leaving takes away the empty folders that the client's sandbox made meanwhile, in the folders it lets
    commands write to by itself.

    Args:
        folder: where commands work.
        env: their environment.
    """
    places = dict.fromkeys((folder, Path("/tmp"), Path(env.get("TMPDIR") or tempfile.gettempdir())))
    absent = [path for path in _guarded(places) if not os.path.lexists(path)]
    try:
        yield
    finally:
        for path in absent:
            with suppress(OSError):  # not there, or somebody's own
                path.rmdir()


def _guarded(places: Iterable[Path]) -> Iterator[Path]:
    return (place / name for place in places for name in _GUARDED)


APPROVALS: Final = {"approvalPolicy": "untrusted", "approvalsReviewer": "user"}
"""The client asks about everything, and asks us."""
_ALL: Final = 10_000


async def check_terms(
    connection: CodexConnection, answer: Mapping[str, Any], *, sandbox: str, held: bool, turned_on: Iterable[str]
) -> None:
    """Raise ProviderError unless a thread asks about everything, as far as the caller did not say otherwise.

    Args:
        connection: the client.
        answer: what it answered when the thread was taken up.
        sandbox: the sandbox that was requested.
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
    listed = await connection.request("experimentalFeature/list", {"threadId": thread_id, "limit": _ALL})
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
