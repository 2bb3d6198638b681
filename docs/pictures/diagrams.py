"""Draws the diagrams of the pages on concepts: `python -m docs.pictures.diagrams`."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

HERE = Path(__file__).parent
COLUMN, ROW = 192, 98
WIDTH, HEIGHT = 150, 60
MARGIN, LINE = 16, 15
FILLS = {"step": "#e8eef6", "good": "#dcfce7", "bad": "#fee2e2", "ask": "#dbeafe", "store": "#f5ecfd", "note": "none"}
STROKES = {"good": "#15803d", "bad": "#b91c1c", "ask": "#1d4ed8", "note": "none"}


class Box(NamedTuple):
    """A box at a column and a row of the grid; `note` is text without a box."""

    column: float
    row: float
    text: str
    kind: str = "step"


class Diagram(NamedTuple):
    """What a picture shows, in words for people who do not see it; its boxes, and its arrows with their labels."""

    words: str
    boxes: dict[str, Box]
    arrows: tuple[tuple[str, str, str], ...] = ()


DIAGRAMS = {
    "call": Diagram(
        "The agent proposes a call; the gate evaluates it; it is allowed, denied, or waits for a person.",
        {
            "agent": Box(0, 1, "agent proposes\na tool call"),
            "gate": Box(1, 1, "gate evaluates\nevery rule"),
            "deny": Box(2, 2, "denied: the model\nis told why", "bad"),
            "ask": Box(2, 0, "request_approval:\na person decides", "ask"),
            "log": Box(2, 1, "event log:\ncall started", "store"),
            "run": Box(3, 1, "the call runs", "good"),
            "result": Box(4, 1, "event log:\nresult, usage", "store"),
            "cancel": Box(4, 2, "a limit is passed:\nrun cancelled", "bad"),
        },
        (
            ("agent", "gate", ""),
            ("gate", "log", "allow"),
            ("gate", "ask", ""),
            ("gate", "deny", ""),
            ("ask", "log", "approved"),
            ("log", "run", ""),
            ("run", "result", ""),
            ("result", "cancel", ""),
        ),
    ),
    "stack": Diagram(
        "Policies of the organization, the team and the user merge left to right into one stack.",
        {
            "org": Box(0, 0, "org (locked)\nmax_cost_usd: 5\ndeny: [drop_database]"),
            "team": Box(0, 1, "team\nmax_cost_usd: 50\nallow: [transfer]"),
            "user": Box(0, 2, "user\nbefore: lookup,\nthen transfer"),
            "merge": Box(1.2, 1, "merged,\nleft to right"),
            "limit": Box(2.5, 0, "max_cost_usd: 5\n(50 has no effect)", "good"),
            "rules": Box(2.5, 1, "every rule applies,\ndenies add up", "good"),
            "allow": Box(2.5, 2, "a call must be on\neach allow list", "good"),
        },
        (
            ("org", "merge", ""),
            ("team", "merge", ""),
            ("user", "merge", ""),
            ("merge", "limit", ""),
            ("merge", "rules", ""),
            ("merge", "allow", ""),
        ),
    ),
    "gate": Diagram(
        "With gate all every call waits; with some only those the agent asks about; with none no call does.",
        {
            "all": Box(0, 0, "gate: all"),
            "some": Box(0, 1, "gate: some"),
            "none": Box(0, 2, "gate: none"),
            "held": Box(1.35, 0, "every call waits\nfor the decision"),
            "asked": Box(1.35, 1, "calls the agent\nasks about wait"),
            "told": Box(1.35, 2, "calls are reported\nwhen they start"),
            "prevented": Box(2.7, 0, "prevented: the call\nnever ran", "good"),
            "interrupted": Box(2.7, 2, "interrupted: it ran,\nthe run is cancelled", "bad"),
        },
        (
            ("all", "held", ""),
            ("some", "asked", ""),
            ("none", "told", ""),
            ("held", "prevented", ""),
            ("asked", "prevented", "asked"),
            ("asked", "interrupted", "not asked"),
            ("told", "interrupted", ""),
        ),
    ),
    "approval": Diagram(
        "The run writes an approval request to the store; another process answers it there; the run continues.",
        {
            "run": Box(0, 0, "run: the call waits"),
            "store": Box(1.4, 0, "store: approval\nrequest, digest", "store"),
            "person": Box(2.8, 0, "terminal, dashboard,\nHTTP, your app", "ask"),
            "again": Box(0, 1, "run evaluates\nthe call again"),
            "answer": Box(1.4, 1, "store: one answer\ncounts", "store"),
            "who": Box(2.8, 1, "a person approves\nor denies", "ask"),
        },
        (
            ("run", "store", ""),
            ("store", "person", ""),
            ("person", "who", ""),
            ("who", "answer", ""),
            ("answer", "again", ""),
        ),
    ),
    "overshoot": Diagram(
        "Use grows turn by turn; a limit of $2 is noticed at the first turn that ends above it.",
        {
            "one": Box(0, 0, "turn 1\n$0.70 in all"),
            "two": Box(1, 0, "turn 2\n$1.50 in all"),
            "three": Box(2, 0, "turn 3\n$2.20 in all", "bad"),
            "cancel": Box(3, 0, "run cancelled\nat $2.20", "bad"),
            "limit": Box(2, 0.75, "limit: $2, passed by at\nmost one turn", "note"),
        },
        (("one", "two", ""), ("two", "three", ""), ("three", "cancel", "")),
    ),
    "shutdown": Diagram(
        "Shutdown steps: interrupt, close the input, terminate, kill the whole process tree, each with a time limit.",
        {
            "interrupt": Box(0, 0, "1. interrupt\nthe agent"),
            "close": Box(1, 0, "2. close\nits input"),
            "terminate": Box(2, 0, "3. terminate\n(SIGTERM)"),
            "kill": Box(3, 0, "4. kill the whole\nprocess tree", "bad"),
            "log": Box(4, 0, "event log:\nwhich step it took", "store"),
        },
        (("interrupt", "close", ""), ("close", "terminate", ""), ("terminate", "kill", ""), ("kill", "log", "")),
    ),
    "deployment": Diagram(
        "Applications and workers write to one store; the dashboard, the command line and your programs read it.",
        {
            "app": Box(0, 0, "your application\n(Supervisor)"),
            "worker": Box(0, 1, "workers\n(Fleet)"),
            "cli": Box(0, 2, "proctor run,\nhooks"),
            "store": Box(1.5, 1, "store: SQLite file\nor PostgreSQL", "store"),
            "serve": Box(3, 0, "proctor serve\n(dashboard, HTTP)", "ask"),
            "commands": Box(3, 1, "proctor runs,\nexplain, approve", "ask"),
            "programs": Box(3, 2, "your programs,\nwebhooks", "ask"),
        },
        (
            ("app", "store", ""),
            ("worker", "store", ""),
            ("cli", "store", ""),
            ("store", "serve", ""),
            ("store", "commands", ""),
            ("store", "programs", ""),
        ),
    ),
    "chain": Diagram(
        "Each event's digest covers the event before it; a checkpoint kept elsewhere fixes the last digest.",
        {
            "one": Box(0, 0, "event 1\ndigest a", "store"),
            "two": Box(1, 0, "event 2\ndigest b = H(a, 2)", "store"),
            "three": Box(2, 0, "event 3\ndigest c = H(b, 3)", "store"),
            "check": Box(3.2, 0, "checkpoint: c, kept\noutside the store", "good"),
            "verify": Box(3.2, 1, "audit verify\n--anchor compares", "ask"),
        },
        (("one", "two", ""), ("two", "three", ""), ("three", "check", "audit head"), ("check", "verify", "")),
    ),
}
"""By file name, without `.svg`."""


def svg(diagram: Diagram) -> str:
    """The picture, as wide as its boxes."""
    boxes = diagram.boxes.values()
    width = 2 * MARGIN + max(box.column for box in boxes) * COLUMN + WIDTH
    height = 2 * MARGIN + max(box.row for box in boxes) * ROW + HEIGHT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" role="img"'
        ' font-family="ui-sans-serif, system-ui, sans-serif" font-size="12">',
        f"<title>{escape(diagram.words)}</title>",
        "<style>.bare { fill: #64748b } @media (prefers-color-scheme: dark) { .bare { fill: #cbd5e1 } }</style>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 0 8 4 0 8z" fill="#64748b"/></marker></defs>',
        *(_arrow(diagram.boxes[start], diagram.boxes[end], label) for start, end, label in diagram.arrows),
        *map(_box, boxes),
        "</svg>\n",
    ]
    return "\n".join(parts)


def _centre(box: Box) -> tuple[float, float]:
    return MARGIN + box.column * COLUMN + WIDTH / 2, MARGIN + box.row * ROW + HEIGHT / 2


def _box(box: Box) -> str:
    x, y = _centre(box)
    lines = box.text.split("\n")
    top = y - (len(lines) - 1) * LINE / 2 + 4
    stroke = STROKES.get(box.kind, "#64748b")
    colour = 'class="bare"' if box.kind == "note" else 'fill="#0f172a"'
    frame = (
        f'<rect x="{x - WIDTH / 2:g}" y="{y - HEIGHT / 2:g}" width="{WIDTH}" height="{HEIGHT}" rx="7"'
        f' fill="{FILLS[box.kind]}" stroke="{stroke}"/>'
    )
    texts = "".join(
        f'<text x="{x:g}" y="{top + at * LINE:g}" text-anchor="middle" {colour}>{escape(line)}</text>'
        for at, line in enumerate(lines)
    )
    return frame + texts


def _arrow(start: Box, end: Box, label: str) -> str:
    (x1, y1), (x2, y2) = _centre(start), _centre(end)
    if x1 == x2:
        y1, y2 = (y1 + HEIGHT / 2, y2 - HEIGHT / 2) if y2 > y1 else (y1 - HEIGHT / 2, y2 + HEIGHT / 2)
    else:
        x1, x2 = (x1 + WIDTH / 2, x2 - WIDTH / 2) if x2 > x1 else (x1 - WIDTH / 2, x2 + WIDTH / 2)
    line = (
        f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="#64748b" stroke-width="1.4"'
        ' marker-end="url(#tip)"/>'
    )
    x, y = (x1 + x2) / 2, (y1 + y2) / 2
    beside = x + 8, (y + 11 if y2 < y1 else y + 4 if x1 == x2 else y - 4), "start"
    left, base, anchor = (x, y - 6, "middle") if y1 == y2 else beside  # above a level line, else on its right
    text = (
        f'<text x="{left:g}" y="{base:g}" text-anchor="{anchor}" class="bare" font-size="11">{escape(label)}</text>'
    )
    return line + (text if label else "")


def main() -> None:
    """All of them."""
    for name, diagram in DIAGRAMS.items():
        (HERE / f"{name}.svg").write_text(svg(diagram), encoding="utf-8")


if __name__ == "__main__":
    main()
