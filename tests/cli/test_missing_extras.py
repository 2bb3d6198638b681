"""Without an extra: one error that names it, whatever needed it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

RUN = ("run", "--policy", "org.yaml", "--store", "runs.db", "--adapter")


NEEDING = [
    ("claude", "claude_agent_sdk", (*RUN, "claude", "x")),
    ("codex", "codex_cli_bin", (*RUN, "codex", "x")),
    ("otel", "opentelemetry", (*RUN, "scripted", "--set", "script=script.json", "--otel", "x")),
    ("mcp", "mcp", ("mcp", "--policy", "org.yaml", "--", "true")),
    ("web", "starlette", ("serve",)),
    ("postgres", "psycopg", ("runs", "--store", "postgresql://h/x")),
    ("postgres", "psycopg", ("audit", "verify", "--store", "postgresql://h/x")),
    ("ray", "ray", ("fleet", "status")),
    ("audit", "cryptography", ("audit", "head", "--store", "runs.db", "--sign", "key.pem")),
    ("audit", "cryptography", ("audit", "verify", "--store", "runs.db", "--anchor", "heads.json", "--key",
        "key.pem")),
]  # fmt: skip
PROGRAM = """
import contextlib, io, json, sys
libraries, commands = map(json.loads, sys.argv[1:])
sys.modules.update(dict.fromkeys(libraries))
from proctor.adapters.cli import main
for words in commands:
    with contextlib.redirect_stderr(io.StringIO()) as errors:
        try:
            main(words)
        except SystemExit as ended:
            print(json.dumps([ended.code, errors.getvalue()]))
"""
"""Commands where none of some libraries is installed: what each exits with, and what it says."""


def test_a_missing_extra_is_named(cli: Any, place: Path) -> None:
    """In one line, and never as an error of ours; as where an agent's client is not there."""
    (place / "script.json").write_text('{"steps": [{"output": "done"}]}')
    (place / "key.pem").write_text("")
    assert cli("store", "--make", "--store", "runs.db").code == 0
    (place / "heads.json").write_text(cli("audit", "head", "--store", "runs.db").out)
    given = [[library for _, library, _ in NEEDING], [words for _, _, words in NEEDING]]
    command = [sys.executable, "-c", PROGRAM, *map(json.dumps, given)]
    ran = subprocess.run(command, env={**os.environ, "PATH": str(place)}, capture_output=True, text=True)
    answers = [json.loads(line) for line in ran.stdout.splitlines()]

    assert len(answers) == len(NEEDING), ran.stderr
    for (extra, _, words), (code, errors) in zip(NEEDING, answers, strict=True):
        assert code == 3, (words, errors)
        assert f"pip install '.[{extra}]'" in errors, (words, errors)
        assert len(errors.splitlines()) == 1, (words, errors)
