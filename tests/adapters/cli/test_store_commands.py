"""`runs`, `show`, `tail`, `approvals`, `approve`, `deny` and `kill`: reading the store, and commands through it."""

import json
import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.forked_programs import warm_proctor
from tests.stopping import killed_at_the_end

RUN = ("run", "--json", "--adapter", "scripted", "--set", "script=agent.yaml", "--policy")


def going(policy: str, *more: str) -> AbstractContextManager[Any]:
    """A run in its own process, with its events as they come."""
    return killed_at_the_end([warm_proctor(), *RUN, policy, *more, "go"])


def until(process: Any, kind: str) -> dict[str, Any]:
    """The next event of a type."""
    for line in process.stdout:
        event: dict[str, Any] = json.loads(line)
        if event["type"] == kind:
            return event
    raise AssertionError(f"no {kind} came")


@pytest.fixture
def waits(place: Path) -> str:
    """A script that requests a deployment, and the policy to run it under."""
    place.joinpath("agent.yaml").write_text(
        "tools: [deploy, bash]\nsteps:\n  - call: deploy\n    input: {to: prod}\n"
    )
    return "team.yaml"


@pytest.fixture
def silent(place: Path) -> str:
    """A silent script that runs until it is cancelled, and the policy to run it under."""
    place.joinpath("agent.yaml").write_text("steps:\n  - silence: forever\n")
    return "org.yaml"


def test_a_run_is_listed_shown_and_tailed(cli: Any, ran: Any) -> None:
    """As text and as JSON; by its id, by a prefix and as the last; with a number of its latest events."""
    listed, run_id = cli("runs"), ran.lines[-1]["run_id"]
    shown = [cli("show", name).out for name in (run_id, run_id[:14], run_id[4:14], "last")]

    assert "completed  scripted" in listed.out
    assert "Tidy up" in listed.out
    assert cli("runs", "--json").lines[0]["run_id"] == run_id
    assert len(set(shown)) == 1
    assert "denied    delete" in shown[0]
    assert [line["seq"] for line in cli("show", "--json", "last").lines] == [line["seq"] for line in ran.lines[:-1]]
    assert [line["type"] for line in cli("tail", "--json", "-n", "1").lines] == ["run_completed"]
    assert cli("tail", "--follow", "--run", "last", "--json").lines[-1]["type"] == "run_completed"
    assert cli("tail", "-n", "0").out == ""


def test_a_pending_call_is_listed_and_approved_by_another_process(cli: Any, waits: str) -> None:
    """It runs after the approval, and the event log has the approver."""
    with going(waits) as process:
        request = until(process, "tool_approval_requested")
        listed = cli("approvals")
        answer = cli("approve", request["approval_id"], "--by", "ana", "--reason", "looks right")
        granted = until(process, "tool_approval_granted")
        until(process, "tool_call_started")

    assert 'to: "prod"' in listed.out
    assert (answer.code, answer.out) == (0, "approved by ana\n")
    assert (granted["by"], granted["reason"]) == ("ana", "looks right")


def test_a_pending_call_is_denied_by_its_displayed_id(cli: Any, waits: str) -> None:
    """The prefix of the run's id and the number. The model gets one text, and the event log the reason, with the
    holder of the token if another person answers.
    """
    with going(waits) as process:
        request = until(process, "tool_approval_requested")
        run, _, number = request["approval_id"].partition(".")
        words = ("--tell", "Use the staging host.", "--reason", "it is Friday", "--by", "bo")
        answer = cli("deny", f"{run[:12]}.{number}", "--json", *words)
        declined = until(process, "tool_approval_denied")
        denied = until(process, "tool_call_denied")

    assert (answer.lines[0]["answer"], answer.lines[0]["outcome"]) == ("denied", "declined")
    assert (declined["by"], declined["reason"]) == ("bo", "it is Friday, with the token of `ana`")
    assert denied["tell_model"] == "Use the staging host."
    assert cli("approvals", "--json").out == ""


@pytest.mark.parametrize("target", ["run", "last", "session", "tenant", "all"])
def test_kill_ends_a_run_of_another_process(cli: Any, silent: str, target: str) -> None:
    """And waits until it has ended. The run's own process exits with code 3."""
    with going(silent, "--context", "tenant=acme") as process:
        started = until(process, "run_started")
        until(process, "message_sent")
        named = {"run": started["run_id"], "session": started["session_id"], "tenant": "acme"}.get(target)
        which = (target,) if target == "last" else (f"--{target}", *([named] if named else []))
        killed = cli("kill", *which, "--reason", "too long")
        ended = until(process, "run_cancelled")
        code = process.wait(20)

    assert (killed.code, killed.out) == (0, f"{started['run_id']}: ended, cancelled\n")
    assert ended["reason"] == "too long"
    assert code == 3


