"""Helper tasks beside a body of code."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio


@asynccontextmanager
async def helpers() -> AsyncIterator[anyio.abc.TaskGroup]:
    """A task group that is cancelled when the body is left; the body's exception is raised unwrapped, even if a
    helper has failed too.
    """
    failure: Exception | None = None
    try:
        async with anyio.create_task_group() as tasks:
            try:
                yield tasks
            except Exception as error:  # raised again below, outside the group that would wrap it
                failure = error
            finally:
                tasks.cancel_scope.cancel()
    except Exception as of_helpers:
        if failure is None:
            raise
        raise failure from of_helpers
    if failure is not None:
        raise failure
