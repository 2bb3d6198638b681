"""The command line as a process: signals, pipes, terminals, and its imports."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import click
import psutil
import pytest

from proctor.supervisor.testing.fakes import PATIENCE_S
from tests.forked_programs import warm_proctor

ESCAPE = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
IMPATIENCE = {signal.SIGINT: 2}
"""How often a signal is sent that has no further effect; the second of any other ends the program at once."""
PROCTOR = (sys.executable, "-m", "proctor")


def call(*arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*PROCTOR, *arguments], capture_output=True, text=True, timeout=PATIENCE_S, **more)


def on_terminal(
    *arguments: str, program: Any = PROCTOR, columns: int = 80, typed: bytes = b"", answer: bytes = b"", **env: str
) -> tuple[int, str]:
    """Run on a terminal of this width; the exit code and the output. `typed` is there before the program starts, the
    `answer` follows its question.
    """
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update({"COLUMNS": str(columns), "LINES": "50", "TERM": "xterm-256color", **env})
        os.execvp(program[0], [*program, *arguments])
    os.write(terminal, typed)
    shown = b""
    while True:
        try:
            chunk = os.read(terminal, 65536)
        except OSError:  # Linux reports it so when the other side is gone
            break
        if not chunk:
            break
        shown += chunk
        if answer and b"[y/n] " in shown:
            os.write(terminal, answer)
            answer = b""
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), shown.decode().replace("\r\n", "\n")


@pytest.fixture(autouse=True)
def _here(place: Path) -> None:
    """In an empty directory, with a store of its own."""


@pytest.mark.parametrize("read", ["click", "yaml", "proctor.supervisor.redaction"])
def test_a_ctrl_c_during_the_imports_is_no_traceback(read: str) -> None:
    """The message is the usual one, also while an error is printed, which is searched for secrets. A library that is
    partly imported may fail in another way.
    """
    raised = "AttributeError" if read == "yaml" else "KeyboardInterrupt"
    code = (
        "import signal, sys\nfrom proctor.adapters.cli import main\n"
        "class Pressed:\n"
        "    def find_spec(self, name, path, target=None):\n"
        f"        if name == {read!r}:\n"
        "            try:\n                signal.raise_signal(signal.SIGINT)\n"
        f"            except KeyboardInterrupt:\n                raise {raised}\n"
        "sys.meta_path.insert(0, Pressed())\nsys.argv = ['proctor', 'show', 'none']\nmain()\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )

    assert (ran.returncode, ran.stdout, ran.stderr.strip()) == (3, "", "interrupted")


def test_help_is_quick_because_little_is_imported() -> None:
    """No monitor, no supervisor, no tables for a page of text."""
    code = (
        "import sys\nfrom proctor.adapters.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "heavy = {'anyio', 'msgspec', 'rich', 'yaml', 'proctor.policies', 'proctor.supervisor.ports.adapter'}\n"
        "heavy &= set(sys.modules)\n"
        "print('heavy:', sorted(heavy))\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S, check=True)

    assert ran.stdout.endswith("heavy: []\n")


def test_sessions_are_shown_without_the_analysis_of_policies() -> None:
    """It would take a tenth of the start of `show`, and of the dashboard's."""
    code = (
        "import sys\nimport proctor.adapters.operations.timeline\n"
        "print('proctor.policies.analysis.all_checks' in sys.modules)\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE_S, check=True)

    assert ran.stdout == "False\n"


def test_every_command_has_help_and_json() -> None:
    """As in the documented table. The help fits a terminal of 80 columns."""
    from proctor.adapters.cli.app import COMMANDS, app

    context: Any = None
    commands: Any = {name: app.get_command(context, name) for name in COMMANDS}
    for group in ("hook", "audit", "fleet"):
        commands |= {f"{group} {name}": command for name, command in commands.pop(group).commands.items()}

    assert [name for name, command in commands.items() if not (command and command.help)] == []
    options = {name: [o for p in command.params for o in p.opts] for name, command in commands.items() if command}
    assert [name for name in options if "--json" not in options[name]] == []
    helps = [click.Context(each, info_name=name, terminal_width=80).get_help() for name, each in commands.items()]
    assert [line for text in helps for line in text.splitlines() if len(line) > 80] == []


def test_the_help_lists_the_commands_in_sections(cli: Any) -> None:
    """Six headings, and every command once."""
    from proctor.adapters.cli.app import SECTIONS

    parts = [part.splitlines() for part in cli("--help").out.split("\n\n")]
    listed = {head.removesuffix(":"): [line.split()[0] for line in lines] for head, *lines in parts[-len(SECTIONS) :]}

    assert listed == {heading: list(commands) for heading, commands in SECTIONS.items()}
    assert [heading.split()[-1].lower() for heading in listed] == [
        *("start", "policies", "sessions", "runs", "people", "operate")
    ]


@pytest.mark.parametrize("words", ["schema", "show last", "show last --json", "tail", "tail --json", "export"])
def test_a_full_disk_is_one_message(words: str, ran: Any) -> None:
    """The machine failed: exit code 3, so that nobody takes half an event for a whole one."""
    with open("/dev/full", "wb") as full:
        ended = subprocess.run(
            [*PROCTOR, *words.split()], stdout=full, stderr=subprocess.PIPE, text=True, timeout=PATIENCE_S
        )

    assert (ended.returncode, ended.stderr) == (3, "error: the output cannot be written: no space left on device\n")


UNPRIVILEGED = "setpriv --bounding-set=-all --inh-caps=-all"


def can_be_confined() -> bool:
    """Whether a program can be run without privileges in a mount namespace of its own."""
    try:
        return subprocess.run(["unshare", "-rm", *UNPRIVILEGED.split(), "true"], check=False).returncode == 0
    except FileNotFoundError:
        return False


needs_confinement = pytest.mark.skipif(not can_be_confined(), reason="needs `unshare` and `setpriv`")


def confined(words: str, how: str, place: Path) -> subprocess.CompletedProcess[str]:
    """A command without privileges in a mount namespace of its own, once a line of shell has prepared it."""
    shell = f"{how} && exec {UNPRIVILEGED} {' '.join(PROCTOR)} {words}"
    store = {"PROCTOR_STORE": str(place / "new.db")}
    return subprocess.run(
        ["unshare", "-rm", "sh", "-c", shell],
        cwd=place, capture_output=True, text=True, timeout=PATIENCE_S, env={**os.environ, **store},
    )  # fmt: skip


@needs_confinement
@pytest.mark.parametrize(
    "words", ["schema -o out", "init --yes --agent claude", "hook install --agent claude --policy org.yaml", "demo"]
)
@pytest.mark.parametrize(("how", "why"), [
    ("mount --bind . . && mount -o remount,bind,ro . && cd $PWD", "read-only file system"),
    ("chmod a-w .", "permission denied"),
])  # fmt: skip
def test_a_folder_that_cannot_be_written_is_a_failure_of_the_machine(
    words: str, how: str, why: str, place: Path
) -> None:
    """Exit code 3, as on a full disk, whatever a command writes."""
    ended = confined(words, how, place)
    place.chmod(0o755)

    assert (ended.returncode, why in ended.stderr) == (3, True), ended


@needs_confinement
@pytest.mark.parametrize(("words", "file"), [
    ("check org.yaml", "org.yaml"),
    ("hook install --agent claude --policy org.yaml", ".claude/settings.local.json"),
])  # fmt: skip
def test_a_file_that_may_not_be_read_is_bad_input(words: str, file: str, place: Path) -> None:
    """Exit code 2, as for one that is not there."""
    (place / ".claude").mkdir()
    (place / file).touch()
    ended = confined(words, f"chmod a-r {file}", place)

    assert (ended.returncode, "permission denied" in ended.stderr) == (2, True), ended


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        ("check - 0>/dev/null", 2, "error: standard input cannot be read: bad file descriptor\n"),
        ("eval --policy org.yaml - 0>/dev/null", 2, "error: <stdin>: bad file descriptor\n"),
        ("import missing.jsonl", 2, "error: `FILE`: file `missing.jsonl` does not exist\n"),
        ("import - 0>/dev/null", 2, "error: <stdin>: cannot be read: bad file descriptor\n"),
        ("schema 1</dev/null", 3, "error: the output cannot be written: bad file descriptor\n"),
    ],
)
def test_a_stream_opened_in_the_wrong_direction_is_one_message(words: str, code: int, why: str) -> None:
    """As by a mistake in the shell."""
    ended = subprocess.run(
        f"{' '.join(PROCTOR)} {words}", shell=True, capture_output=True, text=True, timeout=PATIENCE_S
    )

    assert (ended.returncode, ended.stderr) == (code, why)


