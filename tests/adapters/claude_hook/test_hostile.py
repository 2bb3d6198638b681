"""Hooks as processes, with input and surroundings made to break them: whatever happens, no call gets through."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

REFUSED = "This could not be checked against the policy, so it is refused."
CALL = {"session_id": "s", "hook_event_name": "PreToolUse", "tool_use_id": "t", "tool_name": "Bash"}

AS_NOBODY = """
import os, sys
import proctor.adapters.claude_hook.answers, proctor.adapters.claude_hook.hook
from proctor.adapters.claude_hook.__main__ import main
if os.geteuid() == 0:
    os.setuid(65534)
sys.exit(main(sys.argv[1:]))
"""


class Hooked:
    """A hook's command line in a folder, and what came of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.policy = folder / "policy.yaml"
        self.policy.write_text("{name: secret}")
        self.store = folder / "store.db"
        self.more: tuple[str, ...] = ()
        self.program: tuple[str, ...] = ("-m", "proctor.adapters.claude_hook")

    def run(self, data: bytes | dict[str, Any]) -> subprocess.CompletedProcess[bytes]:
        """One hook, as the client would start it."""
        command = [sys.executable, *self.program, "--policy", str(self.policy)]
        command += ["--store", str(self.store), *self.more]
        given = data if isinstance(data, bytes) else json.dumps(data).encode()
        return subprocess.run(command, input=given, capture_output=True, timeout=60)

    def refusal(self, call: dict[str, Any]) -> str:
        """What the person is told of a call that is refused in public words."""
        ended = self.run(call)
        told = json.loads(ended.stdout)
        decision = {"permissionDecision": "deny", "permissionDecisionReason": REFUSED}
        assert (ended.returncode, ended.stderr) == (0, b"")
        assert told["hookSpecificOutput"] == {"hookEventName": "PreToolUse", **decision}
        return str(told["systemMessage"])


@pytest.fixture
def hooked(tmp_path: Path) -> Hooked:
    """A hook under a policy that forbids nothing."""
    return Hooked(tmp_path)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"garbage",
        b"\xff\xfe\x00",
        b"null",
        b"[]",
        b"{}",
        b'{"session_id": "s", "hook_event_name": ["PreToolUse"]}',
        b'{"hook_event_name": "PreToolUse", "tool_input": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
    ids=["nothing", "text", "bytes", "null", "list", "no fields", "a list for a name", "nested without end"],
)
def test_what_is_no_hook_is_refused_by_the_exit_code(hooked: Hooked, data: bytes) -> None:
    """By 2 the client refuses whatever it was; one sentence, and nothing is recorded."""
    ended = hooked.run(data)

    assert (ended.returncode, ended.stdout) == (2, b"")
    assert ended.stderr.decode() == f"{REFUSED}\n"
    assert not hooked.store.exists()


@pytest.mark.parametrize(
    "wrong",
    [
        {"session_id": 7},
        {"session_id": ""},
        {"tool_use_id": None},
        {"tool_use_id": ""},
        {"tool_name": {}},
        {"tool_input": "ls"},
        {"tool_input": None},
        {"transcript_path": 7},
        {"tool_name": "\ud800"},
    ],
)
def test_a_call_of_another_shape_is_refused(hooked: Hooked, wrong: dict[str, Any]) -> None:
    """The person is told what is wrong with it."""
    told = hooked.refusal({**CALL, **wrong})

    assert told.startswith("proctor: ")
    assert "\n" not in told
    assert not hooked.store.exists()


def test_a_hook_of_a_name_that_is_not_known_says_nothing(hooked: Hooked) -> None:
    """The client may come to have more hooks; none of them is a call."""
    ended = hooked.run({"session_id": "s", "hook_event_name": "BrandNew", "tool_input": 7, "more": [1]})
    fine = hooked.run({"session_id": "s", "hook_event_name": "BrandNew", "more": [1]})

    assert (ended.returncode, ended.stderr) == (0, b"")
    assert "hookSpecificOutput" not in json.loads(ended.stdout)
    assert (fine.returncode, fine.stdout, fine.stderr) == (0, b"", b"")


def test_a_call_of_many_megabytes_is_judged_like_any_other(hooked: Hooked) -> None:
    """It is allowed, and its record is whole."""
    ended = hooked.run({**CALL, "tool_input": {"content": "x" * 20_000_000}})

    assert (ended.returncode, ended.stdout) == (0, b"")
    assert hooked.store.stat().st_size > 20_000_000


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        ("no policy", "policy.yaml: cannot read the file"),
        ("bad policy", "policy.yaml:2:8: expected a list"),
        ("no folder", "does not exist"),
        ("folder", "is a directory"),
        ("no store", "is not a proctor store"),
        ("context", "`--context` cannot be read"),
        ("option", "install it anew"),
    ],
)
def test_surroundings_that_are_broken_refuse_calls_and_prompts(hooked: Hooked, broken: str, why: str) -> None:
    """Each is named to the person, and not to the model."""
    if broken == "no policy":
        hooked.policy.unlink()
    elif broken == "bad policy":
        hooked.policy.write_text("name: secret\nrules: 7\n")
    elif broken == "no folder":
        hooked.store = hooked.folder / "nowhere" / "store.db"
    elif broken == "folder":
        hooked.store = hooked.folder
    elif broken == "no store":
        hooked.store.write_text("no database, whatever else it may be\n" * 100)
    else:
        hooked.more = ("--context", "{") if broken == "context" else ("--frobnicate", "x")
    told = hooked.refusal(CALL)
    prompted = hooked.run({"session_id": "s", "hook_event_name": "UserPromptSubmit", "prompt": "go"})

    assert why in told
    assert "Traceback" not in told
    assert json.loads(prompted.stdout)["decision"] == "block"
    assert why in json.loads(prompted.stdout)["reason"]


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs users")
def test_a_store_that_may_only_be_read_refuses(hooked: Hooked) -> None:
    """For a user who is not root; nothing could be recorded of the call."""
    hooked.run(CALL)
    with tempfile.TemporaryDirectory() as directory:
        there = Path(directory)
        for file in (hooked.policy, hooked.store):
            (there / file.name).write_bytes(file.read_bytes())
            (there / file.name).chmod(0o444)
        there.chmod(0o555)
        hooked.policy, hooked.store = there / "policy.yaml", there / "store.db"
        hooked.program = ("-c", AS_NOBODY)
        told = hooked.refusal({**CALL, "tool_use_id": "t2"})
        there.chmod(0o755)

    assert "store.db" in told
    assert "\n" not in told
