"""`-o FILE`: the file gets what would have been printed, whole or not at all."""

import os
import re
import stat
from itertools import product
from pathlib import Path
from typing import Any

import pytest

WORDS = [
    *("check org.yaml", "check org.yaml --json", "test org.test.yaml", "explain last", "graph team.yaml", "runs"),
    *("eval --policy strict.yaml session.jsonl", "eval --policy strict.yaml session.jsonl --json"),
    *("diff org.yaml strict.yaml session.jsonl", "diff org.yaml strict.yaml --prove", "runs --json"),
    *("narrow --policy org.yaml session.jsonl", "show last", "show last --json", "export", "audit verify"),
    *("hook settings --policy org.yaml", "adapters", "adapters --json", "adapters --markdown", "approvals"),
    *("approvals --json", "budgets", "budgets --json", "store", "store --json", "audit head", "migrate org.yaml"),
    *("schema", "prove org.yaml", "prove org.yaml --json", "suggest session.jsonl"),
]

WITHOUT = {
    *("demo", "run", "tail", "watch"),  # their output is live
    *("serve", "mcp"),  # they serve
    # they act, and report what they did
    *("fleet up", "fleet drain", "import", "approve", "deny", "kill", "reap", "prune"),
    *("init", "hook install", "hook uninstall"),  # they write files, and name them
    "hook status",  # it reports the current state
    "hook status-line",  # a line for an agent
}
"""Commands without `-o`, with the reason."""


@pytest.fixture
def kept(cli: Any, place: Path, ran: Any) -> Path:
    """A stored run, the same in a file, a stricter policy and its tests."""
    place.joinpath("session.jsonl").write_text(cli("show", "last", "--json").out)
    place.joinpath("strict.yaml").write_text("{name: org, tool_rules: [{deny: [bash], action: deny}]}")
    tests = "policies: [org.yaml]\ntests: [{name: one, calls: [{tool: delete, expect: deny}]}]\n"
    place.joinpath("org.test.yaml").write_text(tests)
    return place


def test_a_command_writes_its_output_to_the_file(cli: Any, kept: Path) -> None:
    """With the same exit code, also for a violation. Nothing else is left behind, and `-` is standard output."""
    for words in WORDS:
        printed = cli(*words.split())
        before = set(kept.iterdir())
        written = cli(*words.split(), "-o", "kept.txt")

        assert (written.code, written.out) == (printed.code, ""), words
        texts = (kept.joinpath("kept.txt").read_text(), printed.out)
        assert len({re.sub(r"\d\d:\d\d:\d\d", "", text) for text in texts}) == 1, words  # a second may have passed
        assert set(kept.iterdir()) - before == {kept / "kept.txt"}, words
        kept.joinpath("kept.txt").unlink()
    assert cli("runs", "-o", "-").out == cli("runs").out
    assert cli("export", "-o", "-").out == cli("export").out


def test_every_command_with_output_to_keep_has_the_option_and_is_tested() -> None:
    """A new command is added to a list above."""
    from proctor.adapters.cli.app import COMMANDS, app

    context: Any = None
    commands: dict[str, Any] = {}
    for name in COMMANDS:
        command: Any = app.get_command(context, name)
        below = getattr(command, "commands", {})
        commands |= {f"{name} {one}": command.commands[one] for one in below}
        commands |= {} if below and not command.invoke_without_command else {name: command}
    having = {name for name, command in commands.items() if any("--output" in p.opts for p in command.params)}

    assert having & WITHOUT == set()
    assert commands.keys() - having - WITHOUT == set()
    assert {name for name in having if not any(f"{words} ".startswith(f"{name} ") for words in WORDS)} == {
        "adapters probe",  # needs an agent
        "fleet status",  # needs a cluster
    }


def test_the_existing_file_is_kept_if_the_command_fails(cli: Any, kept: Path) -> None:
    """A replaced file keeps its permissions, and a link stays a link."""
    file, link = kept / "kept.txt", kept / "link.txt"
    file.write_text("what I had")
    file.chmod(0o640)
    link.symlink_to("kept.txt")

    assert cli("eval", "--policy", "org.yaml", "session.jsonl", "missing.jsonl", "-o", file).code == 2
    assert cli("export", "--session", "nobody", "-o", link).code == 2
    assert file.read_text() == "what I had"
    for words, each in product(("runs", "export"), (file, link)):
        assert cli(words, "-o", each).code == 0
        assert file.read_text() == cli(words).out
    assert link.is_symlink()
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


@pytest.mark.parametrize("words", ["eval --policy org.yaml missing.jsonl", "export", "schema"])
def test_an_impossible_file_is_rejected_before_anything_is_done(cli: Any, kept: Path, words: str) -> None:
    """Exit code 2, and one line."""
    for file, why in (
        ("nowhere/kept.txt", "`nowhere/kept.txt` cannot be written: there is no folder `nowhere`"),
        (".", "directory"),
        ("state/proctor/runs.db", "`state/proctor/runs.db` is a database"),
    ):
        answer = cli(*words.split(), "-o", file)

        assert (answer.code, why in answer.err, len(answer.err.splitlines())) == (2, True, 1), answer


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full, which Linux has")
def test_a_full_disk_is_an_error(cli: Any, kept: Path) -> None:
    """With exit code 3, so that nobody takes half a file for a whole one. A device is written directly."""
    for words in ("show last", "export", "schema"):
        answer = cli(*words.split(), "-o", "/dev/full")

        assert answer.code == 3, words
        assert "the output cannot be written: no space left on device" in answer.err
