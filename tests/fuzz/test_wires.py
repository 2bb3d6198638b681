"""Short, seeded parts of the long runs of wires and of call ids."""

import pytest

from tests.fuzz.call_ids import ids_on


def test_what_is_written_to_the_proxy_gets_nothing_past_it() -> None:
    """And most kinds of things are among it."""
    pytest.importorskip("mcp", reason="needs the MCP library: pip install '.[mcp]'")
    from tests.fuzz.proxy_wire import proxy_wire

    share = proxy_wire(0, 0, sessions=40)

    assert share.found == []
    assert share.counts["permitted"] > 30
    assert share.counts["calls put to the gate"] > share.counts["permitted"]


def test_what_is_written_to_the_hook_gets_nothing_past_it() -> None:
    """And most kinds of things are among it."""
    from tests.fuzz.hook_wire import hook_wire

    share = hook_wire(0, 0, stores=1)

    assert share.found == []
    assert share.counts["allowed"] > 5
    assert share.counts["refused"] > 5
    assert share.counts["refused unread"] > 5


@pytest.mark.parametrize(
    "name", ["function", "hook", "langchain", "openai-agents", "proxy", "pydantic-ai", "replay", "scripted", "shell"]
)
def test_ids_that_come_again_get_nothing_past_a_policy(name: str) -> None:
    """On each adapter that lives in this process; the clients have theirs in tests/attacks."""
    for needed in ("mcp", "langchain", "agents", "pydantic_ai"):
        pytest.importorskip(needed, reason="needs the frameworks: pip install '.[all]'")
    from tests.fuzz.id_drivers import IN_PROCESS

    share = ids_on({name: IN_PROCESS[name]}, 3, 0, 0)

    assert share.found == []
    assert share.counts["acts that ran"] > 0
