"""Runs in a store, found by what people type."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from proctor.supervisor.ports.adapters import RunInfo, Store

_MANY = 100


async def run_named(store: Store, name: str) -> RunInfo:
    """The run of that id, or the one run whose id begins so; `last` is the newest. Raises UsageError."""
    from proctor.supervisor.errors import UsageError

    exact = await store.run(name)
    if exact is not None:
        return exact
    if name == "last":
        newest = await store.runs(limit=1)
        if not newest:
            raise UsageError("the store holds no runs")
        return newest[0]
    wanted = name.removeprefix("run_")
    near = [run for begins in (f"run_{wanted}", wanted) if wanted for run in await _beginning(store, begins)]
    if len(near) == 1:
        return near[0]
    if near:
        count = len(near) if len(near) < _MANY else f"{_MANY} or more"
        raise UsageError(f"{count} runs begin with `{name}`; type more of the id")
    raise UsageError(f"there is no run `{name}`; `proctor runs` lists them")


async def _beginning(store: Store, begins: str) -> list[RunInfo]:
    from proctor.supervisor.ports.adapters import RunFilter

    return await store.runs(limit=_MANY, where=RunFilter(begins=begins))


async def approval_named(store: Store, name: str) -> str:
    """The approval's id from what people type: the beginning of the run's id and the number. Raises UsageError."""
    from proctor.supervisor.errors import UsageError

    run, dot, number = name.rpartition(".")
    if not dot:
        raise UsageError(f"there is no approval `{name}`; `proctor approvals` lists those that wait")
    if await store.run(run) is not None:
        return name
    return f"{(await run_named(store, run)).run_id}.{number}"
