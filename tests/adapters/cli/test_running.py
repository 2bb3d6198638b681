"""`demo` and `run`."""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from page_blocks import ROOT

RUN = ("run", "--adapter", "scripted", "--set", "script=agent.yaml", "--policy", "org.yaml")


def test_the_demo_shows_each_kind_of_enforcement(cli: Any, place: Path) -> None:
    """A call allowed, one denied, one whose request expired, and a limit that ends the run (README, demo). Every
    command that it recommends works. It has its own store, and leaves existing files alone.
    """
    theirs = place / "state" / "proctor" / "runs.db"
    theirs.parent.mkdir(parents=True, exist_ok=True)
    theirs.write_bytes(b"a store of another version")
    demo = cli("demo")
    commands = [line.partition("#")[0].split() for line in demo.out.splitlines() if line.startswith("  proctor ")]

    assert (demo.code, "\033" in demo.out) == (0, False)
    for shown in ("allowed   bash", "denied    bash", "Move them to attic/", "pending   deploy", "expired   deploy"):
        assert shown in demo.out
    assert "interrupted         org/max_total_tokens" in demo.out
    assert "This is never said" not in demo.out.partition("0.0s")[2]
    assert theirs.read_bytes() == b"a store of another version"
    assert len(commands) == 4
    assert [cli(*command[1:]).code for command in commands] == [0, 0, 0, 0]
    assert "call-2): deny" in cli(*commands[1][1:]).out


STARTS = {
    "by its path": (str(Path(sys.executable).with_name("proctor")),),
    "as a module": (sys.executable, "-m", "proctor"),
    "by uv": ("uv", "run", "--no-sync", "proctor"),
    "by its name": ("proctor",),
}


@pytest.mark.parametrize("start", STARTS)
def test_commands_recommended_by_the_demo_work_where_it_was_started(start: str, place: Path) -> None:
    """Without an active virtual environment too."""
    there, found = place / "bin", Path(sys.executable).parent
    there.mkdir()
    for name in {"by uv": ["uv"], "by its name": ["proctor", "python"]}.get(start, []):
        if not (found / name).exists():
            pytest.skip(f"`{name}` is not installed")
        there.joinpath(name).symlink_to(found / name)
    env = {name: value for name, value in os.environ.items() if not name.startswith(("VIRTUAL_ENV", "UV"))}
    env |= {"PATH": f"{there}:/usr/bin:/bin", "UV_PROJECT": str(ROOT)}
    run = partial(subprocess.run, cwd=place, env=env, capture_output=True, text=True, check=False)
    demo = run([*STARTS[start], "demo"])
    last = [line.partition("  # ")[0] for line in demo.stdout.splitlines() if line.startswith("  ")][-8:]
    commands = [line for line in last if "demo-" in line or "--help" in line]

    began = commands[0].split(" show ")[0]
    typed = commands if start == "as a module" else commands[:1]  # it begins as the others do

    assert (demo.returncode, len(commands)) == (0, 4), demo.stderr
    assert [command for command in commands if not command.startswith(f"{began} ")] == []
    assert [run(command, shell=True).returncode for command in typed] == [0] * len(typed)


def test_the_demo_as_json_is_its_events_and_its_result(cli: Any) -> None:
    """One event a line, the result last."""
    lines = cli("demo", "--json").lines
    about_runs = [line["type"] for line in lines if line["type"].startswith("run_")]

    assert lines[-1]["type"] == "run_result"
    assert about_runs == ["run_started", "run_cancelled", "run_result"]


def test_a_run_that_completes_is_shown_and_stored(cli: Any) -> None:
    """A denied call is exit code 1; `--fail-on` changes that."""
    run = cli(*RUN, "Tidy up")

    assert run.code == 1
    assert [cli(*RUN, "--fail-on", on, "Tidy up").code for on in ("never", "warn", "cancel")] == [0, 1, 0]
    assert 'denied    delete(path="old"); the model is told: Nothing is deleted here.' in run.out
    assert "100 tokens in, 10 out" in run.out
    assert "prevented           org/deny-1" in run.out
    assert "checked by proctor  max_total_tokens" in run.out
    assert cli("show", "last").code == 0


def test_a_run_as_json_writes_events_and_a_result(cli: Any, ran: Any) -> None:
    """The last line is the result, and all of it is a trace for `eval`."""
    evaluated = cli("eval", "--json", "--policy", "org.yaml", "-", stdin=ran.out)

    assert ran.code == 1
    assert ran.lines[-1]["status"] == "completed"
    assert ran.lines[-1]["policy"]["action"] == "deny"
    assert [line["seq"] for line in ran.lines[:-1]] == list(range(1, len(ran.lines)))
    assert [found["rule"] for found in evaluated.lines[0]["violations"]] == ["deny-1"]


