"""Codex trusts hooks one by one: it skips one that is not trusted without a word.

`codex app-server` lists hooks with the digest of each, and writes which digests are trusted into its `config.toml`.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import threading
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from proctor.policies.errors import os_words
from proctor.supervisor.errors import ProviderError, UsageError

from ...kit.values import atomic_write
from ..messages import ClientSettings, HookTrust

_PATIENCE_S = 30.0


def program() -> str | None:
    """The `codex` on PATH, or the one that the Python package carries."""
    if found := shutil.which("codex"):
        return found
    with contextlib.suppress(ImportError):
        import codex_cli_bin  # type: ignore[import-untyped, unused-ignore]

        return str(Path(codex_cli_bin.__file__).parent / "bin" / "codex")
    return None


def loads(folder: Path, settings: Path) -> tuple[bool, list[str]]:
    """Whether Codex starts the hooks of a settings file in a folder, and why not."""
    try:
        with _app_server(folder) as request:
            found = None if request is None else _of_file(request, folder, settings)
    except ProviderError as error:
        return False, [str(error)]
    if found is None:
        return False, ["`codex` is not installed here, so proctor cannot ask whether it trusts them"]
    if not found:
        why = "it does not trust this folder, or settings switch hooks off (`hooks` under `[features]`)"
        return False, [f"Codex does not load them here: {why}"]
    bad = sorted({one["eventName"] for one in found if one["trustStatus"] != "trusted" or not one["enabled"]})
    return not bad, [f"Codex does not trust its hooks of {', '.join(bad)}: see `/hooks` there"] if bad else []


def trust(folder: Path, settings: Path) -> str:
    """Have Codex trust the hooks of a settings file as they are now, where it sees them; the outcome in words.

    Raises ProviderError when Codex cannot be asked.
    """
    with _app_server(folder) as request:
        if request is None:
            return "Codex is not installed here; trust the hooks in it with `/hooks`, or it skips them"
        found = _of_file(request, folder, settings)
        new = {one["key"]: {"trusted_hash": one["currentHash"]} for one in found if one["trustStatus"] != "trusted"}
        if new:
            edit = {"keyPath": "hooks.state", "value": new, "mergeStrategy": "upsert"}
            request("config/batchWrite", {"edits": [edit], "reloadUserConfig": True})
        if found:
            return "Codex trusts these hooks from now on"
        return "Codex does not load a folder's hooks before it trusts the folder: do so, and install again"


def back_up_config(own: ClientSettings) -> None:
    """Keep Codex's `config.toml` as it is before it is to trust hooks; `distrust` puts it back."""
    _copy(_config(own), _before(own))


def distrust(own: ClientSettings, settings: Path) -> None:
    """Take the trust of a file's hooks out of `config.toml`: it is as it was before, where nothing else has changed.

    Raises UsageError when it cannot be read or written.
    """
    config, before = _config(own), _before(own)
    try:
        text = config.read_text(encoding="utf-8-sig")
        now = tomllib.loads(text)
        state = now.get("hooks", {}).get("state", {})
        keys = [
            key for key in state if key.startswith(f"{os.path.realpath(settings)}:") or key.startswith(f"{settings}:")
        ]
        earlier = tomllib.loads(before.read_text(encoding="utf-8-sig") if before.exists() else "")
        if keys and _without(now, keys) == _without(earlier, []):
            _copy(before, config)
        elif keys:
            empty = "state" not in _without(now, keys).get("hooks", {}) and "state" not in earlier.get("hooks", {})
            tables = {f"hooks.state.{json.dumps(key)}" for key in keys} | ({"hooks.state"} if empty else set())
            text = _cut(text, tables)
            if _without(tomllib.loads(text), []) != _without(now, keys):
                raise ValueError("its `hooks.state` is not as Codex writes it")
            with atomic_write(config) as file:
                file.write(text.encode())
        before.unlink(missing_ok=True)
    except FileNotFoundError:
        return
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"`{config}` cannot be put back: {os_words(error)}") from error


def _cut(text: str, tables: set[str]) -> str:
    """A file without these tables, each from its header to the next one."""
    kept: list[str] = []
    inside = False
    for line in text.splitlines(keepends=True):
        if line.startswith("["):
            inside = line.strip()[1:-1] in tables
        if not inside:
            kept.append(line)
    return "".join(kept).rstrip("\n") + "\n"


def _without(config: dict[str, Any], keys: list[str]) -> dict[str, Any]:
    """A configuration without the trust of these hooks, and without tables that are empty then."""
    hooks = dict(config.get("hooks", {}))
    state = {key: value for key, value in hooks.get("state", {}).items() if key not in keys}
    hooks = {
        **{name: value for name, value in hooks.items() if name != "state"},
        **({"state": state} if state else {}),
    }
    return {
        **{name: value for name, value in config.items() if name != "hooks"},
        **({"hooks": hooks} if hooks else {}),
    }


def _config(own: ClientSettings) -> Path:
    return own.of_user(".codex/config.toml")


def _before(own: ClientSettings) -> Path:
    return _config(own).with_name("config.toml.before-proctor")


def _copy(source: Path, target: Path) -> None:
    """Make one file what another is; not there, where that is not."""
    if source.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)
    else:
        target.unlink(missing_ok=True)


def _of_file(request: Any, folder: Path, settings: Path) -> list[dict[str, Any]]:
    data = request("hooks/list", {"cwds": [os.fspath(folder)]})["data"]
    path = os.path.realpath(settings)
    return [one for entry in data for one in entry["hooks"] if os.path.realpath(one["sourcePath"]) == path]


@contextlib.contextmanager
def _app_server(folder: Path) -> Iterator[Any]:
    """Something that asks an app-server of Codex; None where there is none."""
    codex = program()
    if codex is None:
        yield None
        return
    quiet = ["-c", "analytics.enabled=false", "--disable", "plugins"]
    process = subprocess.Popen(
        [codex, *quiet, "app-server"],
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    timer = threading.Timer(_PATIENCE_S, process.kill)
    timer.start()
    number = 0

    def request(method: str, params: dict[str, Any]) -> Any:
        nonlocal number
        number += 1
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps({"id": number, "method": method, "params": params}).encode() + b"\n")
        process.stdin.flush()
        for line in process.stdout:
            answer = json.loads(line)
            if answer.get("id") == number:
                return answer["result"]
        raise OSError("it ended")

    try:
        about = {"name": "proctor", "title": "proctor", "version": "1"}
        request("initialize", {"clientInfo": about, "capabilities": {"experimentalApi": True}})
        assert process.stdin is not None
        process.stdin.write(b'{"method": "initialized"}\n')
        yield request
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise ProviderError(
            f"Codex cannot be asked about its hooks: {error}; trust them in Codex with `/hooks`"
        ) from error
    finally:
        timer.cancel()
        process.kill()
        process.communicate()


TRUST: Final = HookTrust(back_up=back_up_config, trust=trust, distrust=distrust, loads=loads)
