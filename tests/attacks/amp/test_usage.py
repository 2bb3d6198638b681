"""A client that lies about usage ends the run of Amp, closed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from proctor.policies import parse_policies
from proctor.supervisor import ProctorError, run_once

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("lie", ["12", -1, 1.5, True], ids=repr)
async def test_usage_that_cannot_be_true_ends_the_run(bench: Any, touch: Callable[..., Any], lie: Any) -> None:
    """Nothing runs after it."""
    adapter = bench.adapter(touch("a"), {"say": "x", "usage": {"input_tokens": lie}}, touch("b"))

    with pytest.raises(ProctorError, match="input_tokens"):
        await run_once(adapter, "go", policies=parse_policies("name: p\nlimits: {max_total_tokens: 1000}"))

    assert not (bench.cwd / "b").exists()
