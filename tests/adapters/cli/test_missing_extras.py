"""A missing extra is one error that names it, in every command that needs it."""

import ast
import json
import os
import subprocess
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, metadata, packages_distributions, requires
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from page_blocks import ROOT

from proctor.adapters.agents.catalog import SPECS
from proctor.adapters.cli.commands import agents, serve
from proctor.adapters.matrix import ELSEWHERE

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
"""Commands without some libraries: their exit codes and messages."""


def test_a_missing_extra_is_named(cli: Any, place: Path) -> None:
    """In one line, never as an internal error; likewise if an agent's client is missing."""
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


EXTRAS = frozenset(metadata("proctor").get_all("Provides-Extra") or ())
BROUGHT = [
    *((str(spec.extra), module) for spec in (*SPECS, *ELSEWHERE) for module in spec.modules),
    *(("web", module) for module in (*serve._LIBRARIES, "segno")),
    *(("mcp", module) for module in agents._LIBRARIES),
]


def test_every_extra_named_in_an_error_exists() -> None:
    """Wherever the code says how to install something."""
    named = {spec.extra for spec in (*SPECS, *ELSEWHERE) if spec.extra}
    for path in [path for folder in ("supervisor", "adapters") for path in (ROOT / folder).rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("install_of", "NotInstalledError"):
                named |= {str(each.value) for each in node.args[-1:] if isinstance(each, ast.Constant)}

    assert len(named) > 8
    assert named - EXTRAS == set()


def test_an_extra_installs_the_modules_that_are_checked() -> None:
    """Itself, or by its requirements. No module of an installed extra is missing."""
    brings = {module: {*map(canonicalize_name, names)} for module, names in packages_distributions().items()}
    installed = set().union(*brings.values())
    lost = [
        (extra, module)
        for extra, module in BROUGHT
        if named_by(extra) <= installed and not brings.get(module, set()) & brought_by(extra)
    ]

    assert lost == []


def named_by(extra: str) -> set[str]:
    """The requirements of the package with this extra."""
    found = map(Requirement, requires("proctor") or ())
    return {
        canonicalize_name(each.name)
        for each in found
        if each.marker is not None and each.marker.evaluate({"extra": extra})
    }


@cache
def brought_by(extra: str) -> set[str]:
    """All requirements of the package with this extra, as far as they are installed."""
    found: set[tuple[str, str]] = set()
    waiting = [("proctor", extra)]
    while waiting:
        name, its_extra = waiting.pop()
        if (name, its_extra) in found:
            continue
        found.add((name, its_extra))
        try:
            requirements = [Requirement(line) for line in requires(name) or ()]
        except PackageNotFoundError:
            continue
        for each in requirements:
            if each.marker is None or each.marker.evaluate({"extra": its_extra}):
                waiting += [(canonicalize_name(each.name), extra) for extra in ("", *each.extras)]
    return {name for name, _ in found}
