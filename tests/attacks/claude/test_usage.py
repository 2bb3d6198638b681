"""A provider that lies about usage through the real Claude Code client ends the run, closed."""

from __future__ import annotations

from typing import Any

import pytest

from proctor.policies import parse_policies
from proctor.supervisor import ProctorError, run_once

pytestmark = [pytest.mark.claude, pytest.mark.anyio]


@pytest.mark.parametrize("lie", ["12", 1.5], ids=str)
async def test_usage_that_cannot_be_true_ends_the_run(bench: Any, lie: Any) -> None:
    """The client passes on what it was told; the run does not go on, and is not counted as having cost less."""
    api = bench.api
    true = api.reply(api.bash("echo x >> log"))
    false = api.reply(api.bash("echo y >> log"))
    false.usage["input_tokens"] = lie
    api.say(true, false, *(api.reply(api.bash("echo z >> log")) for _ in range(3)), api.reply(api.text("done")))

    with pytest.raises(ProctorError) as ended:
        await run_once(bench.adapter(), "go", policies=parse_policies("name: p\nlimits: {max_total_tokens: 100000}"))

    assert "inputTokens" in str(ended.value)


async def test_usage_below_zero_takes_nothing_back(bench: Any) -> None:
    """The client takes it for nothing used, so its total does not fall."""
    api = bench.api
    false = api.reply(api.bash("echo y >> log"))
    false.usage["input_tokens"] = -5000
    api.say(api.reply(api.bash("echo x >> log")), false, api.reply(api.text("done")))

    result = await run_once(bench.adapter(), "go", policies=parse_policies("name: p"))

    assert result.usage.input_tokens == 200
