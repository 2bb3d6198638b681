"""Short, seeded parts of the long runs on protocols and on call ids."""

import pytest

from tests.fuzz.call_ids import ids_on


def test_no_bytes_to_the_proxy_evade_the_gate() -> None:
    """Most kinds of messages occur."""
    pytest.importorskip("mcp", reason="needs the MCP library: pip install '.[mcp]'")
    from tests.fuzz.proxy_wire import proxy_wire

    share = proxy_wire(0, 0, sessions=40)

    assert share.found == []
    assert share.counts["permitted"] > 30
    assert share.counts["calls put to the gate"] > share.counts["permitted"]


def test_no_bytes_to_the_hook_evade_the_gate() -> None:
    """Most kinds of inputs occur."""
    from tests.fuzz.hook_wire import hook_wire

    share = hook_wire(0, 0, stores=1)

    assert share.found == []
    assert share.counts["allowed"] > 5
    assert share.counts["refused"] > 5
    assert share.counts["refused unread"] > 5


@pytest.mark.parametrize(
    "name", ["function", "hook", "langchain", "openai-agents", "proxy", "pydantic-ai", "replay", "scripted", "shell"]
)
def test_reused_ids_evade_no_rule(name: str) -> None:
    """On each adapter in this process; tests/attacks has the clients."""
    for needed in ("mcp", "langchain", "agents", "pydantic_ai"):
        pytest.importorskip(needed, reason="needs the frameworks: pip install '.[all]'")
    from tests.fuzz.id_drivers import IN_PROCESS

    share = ids_on({name: IN_PROCESS[name]}, 3, 0, 0)

    assert share.found == []
    assert share.counts["acts that ran"] > 0
