"""`graph`: policies as pictures."""

import json
from typing import Any
from xml.etree import ElementTree

ORDER = "name: order\nrules: [{type: before, first: read, then: write, action: deny}]\n"


def session(tool: str) -> str:
    return json.dumps({"id": "s", "events": [{"type": "tool_call", "id": "c", "name": tool, "input": {}}]})


def test_a_policy_is_drawn_as_mermaid_text_svg_or_json(cli: Any, place: Any) -> None:
    """Mermaid unless another is asked for, by the name of a file too; from standard input too."""
    drawn = cli("graph", "-", stdin=ORDER)

    assert drawn.code == 0
    assert "flowchart" in drawn.out
    assert drawn.out == cli("graph", "--mermaid", "-", stdin=ORDER).out
    assert ElementTree.fromstring(cli("graph", "--svg", "team.yaml").out).tag.endswith("svg")
    for options, as_svg in ((), True), (("--mermaid",), False), (("--json",), False):
        cli("graph", "team.yaml", "-o", "team.svg", *options)
        assert ("</svg>" in place.joinpath("team.svg").read_text()) is as_svg
    assert cli("graph", "--json", "org.yaml", "team.yaml").lines[0]["title"] == "org + team"


def test_a_trace_marks_where_its_session_stands(cli: Any, place: Any) -> None:
    """What could be called now is distinguished from what could not."""
    place.joinpath("order.yaml").write_text(ORDER)
    drawn = [cli("graph", "order.yaml", "--trace", "-", stdin=session(tool)).out for tool in ("look", "read")]

    assert drawn[0] != drawn[1]
