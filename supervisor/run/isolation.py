"""Code of others, called so that a cancel of its own making ends nothing but itself."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import anyio


async def alone(call: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Call in a group of its own and wait: on asyncio, a task that ends with a cancel nobody ordered ends its
    whole group. `call` is to raise nothing; what it leaves undone tells whether it was cancelled.
    """
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call)
