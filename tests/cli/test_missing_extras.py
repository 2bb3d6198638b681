"""Without an extra: one error that names it, whatever needed it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

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
def test_a_missing_extra_is_named(extra: str, library: str, arguments: tuple[str, ...], tmp_path: Path) -> None:
    """In one line, and never as an error of ours."""
    (tmp_path / "org.yaml").write_text("name: org\n")
    (tmp_path / "script.json").write_text('{"steps": [{"output": "done"}]}')
    (tmp_path / "key.pem").write_text("")
    without = f"import sys; sys.modules[{library!r}] = None; from proctor.adapters.cli import main; main()"
    environment = {**os.environ, "PATH": str(tmp_path)}

    def proctor(program: str, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", program, *words]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)

    if extra == "audit":
        whole = "from proctor.adapters.cli import main; main()"
        assert proctor(whole, "store", "--make", "--store", "runs.db").returncode == 0
        (tmp_path / "heads.json").write_text(proctor(whole, "audit", "head", "--store", "runs.db").stdout)
    run = proctor(without, *arguments)

    assert run.returncode in (2, 3), run.stderr
    assert f"pip install '.[{extra}]'" in run.stderr
    assert len(run.stderr.splitlines()) == 1
