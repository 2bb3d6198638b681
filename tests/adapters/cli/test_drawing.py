"""`graph`: policies as diagrams."""

import json
from typing import Any
from xml.etree import ElementTree

ORDER = "name: order\nrules: [{type: before, first: read, then: write, action: deny}]\n"


def session(tool: str) -> str:
    return json.dumps({"id": "s", "events": [{"type": "tool_call", "id": "c", "name": tool, "input": {}}]})


def test_a_policy_is_drawn_as_mermaid_text_svg_or_json(cli: Any, place: Any) -> None:
    """Mermaid by default; another format by option or by the output file's suffix; also from standard input."""
    drawn = cli("graph", "-", stdin=ORDER)

    assert drawn.code == 0
    assert "flowchart" in drawn.out
    assert drawn.out == cli("graph", "--mermaid", "-", stdin=ORDER).out
    assert ElementTree.fromstring(cli("graph", "--svg", "team.yaml").out).tag.endswith("svg")
    for options, as_svg in ((), True), (("--mermaid",), False), (("--json",), False):
        cli("graph", "team.yaml", "-o", "team.svg", *options)
        assert ("</svg>" in place.joinpath("team.svg").read_text()) is as_svg
    assert cli("graph", "--json", "org.yaml", "team.yaml").lines[0]["title"] == "org + team"


def test_a_trace_marks_the_state_of_its_session(cli: Any, place: Any) -> None:
    """Tools that could be called now differ from those that could not."""
    place.joinpath("order.yaml").write_text(ORDER)
    drawn = [cli("graph", "order.yaml", "--trace", "-", stdin=session(tool)).out for tool in ("look", "read")]

    assert drawn[0] != drawn[1]
