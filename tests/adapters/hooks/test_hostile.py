"""Hooks as processes with hostile inputs and environments: no call is ever let through."""

import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from plain_user import MISSING, PLAIN, WHY
from stored_rows import stored_rows

from proctor.adapters.hooks import decider
from proctor.adapters.hooks.record import store_id
from proctor.policies import PolicyError

pytestmark = pytest.mark.anyio
REFUSED = "This could not be checked against the policy, so it is denied."
CALL = {"session_id": "s", "hook_event_name": "PreToolUse", "tool_use_id": "t", "tool_name": "Bash"}


def refusal(hooked: Any, call: dict[str, Any]) -> str:
    """The text for the user when a call is denied without rules."""
    answer = hooked.answer_to(call)
    decision = {"permissionDecision": "deny", "permissionDecisionReason": REFUSED}
    assert answer["hookSpecificOutput"] == {"hookEventName": "PreToolUse", **decision}
    return str(answer["systemMessage"])


NO_HOOKS = {
    "nothing": b"",
    "text": b"garbage",
    "bytes": b"\xff\xfe\x00",
    "null": b"null",
    "list": b"[]",
    "no fields": b"{}",
    "a list for a name": b'{"session_id": "s", "hook_event_name": ["PreToolUse"]}',
    "nested without end": b'{"hook_event_name": "PreToolUse", "tool_input": '
    + b"[" * 100_000
    + b"]" * 100_000
    + b"}",
}
OTHER_SHAPES: list[dict[str, Any]] = [
    {"session_id": 7},
    {"session_id": ""},
    {"tool_use_id": None},
    {"tool_use_id": ""},
    {"tool_name": {}},
    {"tool_input": "ls"},
    {"tool_input": None},
    {"transcript_path": 7},
    {"tool_name": "\ud800"},
]


def test_an_invalid_hook_or_call_is_denied(hooked: Any) -> None:
    """An invalid hook gets exit code 2 and one sentence; for a call, the user gets the error. Nothing is recorded. A
    hook of an unknown name gets no answer, as the client may add some.
    """
    for name, data in NO_HOOKS.items():
        ended = hooked.run(data)
        assert (ended.returncode, ended.stdout, ended.stderr.decode()) == (2, b"", f"{REFUSED}\n"), name
    for wrong in OTHER_SHAPES:
        answer = refusal(hooked, {**CALL, **wrong})
        assert answer.startswith("proctor: "), wrong
        assert "\n" not in answer
    ended = hooked.run({"session_id": "s", "hook_event_name": "BrandNew", "tool_input": 7, "more": [1]})
    fine = hooked.run({"session_id": "s", "hook_event_name": "BrandNew", "more": [1]})

    assert (ended.returncode, ended.stderr) == (0, b"")
    assert "hookSpecificOutput" not in json.loads(ended.stdout)
    assert (fine.returncode, fine.stdout, fine.stderr) == (0, b"", b"")
    [(count,)] = stored_rows(hooked.store, "SELECT count(*) FROM events")
    assert count == 0


def test_a_call_of_many_megabytes_is_evaluated_as_any_other(hooked: Any) -> None:
    """It is allowed, and recorded whole."""
    ended = hooked.run({**CALL, "tool_name": "Write", "tool_input": {"file_path": "f", "content": "x" * 20_000_000}})

    assert (ended.returncode, ended.stdout) == (0, b"")
    assert hooked.store.stat().st_size > 20_000_000


@pytest.mark.parametrize(("broken", "why"), [
    ("no policy", "policy.yaml: cannot read the file"),
    ("bad policy", "policy.yaml:2:8: expected a list"),
    ("no folder", "there is no store at"),
    ("folder", "is a directory"),
    ("no store", "is not a proctor store"),
    ("context", "install the hook again"),
    ("option", "install the hook again"),
])  # fmt: skip
def test_a_broken_environment_denies_calls_and_prompts(hooked: Any, broken: str, why: str) -> None:
    """The user gets each reason, the model none."""
    if broken == "no policy":
        hooked.policy.unlink()
    elif broken == "bad policy":
        hooked.policy.write_text("name: secret\nrules: 7\n")
    elif broken == "no folder":
        hooked.store.unlink()
    elif broken == "folder":
        hooked.store.unlink()
        hooked.store.mkdir()
    elif broken == "no store":
        hooked.store.write_text("no database, whatever else it may be\n" * 100)
    else:
        hooked.more = ("--context", "{") if broken == "context" else ("--frobnicate", "x")
    answer = refusal(hooked, CALL)
    prompted = hooked.run({"session_id": "s", "hook_event_name": "UserPromptSubmit", "prompt": "go"})

    assert why in answer
    assert "Traceback" not in answer
    assert json.loads(prompted.stdout)["decision"] == "block"
    assert why in json.loads(prompted.stdout)["reason"]


READ_ONLY = """
import json, sys
from pathlib import Path
from proctor.adapters.hooks.decider import HookDecider, HookOptions
policy, store, known_as, call = sys.argv[1:]
judge = HookDecider(HookOptions(name="one", policies=(policy,), store=Path(store), store_id=known_as))
judge.answer_hook(json.dumps({"session_id": "s", "hook_event_name": "Stop"}).encode())
judge.close()
Path(store).chmod(0o444)
Path(store).parent.chmod(0o555)
try:
    judge.answer_hook(call.encode())
except Exception as error:
    print(error)
"""


@pytest.mark.skipif(MISSING, reason=WHY)
def test_a_read_only_store_denies(hooked: Any, tmp_path: Path) -> None:
    """Calls could not be recorded."""
    there = tmp_path / "there"
    there.mkdir()
    store = there / "store.db"
    arguments = (str(hooked.policy), str(store), store_id(store), json.dumps(CALL))
    command = [*PLAIN, sys.executable, "-c", READ_ONLY, *arguments]
    why = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    there.chmod(0o755)

    assert "store.db" in why
    assert "read-only" in why or "cannot be opened" in why


@pytest.mark.parametrize("session", [False], ids=["kept"], indirect=True)
async def test_of_a_flood_of_unrecorded_reports_the_first_are_kept(session: Any, monkeypatch: Any) -> None:
    """A client goes on telling what it does while its calls are denied, as long as a policy is broken."""
    monkeypatch.setattr(decider, "MOST_LATE", 3)
    session.prompt("p1", policy="{name: p}")
    session.pre("t1")
    session.policy.write_text("{rules: 7}")
    reports = [partial(session.post, "t1"), *(partial(session.batch, f"t{number}") for number in range(1, 9))]
    for report in reports:
        with pytest.raises(PolicyError):
            report()
    session.policy.write_text("{name: p}")
    session.pre("t2")

    ends = await session.events("tool_call_completed", "turn_completed")
    assert [event.type for event in ends] == ["tool_call_completed", "turn_completed", "turn_completed"]
