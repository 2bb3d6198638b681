"""Every page is executed: files are written, commands and programs run, policies load, links resolve."""

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from page_blocks import (
    KINDS,
    PAGES,
    ROOT,
    Block,
    blocks,
    commands,
    end_what_was_left,
    environment,
    matches,
    name_of,
    run,
    words,
)

from proctor.adapters.cli.app import app
from proctor.policies import compile_policy, merge_policies, parse_policies, preflight

OTHER_PROGRAMS = {
    *("/opt/proctor/bin/pip", ".ci/run", ".venv/bin/mypy", ".venv/bin/pip", ".venv/bin/proctor", ".venv/bin/python"),
    *(".venv/bin/ruff", "amp", "chmod", "claude", "codex", "createdb", "createuser", "curl", "docker", "export"),
    *("install", "mkdocs", "npm", "opencode", "pg_dump", "pg_restore", "pip", "podman", "python", "python3", "ray"),
    *("runuser", "systemctl", "useradd", "uv", "uvicorn", "PROCTOR_LONG=50000", "PROCTOR_MATRIX=write"),
}
"""Other programs that a reader runs; a command with another first word is taken for a mistake of the page."""
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)#\s]+)(?:#[^)\s]*)?\)")
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
AS_A_TOUR = [page for page in PAGES if blocks(page)]


def test_every_block_says_what_it_is() -> None:
    """So that none is skipped below."""
    unknown = [f"{name_of(page)}:{block.line}" for page in PAGES for block in blocks(page) if block.kind not in KINDS]

    assert unknown == []
    assert [name_of(page) for page in PAGES if page.read_text().count("\n```") % 2] == []


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """The folder of a reader; its processes are ended afterwards."""
    folder = tmp_path / "tour"
    folder.mkdir()
    yield folder
    end_what_was_left(folder)