@pytest.mark.parametrize(
    "words", ["hook status", "hook uninstall", "adapters", "mcp --policy $OLDPWD/org.yaml -- cat"]
)
def test_a_removed_working_directory_is_one_message(words: str, tmp_path: Path) -> None:
    """Of the commands that need it."""
    shell = f"mkdir gone && cd gone && rmdir ../gone && exec {' '.join(PROCTOR)} {words}"
    ended = subprocess.run(shell, shell=True, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S)

    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == "error: the current folder has been removed; change to another\n"


@pytest.mark.parametrize("words", [
    *("run --adapter shell pwd", "run --adapter shell --store ../runs.db pwd"),
    *("run --adapter shell --store ../runs.db --session \udcff pwd", "init --agent claude --hook --yes"),
])  # fmt: skip
def test_a_name_that_is_not_utf_8_is_one_message(words: str, place: Path) -> None:
    """The folder of the store, of the run, or of a hook's policy; a session's name."""
    folder = place / "\udcff"
    folder.mkdir()
    ended = call(*words.split(), cwd=folder, env={**os.environ, "PROCTOR_STORE": "runs.db"})

    assert ended.returncode == 2
    assert re.fullmatch(r"error: `.*` is not UTF-8 text", ended.stderr.splitlines()[-1])


