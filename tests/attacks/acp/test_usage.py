"""An agent that lies about usage over ACP ends its run, closed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from proctor.policies import parse_policies
from proctor.supervisor import ProctorError, run_once

pytestmark = pytest.mark.anyio


def cost(amount: Any) -> dict[str, Any]:
    """A step that says what the session has cost so far."""
    return {"update": {"sessionUpdate": "usage_update", "cost": {"amount": amount, "currency": "USD"}}}


@pytest.mark.parametrize("lie", [0.5, "2", -1], ids=str)
async def test_a_cost_that_cannot_be_true_ends_the_run(scripts: Any, touch: Callable[..., Any], lie: Any) -> None:
    """Less than before, text, or below zero: nothing runs after it."""
    adapter = scripts.adapter(cost(1.0), touch("a"), cost(lie), touch("b"))

    with pytest.raises(ProctorError, match=r"`cost`|`amount`"):
        await run_once(adapter, "go", policies=parse_policies("name: p\nlimits: {max_cost_usd: 5}"))

    assert scripts.made() == ["a"]


async def test_tokens_that_cannot_be_true_fail_the_run(scripts: Any) -> None:
    """They come with the answer to the prompt."""
    adapter = scripts.adapter({"stop": "end_turn", "fields": {"usage": {"inputTokens": "12"}}})

    with pytest.raises(ProctorError, match="inputTokens"):
        await run_once(adapter, "go", policies=parse_policies("name: p"))
