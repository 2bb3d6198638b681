"""The fenced blocks of a documentation page, and what a reader would do with each.

yaml, json, ... title="NAME"   written to a file in the reader's folder
console                     commands that run there, with their output; `...` stands for anything
python                      a program that runs there, with the names of the programs before it
yaml                        a policy, or a part of one
json                        text that a JSON parser accepts
sh                          commands that are not run here; their words are checked
sql, text                   shown and not executed here
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil
from answering import token_for

from proctor.supervisor.testing.fakes import PATIENCE_S
from tests.forked_programs import warm_proctor

ROOT = Path(__file__).parents[1]
PAGES = [
    *(ROOT / name for name in ("README.md", "AGENTS.md", "CONTRIBUTING.md", "SECURITY.md", "examples/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
KINDS = frozenset(
    {"console", "html", "ini", "javascript", "json", "jsonl", "python", "sh", "sql", "text", "toml", "yaml"}
)

_FENCE = re.compile(r"^```([^\n`]*)\n(.*?)^```$", re.M | re.S)
_INFO = re.compile(r'(\w*)(?: title="([^"]+)")?')


class Block(NamedTuple):
    """One fenced block: its kind, the file it is written to, its text, and its line on the page."""

    kind: str
    file: str | None
    text: str
    line: int


def name_of(page: Path) -> str:
    """The page's name in test ids."""
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    found = []
    for fence in _FENCE.finditer(text):
        info = _INFO.fullmatch(fence[1].strip())
        kind, file = (info[1], info[2]) if info else ("", None)
        found.append(Block(kind, file, fence[2], text.count("\n", 0, fence.start()) + 1))
    return found


def commands(block: str) -> Iterator[tuple[str, list[str]]]:
    """Each command of a console block with its output lines."""
    for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
        command, _, output = part.partition("\n")
        while command.endswith("\\"):
            more, _, output = output.partition("\n")
            command += f"\n{more}"
        yield command, output.rstrip("\n").splitlines()


def words(block: str) -> Iterator[list[str]]:
    """The words of each command of a `sh` block, without comments and line continuations."""
    for line in block.replace("\\\n", " ").splitlines():
        for part in re.split(r"\s&&\s", line):
            if found := shlex.split(part, comments=True):
                yield found


def matches(shown: list[str], output: str) -> bool:
    """Whether the output is the shown one; `...` stands for anything in a line, and alone for any lines."""
    lines = (r"(?:.*\n)*?" if line.strip() == "..." else _pattern(line) + r"\n" for line in shown)
    return re.fullmatch("".join(lines) + r"\s*", output.rstrip("\n") + "\n") is not None


def _pattern(line: str) -> str:
    """A shown line as a regular expression; blanks before `...` and at the end are ignored."""
    line = re.sub(r"^ +(?=\.\.\.)", "", line.rstrip())
    return r".*?".join(re.escape(part) for part in line.split("...")) + " *"


def environment(place: Path) -> dict[str, str]:
    """Variables under which `proctor` and `python` are the tests' own, with the store beside the reader's folder.

    A reader has a terminal. Here, commands that need one have a token for that store and for `runs.db`.
    """
    folder = place.parent
    shims = folder / "bin"
    shims.mkdir(exist_ok=True)
    for name, program in (("proctor", warm_proctor()), ("python", sys.executable)):
        shim = shims / name
        if not shim.exists():
            shim.symlink_to(program) if name == "proctor" else shim.write_text(f'#!/bin/sh\nexec "{program}" "$@"\n')
            shim.chmod(0o755)
    path = f"{shims}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "XDG_STATE_HOME": str(folder), "NO_COLOR": "1"}
    env.pop("PROCTOR_STORE", None)
    (folder / "proctor").mkdir(exist_ok=True)
    env |= token_for(folder / "proctor" / "runs.db")
    return env


def run(command: str, place: Path, env: dict[str, str]) -> str:
    """The output of a page's command, including errors."""
    token_for(place / "runs.db")
    ran = subprocess.run(command, shell=True, cwd=place, env=env, capture_output=True, text=True, timeout=PATIENCE_S)
    return ran.stdout + ran.stderr


def end_what_was_left(folder: Path) -> None:
    """End background processes of a page's commands: every process that works below its folder."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if Path(process.cwd()).is_relative_to(folder) and process.pid != os.getpid():
                process.kill()
