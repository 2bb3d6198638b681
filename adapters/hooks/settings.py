"""A client's settings file: which hooks it starts, put there and kept apart from everything else in it."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

from proctor.policies import RunContext
from proctor.policies.errors import os_words
from proctor.supervisor.errors import UsageError

from ..kit.process_tree import home_of
from ..kit.values import atomic_write
from ..stores.store_names import DEFAULT_STORE
from .clients.claude import CLAUDE, LOWEST_KEY
from .daemon_client import EACH, OR_REFUSED, UnansweredError
from .decider import HookOptions
from .messages import REFUSABLE, UNMATCHED, HookClient, Unmatched, version
from .over_http import PATH, Endpoint, endpoint_in, without_proxy
from .record import store_id

Scope: TypeAlias = Literal["project", "user", "managed"]
"""The owner of the settings: a folder, a person, or neither (managed settings)."""
DAEMON_CLIENT = Path(__file__).with_name("daemon_client.py")
_NO_CONTEXT = RunContext()
_OURS = ("/hooks/daemon_client.py", PATH)
"""Text that every line or URL of ours contains."""
_BEFORE = ".before-proctor"
"""The end of the name under which a file is kept as it was before it got hooks."""


def command(
    policies: Sequence[Path],
    store: Path | None,
    context: RunContext = _NO_CONTEXT,
    home: str | None = None,
    unmatched: Unmatched = UNMATCHED,
    agent: str = CLAUDE.name,
    hold_s: int = 0,
) -> list[str]:
    """The words of a hook's command line; the paths absolute, as hooks start in any folder.

    Python is told to ignore the folder it starts in and its environment, which are the agent's and the repository's.
    The store is made if need be. `home` is what `~` stands for, left out this process's: with another one no hook is
    answered. Without a store, the hooks of each user have that user's home and a store there. `unmatched` is what
    becomes of a call that the policies say nothing about. Agents with the same policies, store and options have one
    daemon. Raises StoreError.
    """
    place = DEFAULT_STORE if store is None else os.fspath(store.absolute())
    wanted = HookOptions(
        name="",
        policies=tuple(os.fspath(policy.absolute()) for policy in policies),
        store=Path(place),
        store_id="" if store is None else store_id(store),
        context=context,
        unmatched=unmatched,
        hold_s=hold_s,
    )
    options = wanted.words(EACH if store is None else home or home_of(os.environ))
    digest = hashlib.sha256("\0".join([sys.executable, *options]).encode()).hexdigest()[:12]
    folder = f"{place}-hook-{digest}"
    whose = [] if agent == CLAUDE.name else ["--agent", agent]
    return [sys.executable, "-I", "-S", os.fspath(DAEMON_CLIENT), folder, *whose, *options]


def settings_with_hooks(
    policies: Sequence[Path],
    store: Path | None,
    context: RunContext = _NO_CONTEXT,
    home: str | None = None,
    unmatched: Unmatched = UNMATCHED,
    client: HookClient = CLAUDE,
    *,
    http: bool = False,
    hold_s: int = 0,
    managed: bool = False,
) -> dict[str, Any]:
    """The settings of a client with nothing but hooks, and what keeps these on; the arguments as for `command`.

    Clients go on after most exit codes, so a line that cannot even be started is made to refuse. With `http` the
    client sends its hooks itself, but for prompts: the program of those starts the daemon. `managed` settings hold
    whatever others say.

    Raises StoreError; UsageError for `http` where the client sends no hooks, where there is no port, or without a
    store, and for `managed` where the client has no such settings.
    """
    own, endpoint = client.settings, None
    if managed:
        _managed_place(client)
    if http and own.http_entry is None:
        raise UsageError(f"{client.title} sends no hooks over HTTP; leave out `--http`")
    if http and store is None:
        raise UsageError("settings for every user hold no token of one: leave out `--http`, or name a `--store`")
    words = command(policies, store, context, home, unmatched, client.name, hold_s)
    line = shlex.join(words)
    if http:
        endpoint = _endpoint(words[4])
    environment = {} if managed else os.environ  # a variable that somebody uses stays theirs, but for managed ones

    def entry(event: str, kind: str) -> dict[str, Any]:
        if endpoint is not None and own.http_entry is not None and kind != "prompt":
            return own.http_entry(event, endpoint.url, endpoint.authorization)
        refuses = own.in_shell and kind in REFUSABLE
        return own.entry(event, line + OR_REFUSED if refuses else line, environment)

    beside = own.beside(environment)
    if endpoint is not None:
        beside["env"] = {**beside["env"], **without_proxy(os.environ)}
    put = {event: [entry(event, kind)] for event, kind in client.events.items()}
    return {**beside, **(own.beside_managed if managed else {}), "hooks": put}


def _endpoint(folder: str) -> Endpoint:
    try:
        return endpoint_in(folder)
    except (OSError, UnansweredError) as error:
        raise UsageError(f"hooks cannot be sent over HTTP: {error}") from error


def _managed_place(client: HookClient) -> str:
    if place := client.settings.managed:
        return place
    raise UsageError(f"{client.title} has no managed settings with hooks; use `hook install --user` as each user")


def settings_path(*, user: bool = False, folder: Path, client: HookClient = CLAUDE, managed: bool = False) -> Path:
    """The project's own settings, the person's, or the machine's. Raises UsageError where there are none."""
    own = client.settings
    if managed:
        return Path(_managed_place(client))
    if not user:
        return folder / own.project
    return own.of_user(own.user)


