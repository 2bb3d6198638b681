"""The hook of an interactive Claude Code runs no code of its working directory, and detects a replaced store."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hook_processes import HookProcesses, end_daemons

from proctor.adapters.hooks.record import store_id

CALL = {"session_id": "s", "hook_event_name": "PreToolUse", "tool_use_id": "t", "tool_name": "Bash"}
MARK = "open({mark!r}, 'a').write(__name__ + '\\n')\n"
IMPORTED = """
import sys
before = set()
{code}
print("\\n".join(sorted({{name.partition(".")[0] for name in sys.modules}})))
"""


def modules(code: str, *flags: str) -> set[str]:
    """The top-level modules that this code imports."""
    ran = subprocess.run([sys.executable, *flags, "-c", IMPORTED.format(code=code)], capture_output=True, text=True)
    return set(ran.stdout.split())


@pytest.fixture
def hooked(tmp_path: Path) -> Iterator[HookProcesses]:
    """A hook under a policy that denies nothing."""
    hooked = HookProcesses(tmp_path)
    yield hooked
    end_daemons(hooked.store)


@pytest.fixture
def poisoned(hooked: Any, tmp_path: Path) -> Any:
    """The hook in a folder with a hostile module for every one that its processes import."""
    names = modules("import proctor.adapters.hooks.daemon")
    names |= modules("import os, signal, socket, stat, struct, time, json, subprocess", "-I", "-S")
    folder, mark = tmp_path / "repository", tmp_path / "mark"
    folder.mkdir()
    for name in names - {"__main__", "sys", "builtins"}:
        (folder / f"{name}.py").write_text(MARK.format(mark=str(mark)))
    (folder / "sitecustomize.py").write_text(MARK.format(mark=str(mark)))
    (folder / "usercustomize.py").write_text(MARK.format(mark=str(mark)))
    hooked.cwd, hooked.mark = folder, mark
    hooked.policy.write_text("{name: p, on_violation: deny, tool_rules: [{deny: [Bash]}]}")
    assert {"json", "socket", "msgspec", "yaml", "proctor"} <= {path.stem for path in folder.iterdir()}
    return hooked


def verdict(hooked: Any) -> str:
    """The hook's answer to a denied call."""
    answer: dict[str, Any] = hooked.answer_to(CALL)
    return str(answer["hookSpecificOutput"]["permissionDecisionReason"])


def test_modules_in_the_folder_and_pythons_environment_have_no_effect(poisoned: Any) -> None:
    """On the hook and on its daemon. A repository can set environment variables."""
    plain = verdict(poisoned)
    end_daemons(poisoned.store)
    poisoned.env = {name: str(poisoned.cwd) for name in ("PYTHONPATH", "PYTHONHOME", "PYTHONUSERBASE")}
    poisoned.env |= {"PYTHONSTARTUP": str(poisoned.cwd / "json.py"), "PYTHONWARNINGS": "error"}

    assert plain == verdict(poisoned) == "Tool 'Bash' is not available in this context."
    assert not poisoned.mark.exists()


def test_the_daemon_starts_without_the_environment(poisoned: Any) -> None:
    """Only the home directory is passed on."""
    names = ["PROCTOR_STORE", "LD_LIBRARY_PATH", "SSL_CERT_FILE", "XDG_STATE_HOME", "XDG_CACHE_HOME", "PATH"]
    names += ["XDG_CONFIG_HOME", "TMPDIR", "TZ", "LANG", "LC_ALL"]
    poisoned.env = dict.fromkeys(names, str(poisoned.cwd))
    verdict(poisoned)
    [pid] = poisoned.daemons()

    environment = Path(f"/proc/{pid}/environ").read_bytes()
    assert [name for name in names if f"{name}=".encode() in environment] == []


def test_with_another_home_nothing_is_evaluated(poisoned: Any) -> None:
    """`~` in a policy or in a call would mean another folder than when the hook was installed."""
    before = poisoned.run(CALL | {"tool_name": "Read"}).stdout
    answers = []
    for number, home in enumerate((str(poisoned.cwd), "", "relative")):
        poisoned.env = {"HOME": home}
        answers.append(poisoned.answer_to(CALL | {"tool_name": "Read", "tool_use_id": f"h{number}"}))

    assert before == b""
    assert ["HOME is not" in answer["systemMessage"] for answer in answers] == [True] * 3
    assert [answer["hookSpecificOutput"]["permissionDecision"] for answer in answers] == ["deny"] * 3


def remove(store: Path) -> None:
    """Remove a store and its log, which would restore it."""
    for suffix in ("", "-wal", "-shm"):
        store.with_name(f"{store.name}{suffix}").unlink(missing_ok=True)


def test_a_missing_or_replaced_store_denies(hooked: Any) -> None:
    """With an empty store in its place, usage and history would be lost."""
    first = hooked.run({**CALL, "tool_use_id": "t1"})
    remove(hooked.store)
    gone = hooked.answer_to({**CALL, "tool_use_id": "t2"})
    other = hooked.folder / "other.db"
    store_id(other)
    other.rename(hooked.store)
    replaced = hooked.answer_to({**CALL, "tool_use_id": "t3"})

    assert first.stdout == b""
    assert "there is no store" in gone["systemMessage"]
    assert "is not the store the hooks were installed with" in replaced["systemMessage"]
    for answer in (gone, replaced):
        assert answer["hookSpecificOutput"]["permissionDecision"] == "deny"


def test_an_older_copy_of_the_store_denies(hooked: Any) -> None:
    """It has the right id, and lacks events that the daemon knows were stored."""
    hooked.policy.write_text("{name: p, limits: {max_tool_calls: {max: 2, action: deny}}}")
    copy = hooked.store.read_bytes()
    allowed = hooked.run({**CALL, "tool_use_id": "t1"}).stdout
    remove(hooked.store)
    hooked.store.write_bytes(copy)
    answer = hooked.answer_to({**CALL, "tool_use_id": "t2"})

    assert allowed == b""
    assert "has lost events" in answer["systemMessage"]


def test_only_the_user_can_reach_the_socket(hooked: Any) -> None:
    """A folder that others may write to is not used."""
    hooked.run(CALL)
    modes = [path.lstat().st_mode & 0o777 for path in (hooked.place, hooked.place / "socket", hooked.place / "lock")]
    hooked.place.chmod(0o770)
    answer = hooked.answer_to({**CALL, "tool_use_id": "t2"})

    assert modes[0] == 0o700
    assert all(mode & 0o077 == 0 for mode in modes[1:])
    assert "is not a folder of this user's own" in answer["systemMessage"]
    assert json.dumps(answer["hookSpecificOutput"]).count("deny") == 1
