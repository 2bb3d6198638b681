"""Helper tasks beside a body of code."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from proctor.adapters.kit.tasks import helpers

pytestmark = pytest.mark.anyio


async def fail() -> None:
    raise ValueError("the helper")


async def fail_when_cancelled() -> None:
    try:
        await anyio.sleep_forever()
    finally:
        await fail()


async def beside(helper: Any, body: Callable[[], Awaitable[None]]) -> None:
    async with helpers() as tasks:
        tasks.start_soon(helper)
        await body()


async def fail_too() -> None:
    raise KeyError("body")


@pytest.mark.parametrize("helper", [fail, fail_when_cancelled])
async def test_a_helpers_error_never_replaces_the_bodys(helper: object) -> None:
    """What went wrong first and is the caller's comes out, the other as its cause."""
    with pytest.raises(KeyError, match="body") as raised:
        await beside(helper, fail_too)

    assert isinstance(raised.value.__cause__, ExceptionGroup) or helper is fail


async def test_a_helpers_error_comes_out_where_the_body_has_none() -> None:
    """It is not lost."""
    with pytest.raises(ExceptionGroup):
        await beside(fail, anyio.sleep_forever)