def document(wanted: dict[str, Any], client: HookClient) -> str:
    """The whole file with these settings and nothing else, as `--print` and a file that is not there get it."""
    if client.settings.text is not None:
        return client.settings.text(next(_commands(wanted["hooks"])))
    return json.dumps(wanted, indent=2, ensure_ascii=False) + "\n"


def install(path: Path, wanted: dict[str, Any], client: HookClient = CLAUDE) -> bool:
    """Put hooks, and what guards them, into a settings file in place of our earlier ones; False when they were there
    as they are. The file as it was is kept beside it for `uninstall`.

    Raises UsageError when the file is no settings file, or cannot be written; then it is as it was.
    """
    before = _bytes(path)
    if client.settings.text is not None:
        text = document(wanted, client).encode()
        if before and not is_ours(before.decode("utf-8", "replace")):
            raise UsageError(f"`{path}` is not of proctor; move it away first")
        if before != text:
            _write(path, text)
        return before != text
    now = _parsed(path, before)
    kept = _without_ours(now.get("hooks", {}), path, client)
    if kept == now.get("hooks", {}):
        _keep_before(path, before)
    for event, entries in wanted["hooks"].items():
        kept[event] = [*kept.get(event, []), *entries]
    then = {**now, **wanted, "hooks": kept}
    if "env" in wanted:
        then["env"] = {**wanted["env"], **_table(now, "env", path, client)}
    elif "hooksConfig" in wanted:
        then["hooksConfig"] = {**_table(now, "hooksConfig", path, client), **wanted["hooksConfig"]}
    if LOWEST_KEY in wanted:
        then[LOWEST_KEY] = max(wanted[LOWEST_KEY], str(now.get(LOWEST_KEY, "")), key=version)
    if then == now:
        return False
    _write(path, _encoded(then), private=PATH in "".join(_commands(wanted)))
    return True


def uninstall(path: Path, client: HookClient = CLAUDE) -> bool:
    """Take our hooks, and what guards them, out of a settings file; False when there were none.

    The file is then as it was before, byte for byte, or is not there if it was not, unless somebody has changed
    something else in it: that stays. Raises UsageError as `install`.
    """
    before = _bytes(path)
    if client.settings.text is not None:
        ours = before is not None and is_ours(before.decode("utf-8", "replace"))
        if ours:
            _unlink(path)
        return ours
    now = _parsed(path, before)
    kept = _without_ours(now.get("hooks", {}), path, client)
    if kept == now.get("hooks", {}):
        return False
    beside = path.with_name(path.name + _BEFORE)
    earlier = _bytes(beside)
    had = _parsed(beside, earlier)
    then = _without_guards({**now, "hooks": kept}, had, path, client)
    if earlier is not None and then == _without_guards(had, had, path, client):
        _write(path, earlier)
    elif then or earlier is not None:
        _write(path, _encoded(then))
    else:
        _unlink(path)
    if earlier is not None:
        _unlink(beside)
    return True


def is_ours(text: str) -> bool:
    """Whether a hook's line, or a file of hooks, is one of ours."""
    return any(mark in text for mark in _OURS)


def lines_in(path: Path, client: HookClient) -> list[str]:
    """Our hooks' lines in a settings file, each once, with what makes it refuse where a hook of it has that.

    Raises UsageError for a file that cannot be read.
    """
    before = _bytes(path)
    if before is None:
        return []
    if client.settings.text is not None:
        found = [text for text in before.decode("utf-8", "replace").split("\n") if is_ours(text)]
        return [shlex.join(json.loads(text.partition("=")[2])) for text in found[:1]]
    entries = _parsed(path, before).get("hooks", {})
    ours = [line for line in _commands(entries) if is_ours(line) and PATH not in line]
    ours.sort(key=lambda line: line.endswith(OR_REFUSED))
    return list({line.removesuffix(OR_REFUSED): line for line in ours}.values())


def rivals(path: Path, folder: Path, client: HookClient) -> list[Path]:
    """The files of a folder, beside the one with our hooks, that can change what these decide."""
    found: dict[Path, None] = {}
    for pattern, text in client.settings.beside_ours:
        for file in sorted(folder.glob(pattern)):
            there = (_bytes(file) or b"").decode("utf-8", "replace") if file.is_file() else ""
            if os.path.realpath(file) != os.path.realpath(path) and text in there and not is_ours(there):
                found[file] = None
    return list(found)


