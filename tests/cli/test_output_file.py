"""`-o FILE`: the file has what would have been printed, as a whole or not at all."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest

Cli = Any

WORDS = {
    "check": ("check", "org.yaml"),
    "check json": ("check", "org.yaml", "--json"),
    "test": ("test", "org.test.yaml"),
    "eval": ("eval", "--policy", "strict.yaml", "session.jsonl"),
    "eval json": ("eval", "--policy", "strict.yaml", "session.jsonl", "--json"),
    "diff": ("diff", "org.yaml", "strict.yaml", "session.jsonl"),
    "diff prove": ("diff", "org.yaml", "strict.yaml", "--prove"),
    "explain": ("explain", "last"),
    "narrow": ("narrow", "--policy", "org.yaml", "session.jsonl"),
    "graph": ("graph", "team.yaml"),
    "runs": ("runs",),
    "runs json": ("runs", "--json"),
    "show": ("show", "last"),
    "show json": ("show", "last", "--json"),
    "export": ("export",),
    "audit verify": ("audit", "verify"),
    "hook settings": ("hook", "settings", "--policy", "org.yaml"),
    "adapters": ("adapters",),
    "adapters json": ("adapters", "--json"),
    "adapters markdown": ("adapters", "--markdown"),
    "approvals": ("approvals",),
    "approvals json": ("approvals", "--json"),
    "budgets": ("budgets",),
    "budgets json": ("budgets", "--json"),
    "store": ("store",),
    "store json": ("store", "--json"),
    "audit head": ("audit", "head"),
    "migrate": ("migrate", "org.yaml"),
    "schema": ("schema",),
    "prove": ("prove", "org.yaml"),
    "prove json": ("prove", "org.yaml", "--json"),
    "suggest": ("suggest", "session.jsonl"),
}

WITHOUT = {
    "demo": "what it shows is shown as it happens",
    "run": "the same",
    "tail": "the same",
    "watch": "the same",
    "serve": "it serves",
    "mcp": "the same",
    "fleet up": "it acts, and says what it did",
    "fleet drain": "the same",
    "init": "it writes files, and says which",
    "import": "it acts, and says what it did",
    "approve": "the same",
    "deny": "the same",
    "kill": "the same",
    "reap": "the same",
    "prune": "the same",
    "hook install": "the same",
    "hook uninstall": "the same",
    "hook status": "it says what is so now",
    "hook status-line": "a line that an agent reads",
}
"""Commands that have no `-o`, and why."""


@pytest.fixture
def kept(cli: Cli, place: Path, ran: Any) -> Path:
    """A stored run, the same in a file, a stricter policy and tests of one."""
    place.joinpath("session.jsonl").write_text(cli("show", "last", "--json").out)
    place.joinpath("strict.yaml").write_text("{name: org, tool_rules: [{deny: [bash], action: deny}]}")
    tests = "policies: [org.yaml]\ntests: [{name: one, calls: [{tool: delete, expect: deny}]}]\n"
    place.joinpath("org.test.yaml").write_text(tests)
    return place


@pytest.mark.parametrize("words", WORDS.values(), ids=WORDS)
def test_a_command_writes_to_the_file_what_it_would_have_printed(
    cli: Cli, kept: Path, words: tuple[str, ...]
) -> None:
    """With the same exit code, also where that says that something was broken; nothing is left beside the file."""
    printed = cli(*words)
    before = set(kept.iterdir())
    written = cli(*words, "-o", "kept.txt")

    assert (written.code, written.out) == (printed.code, "")
    assert kept.joinpath("kept.txt").read_text() == printed.out
    assert set(kept.iterdir()) - before == {kept / "kept.txt"}


def test_every_command_with_something_to_keep_has_the_option_and_is_tried() -> None:
    """One that is new says why not, or is added above."""
    from proctor.adapters.cli.app import COMMANDS, app

    context: Any = None
    commands: dict[str, Any] = {}
    for name in COMMANDS:
        command: Any = app.get_command(context, name)
        below = getattr(command, "commands", {})
        commands |= {f"{name} {one}": command.commands[one] for one in below}
        commands |= {} if below and not command.invoke_without_command else {name: command}
    having = {name for name, command in commands.items() if any("--output" in p.opts for p in command.params)}

    assert having & WITHOUT.keys() == set()
    assert commands.keys() - having - WITHOUT.keys() == set()
    assert having - {" ".join(words[:2]) for words in WORDS.values()} - {words[0] for words in WORDS.values()} == {
        "adapters probe",  # needs an agent
        "fleet status",  # needs a cluster
    }


def test_a_list_that_is_followed_is_no_file(cli: Cli, kept: Path) -> None:
    """It has no end; nor is a file of a group one of the command below it."""
    followed = cli("approvals", "--watch", "-o", "kept.txt")
    group = cli("adapters", "-o", "kept.txt", "probe", "claude")

    assert (followed.code, group.code) == (2, 2)
    assert "`--watch` has no end" in followed.err
    assert "`-o` goes after `probe`" in group.err
    assert not kept.joinpath("kept.txt").exists()


def test_a_dash_is_standard_output(cli: Cli, kept: Path) -> None:
    """As `-` is standard input where a file is read."""
    assert cli("runs", "-o", "-").out == cli("runs").out
    assert cli("export", "-o", "-").out == cli("export").out


def test_what_was_there_stays_where_the_command_fails(cli: Cli, kept: Path) -> None:
    """And it keeps its rights where it is replaced."""
    file = kept / "kept.txt"
    file.write_text("what I had")
    file.chmod(0o640)

    assert cli("eval", "--policy", "org.yaml", "session.jsonl", "missing.jsonl", "-o", file).code == 2
    assert file.read_text() == "what I had"
    assert cli("runs", "-o", file).code == 0
    assert file.read_text() == cli("runs").out
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


def test_a_link_is_followed_and_stays_one(cli: Cli, kept: Path) -> None:
    """What it leads to is replaced."""
    kept.joinpath("link.txt").symlink_to("real.txt")
    cli("runs", "-o", "link.txt")

    assert kept.joinpath("link.txt").is_symlink()
    assert kept.joinpath("real.txt").read_text() == cli("runs").out


@pytest.mark.parametrize(
    ("file", "why"),
    [("nowhere/kept.txt", "`nowhere/kept.txt` cannot be written: there is no folder `nowhere`"), (".", "directory")],
)
@pytest.mark.parametrize("words", [("eval", "--policy", "org.yaml", "missing.jsonl"), ("export",), ("schema",)])
def test_a_file_that_cannot_be_is_refused_before_anything_is_done(
    cli: Cli, kept: Path, words: tuple[str, ...], file: str, why: str
) -> None:
    """Exit code 2, and one line."""
    answer = cli(*words, "-o", file)

    assert answer.code == 2
    assert why in answer.err
    assert len(answer.err.splitlines()) == 1


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full, which Linux has")
@pytest.mark.parametrize("words", [("show", "last"), ("export",), ("schema",)])
def test_a_full_disk_is_an_error(cli: Cli, kept: Path, words: tuple[str, ...]) -> None:
    """Exit code 3: nobody takes half a file for a whole one. A device is written to directly."""
    answer = cli(*words, "-o", "/dev/full")

    assert answer.code == 3
    assert "the output cannot be written: no space left on device" in answer.err
