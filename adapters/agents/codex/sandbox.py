"""The sandbox of a run, as the client enforces it.

With approvals on, the client runs an allowed command that its sandbox stops again without any sandbox, and does not
ask. It never does so if its permissions deny reading some file. So a confined run gets permissions of its own, equal
to the requested sandbox except for one file that nobody needs.

In a writable folder the client protects `.git` and the like from commands; it creates empty ones to do so, and leaves
them behind when a command is killed.
"""

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec

from proctor.supervisor.errors import ProviderError

from .connection import UNASKED, CodexConnection, hold

PROFILE: Final = "proctor"
"""The name of the permissions of a confined run."""
SANDBOXES: Final = {
    "read-only": "readOnly",
    "workspace-write": "workspaceWrite",
    "danger-full-access": "dangerFullAccess",
}
"""The sandboxes, with their names in the client's answers."""
_BASES: Final = {"read-only": ":read-only", "workspace-write": ":workspace"}
_DENIED: Final = {"linux": "/etc/shadow", "darwin": "/private/etc/master.passwd"}
_GUARDED: Final = (".git", ".codex", ".agents", ".aws")
_MODELS_S: Final = 10.0
"""Seconds to wait for the client's list of models."""
_REGISTRY_S: Final = 2.0
"""Seconds to wait for the client's registry."""


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """The confinement of a run's calls.

    `sandboxed`: commands run in a sandbox unless the model asks for more. `confined`: a call that would leave it is
    denied. `folder`: where it allows file changes.
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
    """The parameters and the configuration of a thread in a sandbox. `escalation`: the gate may allow calls outside
    it. `settings` are the client's own `sandbox_workspace_write`, which permissions do not include by themselves.
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


@asynccontextmanager
async def swept(folder: Path, env: Mapping[str, str]) -> AsyncIterator[None]:
    """On leaving, remove the empty folders that the client's sandbox created meanwhile in its writable folders.

    One that another sandbox uses stays: without it, that one's command could write there.
    """
    temporary = _temporary(env)
    registry = temporary / f"codex-bwrap-synthetic-mount-targets-{os.geteuid()}"
    absent = _absent(folder, Path("/tmp"), temporary)
    try:
        yield
    finally:
        with anyio.move_on_after(_REGISTRY_S, shield=True):
            lock = await hold(registry / "lock")
            for path in absent:
                if not _in_use(registry / _entry(path)):
                    with suppress(OSError):  # not there, or somebody's own
                        path.rmdir()
            lock.release()


@asynccontextmanager
async def without_scripts(client: str, env: Mapping[str, str]) -> AsyncIterator[dict[str, Any]]:
    """Configuration under which no model calls its tools in scripts, as a command of one doesn't say whether it would
    leave the sandbox: the client's list of models, without that. Empty for a client without such a list.
    """
    async with anyio.TemporaryDirectory() as folder:
        models: list[dict[str, Any]] = []
        with anyio.move_on_after(_MODELS_S), suppress(OSError, msgspec.MsgspecError):
            command = [client, "debug", "models"]
            listed = await anyio.run_process(
                command, input=b"", cwd=folder, env=env, check=False, stderr=subprocess.DEVNULL
            )
            models = msgspec.json.decode(listed.stdout, type=_Models).models
        path = anyio.Path(folder, "models.json")
        await path.write_bytes(msgspec.json.encode(_Models([{**model, "tool_mode": None} for model in models])))
        yield {"model_catalog_json": str(path)} if models else {}


class _Models(msgspec.Struct):
    models: list[dict[str, Any]]


def _temporary(env: Mapping[str, str]) -> Path:
    return Path(env.get("TMPDIR") or "/tmp").resolve()


def _absent(*folders: Path) -> list[Path]:
    guarded = (folder / name for folder in dict.fromkeys(folders) for name in _GUARDED)
    return [path for path in guarded if not os.path.lexists(path)]


def _entry(path: Path) -> str:
    """The folder of the client's registry with a file for each process whose sandbox uses a path: its FNV-1a."""
    digest = 0xCBF29CE484222325
    for byte in os.fsencode(path):
        digest = (digest ^ byte) * 0x100000001B3 % 2**64
    return f"{digest:016x}"


def _in_use(entry: Path) -> bool:
    return any(os.path.exists(f"/proc/{process.name}") for process in entry.glob("*"))


APPROVALS: Final = {"approvalPolicy": "untrusted", "approvalsReviewer": "user"}
"""The client asks about everything, and asks us."""
_ALL: Final = 10_000


async def check_terms(
    connection: CodexConnection, answer: Mapping[str, Any], *, sandbox: str, held: bool, turned_on: Iterable[str]
) -> None:
    """Raises ProviderError unless a thread, by the client's `answer` when it was started or resumed, asks about
    everything but the features that the caller turned on. `held`: nothing may leave the sandbox.
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
        details={"code": "terms"},
    )