@pytest.mark.parametrize(("file", "text", "words", "shown"), [
    ("agent.yaml", "steps: [{usage: {input_tokens: 5000}}, {silence: 30}]", (*RUN, "Use a lot"),
        "interrupted         org/max_total_tokens"),
    ("no-rm.yaml", "name: no-rm\ntool_rules: [{deny: [rm], action: deny}]\n",
        ("run", "--adapter", "shell", "--policy", "no-rm.yaml", "rm -rf x"), "prevented           no-rm/deny-1"),
    ("zero.yaml", "name: zero\nlimits: {max_turns: 0}\n",
        ("run", "--adapter", "shell", "--policy", "zero.yaml", "touch ran"), "max_turns"),
], ids=["cancelled", "denied", "refused by preflight"])  # fmt: skip
def test_a_run_ended_by_a_policy_is_exit_code_1(
    cli: Any, place: Path, file: str, text: str, words: tuple[str, ...], shown: str
) -> None:
    """The summary is shown as usual. The shell agent fails when it is denied, because of the policy. A run that
    preflight rejects is not launched.
    """
    place.joinpath(file).write_text(text)
    run = cli(*words)

    assert run.code == 1
    assert shown in (run.out or run.err)
    assert not (place / "ran").exists()


def test_an_agent_that_fails_is_exit_code_3(cli: Any, place: Path) -> None:
    """Its own message is the error; JSON has the end and the usage."""
    place.joinpath("agent.yaml").write_text(
        "steps:\n  - usage: {input_tokens: 50}\n  - fail: the model is overloaded\n"
    )
    run = cli(*RUN, "Try")
    last = cli(*RUN, "--json", "Try").lines[-1]

    assert (run.code, run.err) == (3, "error: the model is overloaded\n")
    assert (last["type"], last["status"], last["reason"]) == ("run_result", "failed", "the model is overloaded")
    assert last["usage"]["input_tokens"] == 50


def test_a_shell_line_that_fails_silently_completes_the_run(cli: Any) -> None:
    """The exit code of `run` is the run's outcome, not the line's. The missing output is reported."""
    run = cli("run", "--adapter", "shell", "exit 3")

    assert run.code == 0
    assert [line.split(None, 1)[1] for line in run.out.splitlines() if "exit 3:" in line] == [
        *(["failed  exit 3: (nothing printed)"] * 2),
        "completed exit 3: (nothing printed)",
    ]


def test_a_session_is_continued(cli: Any, ran: Any) -> None:
    """Its totals and its past count."""
    session = ran.lines[-1]["session_id"]
    again = cli(*RUN, "--json", "--session", session, "--continuation", "replay", "Once more")

    assert again.lines[-1]["session_id"] == session
    assert len(cli("runs", "--json", "--session", session).lines) == 2


def test_the_prompt_may_come_from_standard_input(cli: Any) -> None:
    assert "Tidy up the attic" in cli(*RUN, "-", stdin="Tidy up the attic").out


def test_rules_see_the_context(cli: Any, place: Path) -> None:
    """`when` is evaluated with --context."""
    place.joinpath("when.yaml").write_text(
        "name: w\ntool_rules:\n  - {deny: [bash], when: [{path: $.labels.env, equals: prod}], action: deny}\n"
    )
    prod = cli(*RUN[:-1], "when.yaml", "--context", "labels.env=prod", "x")
    test = cli(*RUN[:-1], "when.yaml", "--context", "labels.env=test", "x")

    assert "denied    bash" in prod.out
    assert "allowed   bash" in test.out


def test_a_run_without_a_policy_is_recorded_and_says_so(cli: Any) -> None:
    """Nothing is denied; the start says so once, and so does the event log. The run has its own process, whose log
    the test reads.
    """
    words = [sys.executable, "-m", "proctor", "run", "--adapter", "shell", "true"]
    run = subprocess.run(words, capture_output=True, text=True, check=False)

    assert (run.returncode, run.stderr) == (0, "no `--policy`: proctor records every call and denies none\n")
    assert "under no policy" in cli("show", "last").out


@pytest.mark.parametrize(("prompt", "given", "message"), [
    (" \n", b"", "the prompt is empty"),
    ("-", b"", "the prompt is empty"),
    ("-", b"go \xff", "the prompt is not UTF-8 text"),
    ("go \udcff", b"", "the prompt is not UTF-8 text"),
])  # fmt: skip
def test_a_prompt_must_be_text(cli: Any, prompt: str, given: bytes, message: str) -> None:
    """Otherwise the agent is not started: exit code 2."""
    run = cli("run", "--adapter", "shell", "--policy", "org.yaml", prompt, stdin=given)

    assert (run.code, run.out, run.err) == (2, "", f"error: {message}\n")


def test_a_rule_id_of_two_policies_is_shown_with_its_policy_once(cli: Any, place: Path) -> None:
    """Both deny lists are the first of their policies."""
    place.joinpath("more.yaml").write_text("name: more\ntool_rules: [{deny: [bash], action: deny}]\n")
    arguments = (
        *("--adapter", "scripted", "--set", "script=agent.yaml", "--policy", "org.yaml", "--policy", "more.yaml"),
    )
    run = cli("run", *arguments, "x")

    assert "violation more/deny-1: " in run.out
    assert "prevented           more/deny-1, org/deny-1\n" in run.out


def test_an_agent_without_a_login_says_how_to_log_in(cli: Any, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything starts."""
    pytest.importorskip("claude_agent_sdk")
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(place))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(place))
    run = cli("run", "--adapter", "claude", "--policy", "org.yaml", "x")

    assert run.code == 3
    assert "set ANTHROPIC_API_KEY, or run `claude` once and log in" in run.err
