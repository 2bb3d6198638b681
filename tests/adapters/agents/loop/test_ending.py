"""How a supervised block ends: limits, deadlines, cancels, errors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from proctor.adapters import FunctionAdapter, LoopGate, ToolRefused, supervise
from proctor.policies import Deny, Limits, Policy, PolicyError, PolicyViolationError
from proctor.supervisor import MemoryStore, StoreError, UsageError, run_once

pytestmark = pytest.mark.anyio

OPEN = Policy(name="open")


async def test_a_limit_cancels_the_block_where_it_awaits() -> None:
    """The usage report that exceeds the limit is the last action of the block. A deadline needs no event."""
    with pytest.raises(PolicyViolationError) as raised:
        async with supervise([Policy(name="p", limits=Limits(max_duration_ms=50))]):
            await anyio.sleep_forever()
    assert [v.kind for v in raised.value.violations] == ["max_duration_ms"]
    with pytest.raises(PolicyViolationError) as caught:  # noqa: PT012
        async with supervise([Policy(name="p", limits=Limits(max_total_tokens=100))]) as gate:
            await gate.usage(input_tokens=60)
            await gate.usage(output_tokens=60)
            await anyio.sleep_forever()

    assert [v.kind for v in caught.value.violations] == ["max_total_tokens"]
    assert gate.result.status == "cancelled"
    assert gate.result.usage.total_tokens == 120


async def test_a_denial_that_cancels_ends_the_block_even_if_it_keeps_proposing(tmp_path: Path) -> None:
    """No later call runs, whatever the loop does with the exception."""
    with pytest.raises(PolicyViolationError):  # noqa: PT012
        async with supervise([Policy(name="p", tool_rules=(Deny(("rm",)),))]) as gate:
            touch = gate.tool(name="touch")((tmp_path / "a").touch)
            await _go_on(gate, touch)

    assert list(tmp_path.iterdir()) == []  # noqa: ASYNC240


async def test_the_blocks_own_exception_is_raised_unchanged() -> None:
    """The run has failed, and the exception has the policy report."""
    store, error = MemoryStore(), ValueError("mine")
    with pytest.raises(ValueError, match="mine") as caught:
        async with supervise([OPEN], store=store, run_id="r") as gate:
            raise error

    run = await store.run("r")
    assert caught.value is error
    assert caught.value.policy.action == "allow"  # type: ignore[attr-defined]
    assert run is not None
    assert run.status == "failed"
    with pytest.raises(UsageError):
        _ = gate.result


async def test_a_group_of_exceptions_stays_a_group() -> None:
    """Even a group of one."""

    async def fail() -> None:
        raise ValueError("mine")

    with pytest.raises(ExceptionGroup) as caught:
        async with supervise([OPEN]), anyio.create_task_group() as tasks:
            tasks.start_soon(fail)

    assert [str(error) for error in caught.value.exceptions] == ["mine"]


async def test_a_block_cancelled_from_outside_ends_its_run() -> None:
    """The cancel then continues to its scope."""
    store = MemoryStore()
    with anyio.move_on_after(0.05) as scope:
        async with supervise([OPEN], store=store, run_id="r"):
            await anyio.sleep_forever()

    run = await store.run("r")
    assert scope.cancelled_caught
    assert run is not None
    assert run.status == "cancelled"


async def test_the_run_can_be_cancelled_through_its_supervisor() -> None:
    """The block exits, and the code after it continues."""
    async with supervise([OPEN]) as gate, anyio.create_task_group() as tasks:
        tasks.start_soon(gate.supervisor.cancel_all, "enough")
        await anyio.sleep_forever()

    assert (gate.result.status, gate.result.reason) == ("cancelled", "enough")


async def test_a_loop_can_be_a_function() -> None:
    """With the same gate, through `run_once`. The loop reports its turns."""

    async def loop(gate: LoopGate, prompt: str) -> str:
        while True:
            await gate.turn()
            await gate.message(f"{prompt}!")

    with pytest.raises(PolicyViolationError) as caught:
        await run_once(FunctionAdapter(loop), "go", policy=Policy(name="p", limits=Limits(max_turns=3)))

    assert [v.kind for v in caught.value.violations] == ["max_turns"]


@pytest.mark.parametrize(("bad", "error"), [
    ({}, UsageError),
    ({"policies": []}, PolicyError),
    ({"policies": [Policy(name="p", limits=Limits(max_turns=0))]}, PolicyViolationError),
    ({"policies": [OPEN], "store": MemoryStore()}, StoreError),
])  # fmt: skip
async def test_an_invalid_or_unrecordable_argument_starts_nothing(
    bad: dict[str, Any], error: type[Exception]
) -> None:
    """The block is not entered."""
    for store in bad.values():
        if isinstance(store, MemoryStore):
            await store.aclose()
    with pytest.raises(error):
        async with supervise(**bad):
            raise AssertionError


async def _go_on(gate: LoopGate, touch: Callable[[], Awaitable[None]]) -> None:
    """Ignore every denial."""
    while True:
        try:
            await gate.call("rm", {}, _nothing)
        except ToolRefused:
            with pytest.raises(ToolRefused):
                await touch()


async def _nothing(tool_input: dict[str, Any]) -> None:
    return None