@pytest.mark.parametrize("streams", [">&- 2>&- <&-", "2>/dev/full >/dev/null"])
def test_closed_streams_are_no_error(place: Path, streams: str) -> None:
    """Nor is a standard error that accepts nothing. The exit code is right: fine, violated, bad input."""
    place.joinpath("zero.yaml").write_text("name: zero\nlimits: {max_turns: 0}\n")
    for name, code in (("org.yaml", 0), ("zero.yaml", 1), ("none.yaml", 2)):
        shell = f"{' '.join(PROCTOR)} check {name} {streams}"
        ran = subprocess.run(shell, shell=True, capture_output=True, text=True, timeout=PATIENCE_S)

        assert (ran.returncode, ran.stdout, ran.stderr) == (code, "", "")


def test_output_is_utf_8_in_any_locale(place: Path) -> None:
    """Programs read it. Bytes that are no text are escaped."""
    item = {"type": "tool_call", "id": "c", "name": "delete", "input": {"a": "\u6f22\U0001f600"}}
    place.joinpath("t.jsonl").write_text(json.dumps({"id": "s\u00e9", "events": [item]}) + "\n")
    plain = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    shown, block_data = (
        call("eval", "--policy", "org.yaml", *more, "t.jsonl", env=plain, encoding="utf-8")
        for more in ((), ("--json",))
    )

    assert 'delete(a="\u6f22\U0001f600")' in shown.stdout
    assert json.loads(block_data.stdout)["session"] == "s\u00e9"
    assert call("show", "\udcff", env=plain).stderr.startswith("error: ")


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_run_in_order(place: Path, cli: Any, sent: signal.Signals) -> None:
    """One cancel, one terminal event, exit code 3."""
    place.joinpath("agent.yaml").write_text("steps:\n  - silence: forever\n")
    arguments = ("run", "--json", "--adapter", "scripted", "--set", "script=agent.yaml", "--policy", "org.yaml", "x")
    process = subprocess.Popen([*PROCTOR, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if json.loads(line)["type"] == "message_sent":
            break
    for _ in range(IMPATIENCE.get(sent, 1)):
        process.send_signal(sent)
    out, err = process.communicate(timeout=120)

    assert process.returncode == 3
    assert err == "cancelling the run ...\n"
    assert json.loads(out.splitlines()[-1])["reason"] == "interrupted by the user"
    ends = [line for line in cli("show", "--json", "last").lines if line["type"] in ("run_cancelled", "run_failed")]
    assert len(ends) == 1


def test_the_loss_of_a_terminal_ends_the_run_in_order(place: Path, cli: Any) -> None:
    """The run's processes are ended, and its end is stored."""
    arguments = ("run", "--adapter", "shell", "--policy", "org.yaml", "sleep 600")
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [*PROCTOR, *arguments])
    while b"allowed" not in os.read(terminal, 65536):
        pass
    os.close(terminal)
    os.waitpid(pid, 0)

    assert cli("show", "--json", "last").lines[-1]["type"] == "run_cancelled"


def test_an_unexpected_error_is_one_message(monkeypatch: pytest.MonkeyPatch, cli: Any) -> None:
    """With the way to its details, `--debug`; exit code 3."""

    def broken() -> None:
        raise RuntimeError("a fault")

    monkeypatch.setattr("proctor.adapters.cli.commands.policies.json_schema", broken)
    plain, debugged = cli("schema"), cli("--debug", "schema")

    assert plain.code == 3
    assert plain.err == (
        "error: this should not have happened: RuntimeError: a fault\nrun `proctor --debug ...` for details\n"
    )
    assert "Traceback" in debugged.err


def test_an_installation_older_than_its_files_is_reported(monkeypatch: pytest.MonkeyPatch, cli: Any) -> None:
    """As an editable one after a `git pull` with a new file."""
    monkeypatch.setitem(sys.modules, "proctor.adapters.cli.commands.policies", None)
    answer = cli("schema")

    assert (answer.code, "`pip install -e .` again" in answer.err) == (3, True), answer
    assert "proctor.adapters.cli.commands.policies" in answer.err


def test_colour_is_used_only_on_terminals_that_allow_it() -> None:
    """With NO_COLOR there is no escape sequence, and the text has all information. An empty NO_COLOR does
    not count.
    """
    run = ("run", "--adapter", "shell", "--policy", "org.yaml", "echo 1")
    for command in (("check", "org.yaml"), run, ("runs",), ("explain", "last")):
        code, shown = on_terminal(*command, program=[warm_proctor()], NO_COLOR="1")

        assert code == 0, shown
        assert "\033" not in shown
    assert "\033[1" in on_terminal("check", "org.yaml", program=[warm_proctor()], NO_COLOR="")[1]


ASKED = ("run", "--adapter", "scripted", "--set", "script=agent.yaml", "--policy", "team.yaml", "x")


@pytest.mark.parametrize(
    ("typed", "answer", "kind"),
    [(b"n\n", b"y\n", "tool_approval_granted"), (b"y\n", b"maybe\nn\n", "tool_approval_denied")],
)
def test_an_approval_is_asked_for_at_the_terminal(
    place: Path, cli: Any, typed: bytes, answer: bytes, kind: str
) -> None:
    """With the whole input. Anything but yes or no is asked again. Earlier typing does not count."""
    place.joinpath("agent.yaml").write_text("tools: [deploy]\nsteps:\n  - call: deploy\n    input: {to: prod}\n")
    code, shown = on_terminal(*ASKED, typed=typed, answer=answer)

    assert code == 0
    assert 'to: "prod"' in shown
    assert kind in [line["type"] for line in cli("show", "--json", "last").lines]


def test_a_run_in_the_background_leaves_the_input_to_the_shell(place: Path, cli: Any) -> None:
    """Reading it would suspend the run and its clocks. Others answer, or the request expires."""
    place.joinpath("agent.yaml").write_text("tools: [deploy]\nsteps:\n  - call: deploy\n")
    policy = place / "team.yaml"
    policy.write_text(policy.read_text().replace("timeout_s: 30", "timeout_s: 1"))
    script = f"set -m; {' '.join((*PROCTOR, *ASKED))} & wait $!; echo ended with $?; read line; echo $line"
    _, shown = on_terminal("-c", script, program=("bash",), typed=b"y\n")

    assert shown.endswith("ended with 0\ny\n"), shown
    assert "tool_approval_expired" in [line["type"] for line in cli("show", "--json", "last").lines]


@pytest.mark.parametrize(("typed", "following", "hooked"), [
    (b"shell\n", "next: proctor run --policy proctor.yaml --adapter shell", False),
    (b"claude\nn\n", "next: proctor run --policy proctor.yaml --adapter claude", False),
    (b"nobody\nclaude\ny\n", "next: claude", True),
])  # fmt: skip
def test_init_asks_on_a_terminal(place: Path, typed: bytes, following: str, hooked: bool) -> None:
    """For the agent, and for Claude Code whether to install the hooks."""
    code, shown = on_terminal("init", typed=typed)

    assert code == 0
    assert following in ESCAPE.sub("", shown)
    assert (place / ".claude").exists() is hooked


def test_a_terminal_whose_width_nobody_knows_is_written_to(cli: Any) -> None:
    """`COLUMNS=0` says so in some editors and containers."""
    cli("run", "--adapter", "shell", "--policy", "org.yaml", "true")
    code, shown = on_terminal("show", "last", program=[warm_proctor()], columns=0, NO_COLOR="1")

    assert code == 0
    assert 'allowed   bash(command="true"' in shown


def test_a_terminal_of_80_columns_is_enough(cli: Any, place: Path) -> None:
    """No line is longer. Words, ids and times stay whole, and long text is wrapped; only a prompt is cut. A command
    to copy is one line.
    """
    cli("run", "--adapter", "shell", "--policy", "org.yaml", f"true {'and so on ' * 20}")
    warm: dict[str, Any] = {"program": [warm_proctor()], "NO_COLOR": "1"}
    (_, runs), (code, demo), (_, adapters) = (
        on_terminal(command, **warm) for command in ("runs", "demo", "adapters")
    )
    cli("run", "--adapter", "shell", "--policy", "org.yaml", f"echo {'word ' * 30}")
    shown, plain = ESCAPE.sub("", on_terminal("explain", "last", **warm)[1]), cli("explain", "last").out

    assert code == 0
    wide = [line for line in f"{demo}{runs}{adapters}".splitlines() if len(ESCAPE.sub("", line)) > 80]
    assert [line for line in wide if not re.match(r"  \S*proctor \w+ .*--store \S+$", line)] == []
    assert "model is told: Files are not deleted here. Move them to attic/ instead." in " ".join(demo.split())
    assert re.search(r"^run_\w{32} +completed +shell +\d{4}-\d\d-\d\d \d\d:\d\d +\S+\s+true and so", runs, re.M)
    assert "claude-agent-acp" in adapters
    assert ESCAPE.sub("", adapters).split("\n")[0].split()[-2:] == ["resume", "narrow"]
    assert {line[:4] for line in shown.splitlines() if "word" in line} >= {"  in", "  wo"}
    assert {line[:4] for line in plain.splitlines() if "word" in line} == {"  in", "even"}


@pytest.mark.parametrize("columns", [30, 60])
def test_a_narrow_terminal_shows_every_capability_of_an_adapter(columns: int) -> None:
    """Below the table's least width, each adapter has lines of its own."""
    _, shown = on_terminal("adapters", program=[warm_proctor()], columns=columns, NO_COLOR="1")
    lines = ESCAPE.sub("", shown).split("\n")
    words = " ".join(" ".join(lines).split())

    assert [line for line in lines[: lines.index("")] if len(line) > columns] == []
    assert "codex: gate all, rewrite no, denial continues, usage per turn, cost no, children yes, resume yes" in words
    assert "…" not in shown


def test_a_long_line_of_a_failure_is_wrapped_and_indented(place: Path) -> None:
    """On a terminal, for each field and each call; elsewhere a line stays a line."""
    words = "word " * 40
    call_item = {"type": "tool_call", "id": "c", "name": "delete", "input": {"a": words, "b": words, "c": words}}
    place.joinpath("t.jsonl").write_text(json.dumps({"id": f"session {words}", "events": [call_item]}) + "\n")
    code, shown = on_terminal("eval", "--policy", "org.yaml", "t.jsonl", NO_COLOR="1")
    lines = ESCAPE.sub("", shown).partition("rules, in")[0].splitlines()

    assert code == 1
    assert [line for line in lines if len(line) > 80] == []
    assert {len(line) - len(line.lstrip()) for line in lines if "word" in line} == {2, 10, 14}
    assert len(call("eval", "--policy", "org.yaml", "t.jsonl").stdout.partition("rules, in")[0].splitlines()) == 12


BIG = {"name": "big", "nets": [f"require a{n} before b{n}" for n in range(1_000)]}


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_during_preflight_of_a_large_policy_ends_the_program_in_order(
    place: Path, cli: Any, sent: signal.Signals
) -> None:
    """The store is open, so preflight runs in a thread: exit code 3, one line, no run, and no thread left."""
    place.joinpath("big.json").write_text(json.dumps(BIG))
    line = [*PROCTOR, "run", "--store", "s.db", "--adapter", "shell", "--policy", "big.json", "sleep 71007"]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not place.joinpath("s.db").exists():
        assert process.poll() is None
        time.sleep(0.002)
    process.send_signal(sent)
    out, err = process.communicate(timeout=PATIENCE_S)

    assert (process.returncode, out, err) == (3, "", "interrupted\n")
    assert cli("runs", "--store", "s.db", "--json").out == ""
    assert cli("run", "--store", "s.db", "--adapter", "shell", "--policy", "org.yaml", "echo 1").code == 0
    assert not any("71007" in " ".join(each.info["cmdline"] or ()) for each in psutil.process_iter(["cmdline"]))
