"""The capabilities of each adapter: declared by it, shown by the conformance suite.

`python -m proctor.adapters.matrix docs/agents/index.md` writes the table into a page of the documentation.
"""

import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import msgspec

from proctor.policies.events.run_context import Capabilities
from proctor.supervisor.errors import UsageError

from .agents.catalog import SPECS, AgentSpec

RECORD = Path(__file__).with_name("matrix.yaml")
_OF_ONE_USE = frozenset({"mostly", "tools", "other_tools", "elsewhere", "model", "workspace", "home", "shell"})
_HEADER = "# What the conformance suite has shown. Written by: PROCTOR_MATRIX=write pytest tests/adapters\n"
BEGIN = "<!-- matrix: written by python -m proctor.adapters.matrix -->"
END = "<!-- end of matrix -->"


def missing(spec: AgentSpec) -> str | None:
    """The packages or programs that an adapter lacks on this machine; None if nothing."""
    lacking = [f"`{name}`" for name in spec.modules if find_spec(name) is None]
    on_path = any(shutil.which(program) for program in spec.programs)
    if spec.modules and spec.programs:
        return None if on_path or not lacking else f"{', '.join(lacking)} is not installed"
    if lacking:
        return f"{', '.join(lacking)} is not installed"
    if spec.programs and not on_path:
        return f"there is no program `{spec.programs[0]}` on PATH"
    return None


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """An adapter's declared capabilities, and the names of those that the suite confirmed."""

    declared: Capabilities
    shown: tuple[str, ...] = ()


def read_record() -> dict[str, Shown]:
    """The record by the adapter's name."""
    if not RECORD.exists():
        return {}
    return msgspec.yaml.decode(RECORD.read_bytes(), type=dict[str, Shown])


def write_record(name: str, shown: Shown) -> None:
    """Replace one adapter's results."""
    record = {**read_record(), name: shown}
    RECORD.write_text(_HEADER + msgspec.yaml.encode(dict(sorted(record.items()))).decode())


def settled(capabilities: Capabilities) -> Capabilities:
    """An adapter's capabilities, without those that depend on its use."""
    same = {name: getattr(capabilities, name) for name in capabilities.__struct_fields__ if name not in _OF_ONE_USE}
    return Capabilities(**same)


ELSEWHERE = (
    AgentSpec(name="mcp", about="any MCP server, behind `proctor mcp`", extra="mcp", modules=("mcp",)),
    AgentSpec(
        name="hook",
        about="a person's own Claude Code, by `proctor hook`",
        others="npm install -g @anthropic-ai/claude-code",
        programs=("claude",),
    ),
)
"""Agents that other programs run: behind the MCP proxy, or with hooks."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """An adapter with its capabilities; `shown` names those that the suite confirmed."""

    spec: AgentSpec
    declared: Capabilities
    shown: tuple[str, ...] = ()

    @property
    def level(self) -> str:
        """The enforcement of a denial: `prevented`, or only `interrupted` for calls that are not asked about."""
        return {"all": "prevented", "some": "prevented or interrupted", "none": "interrupted"}[self.declared.gate]


def matrix() -> list[Row]:
    """Every adapter with a record, the same on every machine."""
    records = read_record()
    rows = (_row(spec, records.get(spec.name)) for spec in (*SPECS, *ELSEWHERE))
    return [row for row in rows if row is not None]


def _row(spec: AgentSpec, kept: Shown | None) -> Row | None:
    if kept is not None:
        return Row(spec=spec, declared=kept.declared, shown=kept.shown)
    if spec.command is None:
        return None
    from .agents.acp.adapter import AcpAdapter

    return Row(spec=spec, declared=settled(AcpAdapter([spec.command]).capabilities))


COLUMNS: Final[tuple[tuple[str, str, Callable[[Capabilities], str]], ...]] = (
    ("gate", "gate", lambda can: can.gate),
    ("rewrite", "rewrite", lambda can: _yes(can.rewrite)),
    (
        "after a denial",
        "deny_ends_turn",
        lambda can: "-" if can.gate == "none" else _after_denial(can.deny_ends_turn),
    ),
    ("usage", "usage", lambda can: can.usage.replace("_", " ")),
    ("cost", "reports_cost", lambda can: _yes(can.reports_cost)),
    ("cancel ends children", "cancel_kills_children", lambda can: _yes(can.cancel_kills_children)),
    ("resume", "resume", lambda can: _yes(can.resume)),
    ("narrow", "narrow", lambda can: _yes(can.narrow)),
)
"""The title of each column, its capability, and a function that formats the value."""


def markdown(rows: Sequence[Row]) -> str:
    """The tables of the documentation: capabilities, and launch options; unconfirmed values are in italics."""
    titles = ["adapter", *(title for title, _, _ in COLUMNS), "subagents"]
    lines = [_line(titles), _line(["---"] * len(titles))]
    lines += [_line([f"`{row.spec.name}`", *_capabilities(row)]) for row in rows]
    lines += ["", "| adapter | launch options |", "| --- | --- |"]
    lines += [_line([f"`{row.spec.name}`", _launch_options(row)]) for row in rows if row.declared.compiles]
    return "\n".join(lines) + "\n"


def _capabilities(row: Row) -> Iterator[str]:
    yield from (value if plain else f"*{value}*" for value, plain in _values(row))
    yield "held" if "sub_agents" in row.shown else "-"


def _launch_options(row: Row) -> str:
    parts = row.declared.compiles
    return ", ".join(f"`{part}`" if f"compiles {part}" in row.shown else f"*`{part}`*" for part in parts)


def cells(row: Row) -> list[str]:
    """The row for a terminal, with an asterisk on unconfirmed values."""
    return [value if plain else f"{value}*" for value, plain in _values(row)]


def _values(row: Row) -> Iterator[tuple[str, bool]]:
    """The value of each column, and whether a test confirmed it; an absent capability needs no test."""
    for _, name, read in COLUMNS:
        value = read(row.declared)
        yield value, name in row.shown or value in ("no", "none", "-")


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _after_denial(ends_turn: bool) -> str:
    return "ends the turn" if ends_turn else "continues"


def replaced(page: str, table: str) -> str:
    """The page with another table. Raises UsageError for a page without both markers."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise UsageError(f"the page has no place for the table; it goes between `{BEGIN}` and `{END}`")
    return f"{before}{BEGIN}\n{table}{END}{after}"


def main(arguments: list[str]) -> None:
    """Write the table into the named page, or print it."""
    if not arguments:
        print(markdown(matrix()), end="")
        return
    page = Path(arguments[0])
    page.write_text(replaced(page.read_text(), markdown(matrix())))


if __name__ == "__main__":
    main(sys.argv[1:])
