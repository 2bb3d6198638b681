"""Every stored run, page by page; what is read of a store, closed however it is left."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

from ..ports.adapters import Store
from ..ports.facts import ANY_RUN, RunFilter, RunInfo

T = TypeVar("T")
_PAGE = 500


@asynccontextmanager
async def closing(found: AsyncIterator[T]) -> AsyncGenerator[AsyncIterator[T]]:
    """What a store's `read` or `log` gives, closed when its reader leaves early: trio complains about a generator
    that is left open.
    """
    try:
        yield found
    finally:
        if isinstance(found, AsyncGenerator):
            await found.aclose()


async def all_runs(
    store: Store, *, session_id: str | None = None, where: RunFilter = ANY_RUN
) -> AsyncGenerator[RunInfo, None]:
    """The runs of `store`, or of one session (`session_id`), that meet all of `where`, newest first; those that come
    meanwhile are left out.

    Close it where you stop before the end: see `contextlib.aclosing`.
    """
    before: str | None = None
    while page := await store.runs(limit=_PAGE, session_id=session_id, before=before, where=where):
        for run in page:
            yield run
        before = page[-1].run_id
