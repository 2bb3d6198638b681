"""Every stored run, page by page."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from ..ports import RunInfo, Store

_PAGE = 500


async def all_runs(store: Store, *, session_id: str | None = None) -> AsyncGenerator[RunInfo, None]:
    """The runs of a store, or of one session, newest first; those that come meanwhile are not among them.

    Who stops before the end closes it: see `contextlib.aclosing`.
    """
    before: str | None = None
    while page := await store.runs(limit=_PAGE, session_id=session_id, before=before):
        for run in page:
            yield run
        before = page[-1].run_id
