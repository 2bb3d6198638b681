"""A provider that lies about usage through the real Codex client ends the run, closed."""

from __future__ import annotations

from typing import Any

import pytest

from proctor.policies import parse_policies
from proctor.supervisor import ProctorError, run_once

pytestmark = [pytest.mark.codex, pytest.mark.anyio]


async def test_usage_that_falls_ends_the_run(bench: Any) -> None:
    """A response of less than nothing makes the client's own total fall."""
    bench.api.reply(bench.api.shell("c1", "echo x >> log"))
    bench.api.reply(bench.api.shell("c2", "echo y >> log"), used=(-90, 20))
    for n in range(3):
        bench.api.reply(bench.api.shell(f"d{n}", "echo z >> log"))

    with pytest.raises(ProctorError) as ended:
        await run_once(bench.adapter(), "go", policies=parse_policies("name: p\nlimits: {max_total_tokens: 100000}"))

    assert "inputTokens" in str(ended.value)
    assert (bench.cwd / "log").read_text().split().count("z") == 0