@pytest.mark.parametrize("page", AS_A_TOUR, ids=name_of)
def test_the_page_works_as_written(page: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From top to bottom in one folder, as a reader would run it."""
    monkeypatch.chdir(place)
    env = environment(place)
    names: dict[str, Any] = {"__name__": "page"}
    for block in blocks(page):
        if block.file:
            place.joinpath(block.file).parent.mkdir(parents=True, exist_ok=True)
            place.joinpath(block.file).write_text(block.text, encoding="utf-8")
        elif block.kind == "python":
            _execute(block, page, names)
        elif block.kind == "yaml":
            _use(block)
        elif block.kind == "json":
            json.loads(block.text)
        elif block.kind == "sh":
            _check(block)
        for command, shown in commands(block.text) if block.kind == "console" else ():
            printed = run(command, place, env)
            if missing := re.search(r"^ModuleNotFoundError: No module named '(?!proctor)(\w+)", printed, re.M):
                pytest.skip(_MISSING.format(missing[1]))

            assert matches(shown, printed), f"{name_of(page)}:{block.line}: $ {command}\n{printed}"


_MISSING = "`{}` is not installed: pip install -e '.[dev]'"


def _execute(block: Block, page: Path, names: dict[str, Any]) -> None:
    """Its errors name the page and the line."""
    try:
        exec(compile("\n" * block.line + block.text, name_of(page), "exec"), names)
    except ImportError as missing:
        if missing.path is not None or (missing.name or "").partition(".")[0] == "proctor":
            raise  # it exists, and lacks a name
        pytest.skip(_MISSING.format(missing.name))


def _use(block: Block) -> None:
    """A policy of a page is loaded, merged, checked and compiled; a part of one gets a name first."""
    named = block.text if re.search(r"^(name|policies):", block.text, re.M) else f"name: example\n{block.text}"
    stack = merge_policies(parse_policies(named))
    preflight(stack).check()
    compile_policy(stack)


def _check(block: Block) -> None:
    """Commands of `proctor` are parsed, and extras exist."""
    for line in words(block.text):
        given = line[2:] if line[:3] == ["uv", "run", "proctor"] else line
        if given[0] in ("proctor", ".venv/bin/proctor"):
            _parse(given[1:])
        else:
            assert line[0] in OTHER_PROGRAMS, " ".join(line)
        for extra in re.findall(r"(?:proctor|\.)\[([\w,-]+)\]", " ".join(line)):
            assert set(extra.split(",")) <= set(EXTRAS), extra


def _commands(group: click.Group, before: str = "") -> Iterator[tuple[str, click.Command]]:
    """Every command, with its words."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield f"{before}{name}", command
        if isinstance(command, click.Group):
            yield from _commands(command, f"{before}{name} ")


def _parse(arguments: list[str]) -> None:
    """As the command line parses them, without running them."""
    command: click.Command = app
    context = click.Context(app, info_name="proctor")
    while isinstance(command, click.Group) and arguments and not arguments[0].startswith("-"):
        name, arguments = arguments[0], arguments[1:]
        found = command.get_command(context, name)
        assert found is not None, f"there is no command `{name}`"
        command, context = found, click.Context(found, info_name=name, parent=context)
    parameters = command.get_params(context)
    options = {option for parameter in parameters for option in (*parameter.opts, *parameter.secondary_opts)}
    for word in arguments[: arguments.index("--") if "--" in arguments else None]:
        option = word.partition("=")[0]
        assert not option.startswith("-") or option in options or option == "-", f"`{command.name}` has no `{option}`"


def test_the_examples_in_help_texts_are_commands() -> None:
    """Each parses, and is one of its own command."""
    shown = {name: command for name, command in _commands(app) if command.help and "\b" in command.help}
    for name, command in shown.items():
        for line in re.findall(r"^proctor .+$", str(command.help).partition("\b")[2], re.M):
            (words_of_line,) = words(line)
            assert " ".join(words_of_line).startswith(f"proctor {name}"), line
            _parse(words_of_line[1:])

    assert len(shown) > 15


def test_architecture_and_decisions_name_files_that_exist() -> None:
    """Files and folders; on the architecture page, a file that was named before may appear by the end of its path."""
    found = re.findall(r"`(\w+/[\w/.]*)`", (ROOT / "docs" / "architecture.md").read_text())
    for page in (ROOT / "docs" / "decisions").glob("*.md"):
        found += re.findall(r"`((?:policies|supervisor|adapters|tests)/[\w/.]*)`", page.read_text())
    named = {name.removesuffix(".py").rstrip("/") for name in found}
    folders = [ROOT / name for name in ("policies", "supervisor", "adapters", "tests", "docs")]
    rooms = [path for folder in folders for path in (folder, *folder.rglob("*")) if path.suffix in ("", ".py", ".js")]
    ends = [f"/{path.relative_to(ROOT).as_posix().removesuffix('.py')}" for path in rooms]

    assert len(named) > 60
    assert [name for name in named if not any(end.endswith(f"/{name}") for end in ends)] == []


def test_architecture_names_what_its_files_define() -> None:
    """Wherever it says "`Name` in `file`"."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    definitions = re.findall(r"`([A-Z_]\w+)` (?:in|of) `(\w+/[\w/]+)`", page)
    sources = [path for folder in ("policies", "supervisor", "adapters") for path in (ROOT / folder).rglob("*.py")]

    assert len(definitions) > 20
    for name, file in definitions:
        paths = [path for path in sources if re.search(rf"/{file}(/__init__)?\.py$", path.as_posix())]
        defined = re.compile(rf"^(class |(async )?def )?{name}\b", re.M)
        assert any(defined.search(path.read_text(encoding="utf-8")) for path in paths), f"no `{name}` in `{file}`"


def test_decisions_name_what_exists() -> None:
    """Every word that looks like a function, a class or a written name exists here, except for those of other
    projects.
    """
    words = {"EventSource", "pg_snapshot_xmin", "pg_xact_status"}
    for folder in ("policies", "supervisor", "adapters"):
        for path in (ROOT / folder).rglob("*.py"):
            words.update(re.findall(r"\w+", path.read_text(encoding="utf-8")))
    lost = []
    for page in (ROOT / "docs" / "decisions").glob("*.md"):
        named = re.findall(r"`([a-z]+_[a-z_]+|[A-Z][a-z]+[A-Za-z]*)(?:\(\))?`", page.read_text(encoding="utf-8"))
        lost += [f"{name_of(page)}: {name}" for name in named if name not in words]

    assert lost == []


def test_links_resolve() -> None:
    """To a file of the project, or to the web. The build of the site checks anchors."""
    lost = []
    for page in [*PAGES, ROOT / "CHANGELOG.md"]:
        text = re.sub(r"^```.*?^```$|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
        links = [link for link in LINK.findall(text) if "://" not in link and not link.startswith("mailto:")]
        lost += [f"{name_of(page)}: {link}" for link in links if not (page.parent / link).exists()]

    assert lost == []


def test_every_row_is_in_a_table() -> None:
    """A blank line within a table would turn the rows below it into text."""
    lost = []
    for page in PAGES:
        text = re.sub(r"^```.*?^```$", lambda fence: "\n" * fence[0].count("\n"), page.read_text(), flags=re.M | re.S)
        lines = ["", *text.splitlines(), ""]
        first = [at for at, line in enumerate(lines) if line.startswith("|") and not lines[at - 1].startswith("|")]
        lost += [f"{name_of(page)}:{at}" for at in first if not lines[at + 1].startswith(("|-", "| -"))]

    assert lost == []