def test_kill_needs_exactly_one_active_target(cli: Any, ran: Any) -> None:
    """Neither none nor two, nor an ended or unknown one. It waits for a number of seconds."""
    waits = cli("kill", "--all", "--wait", "nan")

    assert (waits.code, waits.out, waits.err) == (2, "", "error: `--wait SECONDS`: `nan` is not a number\n")
    assert cli("kill").code == 2
    assert cli("kill", "--all", "--tenant", "acme").code == 2
    assert "it is completed" in cli("kill", "--run", "last").err
    assert "it is completed" in cli("kill", "last").err
    assert cli("kill", "--all").err == "nothing to cancel: none of these runs is active\n"
    assert "there is no session `typo`" in cli("kill", "--session", "typo").err
    assert "there is no approval" in cli("approve", f"{ran.lines[-1]['run_id']}.9").err
    assert cli("show", "run_zzz").err == "error: there is no run `run_zzz`; `proctor runs` lists them\n"


def test_only_the_owner_can_read_a_store(cli: Any, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has prompts and outputs. The folder that is created for it is private too."""
    monkeypatch.delenv("PROCTOR_STORE", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(place / "state"))
    cli("store", "--make")
    file = place / "state" / "proctor" / "runs.db"

    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700


def test_a_file_that_is_no_store_is_left_unchanged(
    cli: Any, ran: Any, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 2 for a wrong file or location, 3 if the machine failed, and one line that says which."""
    place.joinpath("notes.txt").write_text("my notes")
    place.joinpath("folder").mkdir()
    place.joinpath("empty.db").touch()
    os.mkfifo(place / "pipe")
    whole = (place / "state" / "proctor" / "runs.db").read_bytes()
    place.joinpath("cut.db").write_bytes(whole[:-4096])
    place.joinpath("older.db").write_bytes(whole[:63] + b"\1" + whole[64:])  # its `user_version`
    run = ("run", "--adapter", "shell", "--policy", "org.yaml")
    for words, store, code, message in (
        (("runs",), "notes.txt", 2, "`notes.txt` is not a proctor store"),
        (("runs",), "cut.db", 3, "`cut.db` is truncated"),
        (("runs",), "older.db", 2, "has schema version 1, from before the first release"),
        (("runs",), "empty.db", 3, "`empty.db` is empty: no run was ever stored in it, or it was truncated"),
        (("audit", "verify"), "empty.db", 3, "`empty.db` is empty"),
        (("watch",), "empty.db", 3, "`empty.db` is empty"),
        ((*run, "true"), "folder", 2, "`folder` is a folder, not a store; name a file in it"),
        (("runs",), "pipe", 2, "`pipe` is a pipe or a device, not a store; name a file"),
        ((*run, "true"), "none/runs.db", 2, "`none/runs.db` cannot be created: there is no folder `none`"),
    ):
        answer = cli(*words, "--store", store)

        assert (answer.code, answer.out, answer.err.count("\n")) == (code, "", 1), answer
        assert message in answer.err
    assert place.joinpath("notes.txt").read_text() == "my notes"
    assert not (place / "none").exists()
    monkeypatch.setenv("XDG_STATE_HOME", str(place / "notes.txt"))
    unmade = cli("store", "--make")
    assert (unmade.code, "name a file with `--store`" in unmade.err) == (3, True)


QUICK = "name: agent\nsteps: [{say: done}]\n"


def test_nothing_starts_until_the_freeze_is_lifted(cli: Any, silent: str, place: Path) -> None:
    """`kill --no-new-starts`: a start gets the person and the reason. `--lift` prints what it lifted."""
    place.joinpath("quick.yaml").write_text(QUICK)
    words = ("run", "--adapter", "scripted", "--set", "script=quick.yaml", "--policy", "org.yaml", "x")
    cli(*words)
    with going(silent) as process:
        started = until(process, "run_started")
        killed = cli("kill", "--all", "--no-new-starts", "--reason", "an incident", "--json")
    rejected = cli(*words)
    shown = cli("kill", "--lift")
    again = cli("kill", "--lift")

    assert [(line["run_id"], line["status"]) for line in killed.lines] == [(started["run_id"], "cancelled")]
    assert (rejected.code, rejected.out) == (3, "")
    assert "error: no run starts: `" in rejected.err
    assert "an incident; `proctor kill --lift` lifts that" in rejected.err
    assert shown.out.startswith("lifted: no run starts, frozen by `")
    assert again.err == "nothing to lift: there is no such freeze\n"
    assert cli(*words, "--fail-on", "never").code == 0


def test_runs_of_a_label_are_killed_and_frozen(cli: Any, place: Path) -> None:
    """By its key and value. Other runs continue."""
    place.joinpath("quick.yaml").write_text(QUICK)
    words = ("run", "--adapter", "scripted", "--set", "script=quick.yaml", "--policy", "org.yaml", "x")
    cli(*words)
    killed = cli("kill", "--label", "env=prod", "--no-new-starts")
    prod = cli(*words, "--context", "labels.env=prod")
    test = cli(*words, "--context", "labels.env=test", "--fail-on", "never")
    lifted = cli("kill", "--lift", "--label", "env=prod", "--json")

    assert killed.code == 0
    assert (prod.code, test.code) == (3, 0)
    assert "no run of label `env=prod` starts" in prod.err
    assert [line["lifted"]["value"] for line in lifted.lines] == ["env=prod"]


def test_a_store_is_created_only_on_request(cli: Any, place: Path) -> None:
    """Before anything has run, as for setting up a server. A second time it changes nothing."""
    before = cli("store", "--store", "new.db")
    assert not place.joinpath("new.db").exists()
    made = cli("store", "--make", "--store", "new.db", "--json")
    again = cli("store", "--make", "--store", "new.db", "--json")

    assert (before.code, "`proctor store --make` creates one" in before.err) == (2, True)
    assert (made.code, made.lines[0]["events"]) == (0, 0)
    assert again.lines == made.lines
    assert cli("store", "--make", "--store", "nowhere/new.db").err.endswith("there is no folder `nowhere`\n")


def test_a_backup_is_made_while_a_run_writes(cli: Any, place: Path, waits: str) -> None:
    """The copy is a private store with the log of that moment, and nothing else is left. The then active run is lost
    there; `reap` ends it with its pending call.
    """
    with going(waits) as process:
        until(process, "tool_approval_requested")
        copied = cli("store", "--backup", "backup.db", "--json")
        approved = cli("approvals", "--json").lines[0]["approval_id"]
        assert cli("approve", approved).code == 0
        until(process, "run_completed")
    backup = place / "backup.db"
    verified = cli("audit", "verify", "--store", "backup.db")
    left = sorted(path.name for path in place.glob("*backup*"))

    assert (copied.code, copied.lines) == (0, [{"file": "backup.db", "bytes": backup.stat().st_size}])
    assert backup.stat().st_mode & 0o077 == 0
    assert [each["status"] for each in cli("runs", "--json").lines] == ["completed"]
    assert [each["status"] for each in cli("runs", "--store", "backup.db", "--json").lines] == ["lost"]
    assert "integrity: no record was changed" in verified.out
    assert left == ["backup.db"]
    assert "ended; its supervisor, process " in cli("reap", "--store", "backup.db").out
    assert cli("approvals", "--store", "backup.db", "--json").lines == []


@pytest.mark.parametrize(("arguments", "code", "message"), [
    (("--backup", "org.yaml"), 2, "`org.yaml` exists"),
    (("--backup", "nowhere/b.db"), 2, "`nowhere/b.db` cannot be written: there is no folder `nowhere`"),
    (("--backup", "b.db", "--store", "none.db"), 2, "there is no store at `none.db`"),
    (("--backup", "b.db", "--store", "org.yaml"), 2, "is not a proctor store"),
    (("--backup", "b.db", "--store", "postgresql://x@localhost/y"), 2, "a backup of its own: `pg_dump`"),
])  # fmt: skip
def test_an_impossible_backup_is_reported(
    cli: Any, place: Path, ran: Any, arguments: Any, code: int, message: str
) -> None:
    """Nothing is overwritten, and no partial copy is left."""
    answer = cli("store", *arguments)

    assert (answer.code, message in answer.err) == (code, True), answer
    assert not (place / "b.db").exists()