def endpoints_in(path: Path, client: HookClient) -> list[tuple[str, str]]:
    """Where our hooks of a settings file are sent, and their `Authorization`, each once."""
    if client.settings.http_entry is None:
        return []
    entries = _parsed(path, _bytes(path)).get("hooks", {})
    found = (hook for group in entries.values() for entry in group for hook in entry.get("hooks", []))
    ours = [(hook["url"], hook["headers"]["Authorization"]) for hook in found if PATH in hook.get("url", "")]
    return list(dict.fromkeys(ours))


def _commands(value: Any) -> Iterator[str]:
    """Every command line and URL in a settings' `hooks`."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if name in ("command", "bash", "url") and isinstance(inner, str):
                arguments = value.get("args")
                yield shlex.join([inner, *map(str, arguments)]) if isinstance(arguments, list) else inner
            else:
                yield from _commands(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _commands(inner)


def _without_guards(
    settings: dict[str, Any], had: Mapping[str, Any], path: Path, client: HookClient
) -> dict[str, Any]:
    """Settings without what stands beside our hooks, but what they had before; and without what is empty."""
    then = dict(settings)
    for name, value in client.settings.beside({}).items():
        if isinstance(value, dict):
            before, mine = _table(had, name, path, client), _table(settings, name, path, client)
            kept = {key: one for key, one in mine.items() if key in before or value.get(key) != one}
            then[name] = {key: one for key, one in kept.items() if key in before or not _is_for_http(key, one)}
        elif name not in had and settings.get(name) == value:
            then.pop(name, None)
    for name, value in client.settings.beside_managed.items():
        if then.get(name) == value:
            del then[name]
            then |= {name: had[name]} if name in had else {}
    return {name: value for name, value in then.items() if value or name in had or name not in _MAY_BE_EMPTY}


def _is_for_http(name: str, value: Any) -> bool:
    return name in without_proxy({}) and str(value).startswith("127.0.0.1")


_MAY_BE_EMPTY = ("hooks", "env", "hooksConfig")


def _table(settings: Mapping[str, Any], name: str, path: Path, client: HookClient) -> dict[str, Any]:
    found = settings.get(name, {})
    if not isinstance(found, dict):
        raise UsageError(f"`{name}` in `{path}` is not as {client.title} writes it; repair it first")
    return found


def _without_ours(hooks: Any, path: Path, client: HookClient) -> dict[str, list[Any]]:
    if not isinstance(hooks, dict) or not all(isinstance(entries, list) for entries in hooks.values()):
        raise UsageError(f"`hooks` in `{path}` is not as {client.title} writes it; repair it first")
    kept = {event: [entry for entry in entries if not _is_our_entry(entry)] for event, entries in hooks.items()}
    return {event: entries for event, entries in kept.items() if entries or not hooks[event]}


def _is_our_entry(entry: Any) -> bool:
    lines = list(_commands(entry))
    return bool(lines) and all(map(is_ours, lines))


def _bytes(path: Path) -> bytes | None:
    """A file's content; None if there is no file."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(f"`{path}` cannot be read: {os_words(error)}") from None


def _parsed(path: Path, data: bytes | None) -> dict[str, Any]:
    try:
        found = json.loads((data or b"").decode("utf-8-sig") or "{}")
    except UnicodeError as error:
        raise UsageError(f"`{path}` cannot be read: {os_words(error)}; repair the file first") from error
    except json.JSONDecodeError as error:
        place = f"{path}:{error.lineno}:{error.colno}"
        if error.doc[error.pos :].startswith(("//", "/*")):
            raise UsageError(f"{place}: a comment, which would be lost; remove it first") from error
        raise UsageError(f"{place}: not JSON: {error.msg.lower()}; repair the file first") from error
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else "a number has too many digits"
        raise UsageError(f"`{path}` cannot be read: {reason}; repair the file first") from error
    if not isinstance(found, dict):
        raise UsageError(f"`{path}` is not a settings file: it does not hold an object")
    return found


def _encoded(settings: dict[str, Any]) -> bytes:
    return json.dumps(settings, indent=2, ensure_ascii=False).encode(errors="backslashreplace") + b"\n"


def _keep_before(path: Path, data: bytes | None) -> None:
    """Keep a file as it is before it gets hooks; one that is not there leaves nothing of an earlier time."""
    beside = path.with_name(path.name + _BEFORE)
    if data is not None:
        _write(beside, data)
    elif beside.exists():
        _unlink(beside)


def _write(path: Path, data: bytes, *, private: bool = False) -> None:
    """Replace the file as a whole: a client that reads it meanwhile sees the one or the other. A private one holds a
    token, which other users must not read.
    """
    try:
        Path(os.path.realpath(path)).parent.mkdir(parents=True, exist_ok=True)
        if private and path.exists():
            path.chmod(0o600)
        with atomic_write(path, mode=0o600) as file:
            file.write(data)
    except OSError as error:
        raise UsageError(f"`{path}` cannot be written: {os_words(error)}") from error


def _unlink(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(f"`{path}` cannot be removed: {os_words(error)}") from error
