"""Runs that the agent of another run starts: they draw on the budgets of that run, too."""

from __future__ import annotations

import threading
from functools import lru_cache
from typing import Any, Final

import msgspec

from proctor.policies.policy import Policy

from ..errors import UsageError
from ..ports.adapters import Store
from ..ports.facts import RunInfo
from ..run.foreign.lineage import parent
from .plan import written

FIELD: Final = "parent"
"""The field of a sub-run's spec: the run that started it (`run_id`), and the budgets it passed on (`policies`)."""
_WHOSE: Final = ("user_role", "tenant", "user", "labels")


async def as_sub_run(info: RunInfo, store: Store) -> RunInfo:
    """A run as it is recorded when it is created here: where an agent creates it, a sub-run of that agent's run.

    Raises:
        UsageError: its parent's budgets are in another store, where nobody could count what it uses.
        StoreError: that cannot be looked up.
    """
    above = parent()
    policies = () if above is None else above.compiled.passed_on(above.context)
    if above is None or not policies:
        return info
    if store is not above.store and (await store.place()).store_id != (await above.store.place()).store_id:
        raise UsageError(
            f"run `{above.run_id}`, which starts this one, has budgets in another store; give this one its store"
        )
    context = msgspec.to_builtins(above.context)
    whose = {name: context[name] for name in _WHOSE if name in context}
    line = {"run_id": above.run_id, "policies": written(policies)}
    return msgspec.structs.replace(info, spec={"context": whose, **info.spec, FIELD: line})


def parents_store() -> Store | None:
    """The store of a run that is started without one. Raises UsageError where its parent's is another thread's."""
    above = parent()
    if above is None:
        return None
    if above.thread != threading.get_ident():
        raise UsageError(f"run `{above.run_id}`, which starts this one, has budgets; give this one its store")
    return above.store


def inherited(info: RunInfo) -> tuple[Policy, ...]:
    """The budgets that a run's parent passed on, as policies: the same objects for the same ones."""
    line: dict[str, Any] | None = info.spec.get(FIELD)
    return _read(msgspec.json.encode(line["policies"])) if line else ()


@lru_cache(maxsize=64)
def _read(policies: bytes) -> tuple[Policy, ...]:
    from proctor.policies import parse_policies

    return tuple(parse_policies({"policies": msgspec.json.decode(policies)}))
