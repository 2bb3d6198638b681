"""Without an extra: one error that names it, whatever needed it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

Cli = Any
RUN = ("run", "--policy", "org.yaml", "--store", "runs.db", "--adapter")


@pytest.mark.parametrize(
    ("extra", "library", "arguments"),
    [
        ("claude", "claude_agent_sdk", (*RUN, "claude", "x")),
        ("codex", "codex_cli_bin", (*RUN, "codex", "x")),
        ("otel", "opentelemetry", (*RUN, "scripted", "--set", "script=script.json", "--otel", "x")),
        ("mcp", "mcp", ("mcp", "--policy", "org.yaml", "--", "true")),
        ("web", "starlette", ("serve",)),
        ("postgres", "psycopg", ("runs", "--store", "postgresql://h/x")),
        ("ray", "ray", ("fleet", "status")),
        ("audit", "cryptography", ("audit", "head", "--store", "runs.db", "--sign", "key.pem")),
        (
            "audit",
            "cryptography",
            ("audit", "verify", "--store", "runs.db", "--anchor", "heads.json", "--key", "key.pem"),
        ),
    ],
)
def test_a_missing_extra_is_named(
    extra: str, library: str, arguments: tuple[str, ...], cli: Cli, place: Path
) -> None:
    """In one line, and never as an error of ours."""
    (place / "script.json").write_text('{"steps": [{"output": "done"}]}')
    (place / "key.pem").write_text("")
    if extra == "audit":
        assert cli("store", "--make", "--store", "runs.db").code == 0
        (place / "heads.json").write_text(cli("audit", "head", "--store", "runs.db").out)
    without = f"import sys; sys.modules[{library!r}] = None; from proctor.adapters.cli import main; main()"
    command = [sys.executable, "-c", without, *arguments]
    run = subprocess.run(command, env={**os.environ, "PATH": str(place)}, capture_output=True, text=True)

    assert run.returncode in (2, 3), run.stderr
    assert f"pip install '.[{extra}]'" in run.stderr
    assert len(run.stderr.splitlines()) == 1
