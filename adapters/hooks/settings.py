"""The client's settings file: which hooks it starts, put there and kept apart from everything else in it."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from proctor.policies import RunContext
from proctor.supervisor.errors import UsageError

from ..kit.environment import home_of
from ..kit.values import whole_file
from .clients.claude import EVENTS
from .judge import Unmatched

TIMEOUT_S = 120
"""The client lets a call run when its hook takes longer; a hook ends itself long before."""
DAEMON_CLIENT = Path(__file__).with_name("daemon_client.py")
_REFUSING = ("PreToolUse", "UserPromptSubmit", "ConfigChange")
_NEVER_SET = ("LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "DYLD_INSERT_LIBRARIES", "BASH_ENV", "ENV")
"""Variables by which a settings file could put code of its own into a hook; Python's own are ignored as it is."""
_GUARDS: dict[str, Any] = {"disableAllHooks": False, "disableSkillShellExecution": True}
"""A skill's or a slash command's own shell commands ask no hook."""
_OURS = ("/hooks/daemon_client.py ", "/claude_hook/knock.py ", " -m proctor.adapters.claude_hook ")
"""What a line of ours has in it; the latter are how it was written once."""


def command(
    policies: Sequence[Path],
    store: Path,
    store_id: str,
    context: RunContext,
    home: str | None = None,
    unmatched: Unmatched | None = None,
) -> str:
    """The shell command of a hook; the paths absolute, as hooks start in any folder.

    Python is told to ignore the folder it starts in and its environment, which are the agent's and the repository's.
    `home` is what `~` stands for, left out this process's: with another one no hook is judged. `unmatched` is what
    becomes of a call that the policies say nothing about; with None, what they allow is left to the client, too.
    """
    options: list[str] = []
    for policy in policies:
        options += ["--policy", os.fspath(policy.absolute())]
    options += ["--store", os.fspath(store.absolute()), "--store-id", store_id]
    home = home or home_of(os.environ)
    if home is not None:
        options += ["--home", home]
    if unmatched is not None:
        options += ["--unmatched", unmatched]
    text = msgspec.json.encode(context).decode()
    if text != "{}":
        options += ["--context", text]
    digest = hashlib.sha256("\0".join([sys.executable, *options]).encode()).hexdigest()[:12]
    folder = f"{os.fspath(store.absolute())}-hook-{digest}"
    return shlex.join([sys.executable, "-I", "-S", os.fspath(DAEMON_CLIENT), folder, *options])


def hooks(
    policies: Sequence[Path],
    store: Path,
    store_id: str,
    context: RunContext,
    home: str | None = None,
    unmatched: Unmatched | None = None,
) -> dict[str, Any]:
    """The `hooks` of a settings file; `store_id` is what the store is known by (see `record.store_id`), the rest as
    for `command`.

    The client goes on after any exit code but 2, so a hook that cannot even be started is made to exit so.
    """
    line = command(policies, store, store_id, context, home, unmatched)
    found: dict[str, Any] = {}
    for event in EVENTS:
        run = f"{line} || exit 2" if event in _REFUSING else line
        found[event] = [{"hooks": [{"type": "command", "command": run, "timeout": TIMEOUT_S}]}]
    return found


def managed(wanted: dict[str, Any]) -> dict[str, Any]:
    """Managed settings with these hooks: no others run, and no other settings put code of their own into these."""
    variables = dict.fromkeys(_NEVER_SET, "")
    return {**_GUARDS, "allowManagedHooksOnly": True, "env": variables, "hooks": wanted}


def unmanaged(wanted: dict[str, Any]) -> dict[str, Any]:
    """Settings with these hooks, as `installed` writes them into a file that has none.

    A project's own settings go before those its repository brings: they keep the hooks on, shell commands in skills
    off, and variables empty that this process does not use.
    """
    variables = {name: "" for name in _NEVER_SET if not os.environ.get(name)}
    return {**_GUARDS, "env": variables, "hooks": wanted}


def settings_path(*, user: bool, folder: Path) -> Path:
    """The person's own settings, or the project's own that are not shared with others."""
    if user:
        home = os.environ.get("CLAUDE_CONFIG_DIR")
        return (Path(home) if home else Path.home() / ".claude") / "settings.json"
    return folder / ".claude" / "settings.local.json"


def installed(path: Path, wanted: dict[str, Any]) -> bool:
    """Put hooks, and what guards them, into a settings file in place of our earlier ones; False when they were there
    as they are.

    Raises UsageError when the file is no settings file, or cannot be written; then it is as it was.
    """
    now = _read(path)
    put = unmanaged(wanted)
    kept = _without_ours(now.get("hooks", {}), path)
    for event, entries in wanted.items():
        kept[event] = [*kept.get(event, []), *entries]
    variables = {**put["env"], **_variables(now, path)}
    then = {**now, **put, "env": variables, "hooks": kept}
    if then == now:
        return False
    _write(path, then)
    return True


def removed(path: Path) -> bool:
    """Take our hooks, and what guards them, out of a settings file; False when there were none.

    Raises UsageError as `installed`.
    """
    now = _read(path)
    kept = _without_ours(now.get("hooks", {}), path)
    if kept == now.get("hooks", {}):
        return False
    variables = {name: value for name, value in _variables(now, path).items() if name not in _NEVER_SET or value}
    then = {key: value for key, value in now.items() if key not in _GUARDS or value is not _GUARDS[key]}
    then |= {"hooks": kept, "env": variables}
    _write(path, {key: value for key, value in then.items() if value or key not in ("hooks", "env")})
    return True


def _variables(settings: dict[str, Any], path: Path) -> dict[str, Any]:
    found = settings.get("env", {})
    if not isinstance(found, dict):
        raise UsageError(f"`env` in `{path}` is not as Claude Code writes it; repair it first")
    return found


def _without_ours(hooks: Any, path: Path) -> dict[str, list[Any]]:
    if not isinstance(hooks, dict) or not all(isinstance(entries, list) for entries in hooks.values()):
        raise UsageError(f"`hooks` in `{path}` is not as Claude Code writes it; repair it first")
    kept = {event: [entry for entry in entries if not _is_ours(entry)] for event, entries in hooks.items()}
    return {event: entries for event, entries in kept.items() if entries or not hooks[event]}


def _is_ours(entry: Any) -> bool:
    runs = entry.get("hooks") if isinstance(entry, dict) else None
    commands = [run.get("command", "") for run in runs or () if isinstance(run, dict)]
    return bool(commands) and all(any(mark in str(line) for mark in _OURS) for line in commands)


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeError) as error:
        why = (getattr(error, "strerror", None) or str(error)).lower()
        raise UsageError(f"`{path}` cannot be read: {why}") from error
    try:
        found = json.loads(text or "{}")
    except json.JSONDecodeError as error:
        place = f"{path}:{error.lineno}:{error.colno}"
        raise UsageError(f"{place}: not JSON: {error.msg.lower()}; repair the file first") from error
    if not isinstance(found, dict):
        raise UsageError(f"`{path}` is not a settings file: it does not hold an object")
    return found


def _write(path: Path, settings: dict[str, Any]) -> None:
    """Replace the file as a whole: a client that reads it meanwhile sees the one or the other."""
    try:
        path.resolve().parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path, mode=0o600) as file:
            file.write(json.dumps(settings, indent=2, ensure_ascii=False).encode() + b"\n")
    except OSError as error:
        raise UsageError(f"`{path}` cannot be written: {error}") from error
