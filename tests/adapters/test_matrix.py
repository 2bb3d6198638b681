"""The matrix in the documentation has exactly what the suite has verified and the adapters declare."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from proctor.adapters.agents.catalog import ADAPTERS, AgentSpec
from proctor.adapters.cli.app import app
from proctor.adapters.matrix import BEGIN, END, markdown, matrix, missing, replaced
from proctor.supervisor.errors import UsageError

DOCS = Path(__file__).parents[2] / "docs" / "agents"


def test_the_page_has_the_current_matrix() -> None:
    """If not: python -m proctor.adapters.matrix docs/agents/index.md."""
    page = (DOCS / "index.md").read_text()

    assert page == replaced(page, markdown(matrix()))


def test_every_column_and_adapter_is_explained_and_every_runnable_agent_has_a_row() -> None:
    """Each title of the table, and each name in it, is in the text around it."""
    page = (DOCS / "index.md").read_text()
    before, _, rest = page.partition(BEGIN)
    table, _, after = rest.partition(END)
    titles = [title.strip() for title in table.strip().splitlines()[0].strip("|").split("|")]

    assert [title for title in titles[1:] if f"\n- {title}: " not in after] == []
    assert [row.spec.name for row in matrix() if f"`{row.spec.name.partition(':')[0]}`" not in before + after] == []
    assert set(ADAPTERS) - {row.spec.name for row in matrix()} == set()


def test_missing_requirements_are_named() -> None:
    """A page without a place for the table; a module, a program; nothing if one of two alternatives is there."""
    with pytest.raises(UsageError, match="goes between"):
        replaced("# Adapters\n", "| a |\n")
    assert missing(AgentSpec(name="x", about="x", modules=("no_such_module",))) == "`no_such_module` is not installed"
    assert missing(AgentSpec(name="x", about="x", programs=("no-such-program",))) == (
        "there is no program `no-such-program` on PATH"
    )
    assert missing(AgentSpec(name="x", about="x", modules=("no_such_module",), programs=("sh",))) is None


def test_the_command_prints_every_adapter_for_programs_for_pages_and_for_people() -> None:
    """A line of JSON with what is missing here and how to install it, the documentation's text, and a table."""
    given, page, shown = (
        CliRunner().invoke(app, ["adapters", *more]).stdout for more in (["--json"], ["--markdown"], [])
    )
    rows = [json.loads(line) for line in given.splitlines()]
    names = [row.spec.name for row in matrix()]
    scripted = next(one for one in rows if one["adapter"] == "scripted")

    assert [one["adapter"] for one in rows] == names
    assert (scripted["installed"], scripted["missing"], scripted["capabilities"]["gate"]) == (True, None, "all")
    assert page == markdown(matrix())
    assert [name for name in names if name.split(" ")[-1][:12] not in shown] == []


def test_an_adapter_that_cannot_be_probed_is_named() -> None:
    """With those that can."""
    result = CliRunner().invoke(app, ["adapters", "probe", "shell"])

    assert result.exit_code == 2
    assert "`shell` cannot be probed; only `claude`, `codex`" in " ".join(result.output.split())
