"""SQLite and PostgreSQL give the same results for any operations as the memory store, which stands for them in
simulations.
"""

import os
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from postgres_server import needs_postgres, new_schema

from proctor.adapters.stores import MemoryStore, PostgresStore, SQLiteStore
from proctor.policies import events as ev
from proctor.policies.limits import BudgetAccount
from proctor.supervisor import Store, StoreError
from proctor.supervisor.ports.budget_ledger import Reservation
from proctor.supervisor.ports.stored_types import (
    ApprovalAnswer,
    Block,
    Cancel,
    Owner,
    RunFilter,
    RunInfo,
    UnblockStarts,
)
from proctor.supervisor.testing.store_approvals import requested

pytestmark = [pytest.mark.anyio, needs_postgres]
SEEDS = int(os.environ.get("PROCTOR_LONG", "0")) or 2
STEPS = 150
AT = datetime(2026, 1, 2, tzinfo=UTC)
RUNS = [f"r{n}" for n in range(12)]
CLAIMS = [
    BudgetAccount(budget="b/usd", key="", counts="cost_usd", window="", max=9),
    BudgetAccount(budget="b/calls", key="k", counts="tool_calls", window="", max=4),
    BudgetAccount(budget="b/week", key="", counts="tool_calls", window="week", max=6),
]
LEASES = (3600, 3600, 3600, -1)
"""In seconds; an owner with an expired lease is lost."""
TENANTS = ("t", "t", "", None)
_OWN = (
    *("position", "after", "number", "created_at", "at", "answered_at", "started_at", "ended_at", "bytes"),
    "free_bytes",
)
"""Values from each store's own count or clock."""


@asynccontextmanager
async def stores(folder: Path) -> AsyncIterator[list[Store]]:
    """The model, and the store it stands for."""
    async with AsyncExitStack() as stack:
        url, schema = stack.enter_context(new_schema())
        yield [
            await stack.enter_async_context(opened)
            for opened in (
                MemoryStore(),
                SQLiteStore(folder / "s.db", synchronous="OFF"),
                PostgresStore(url, schema=schema),
            )
        ]


class Uses:
    """Draws one store operation after the other, from the owners so far and their writes."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self._owners = 0
        self._owner: dict[str, int] = {}  # of runs
        self._claims = ("", 0)  # the claims of the latest operation, if it is granted
        self._unit: tuple[str, int, list[ev.Event]] | None = None  # the latest stored unit, with its run and owner
        self._requested: list[str] = []
        self._appends: tuple[str, int, list[ev.Event]] = ("", 0, [])

    def next(self, name: str = "") -> tuple[str, Callable[[Store, list[int]], Any]]:
        """An operation and its name: its effect on a store, given the epochs of the owners."""
        name = name or self.chance.choice(_NAMES)
        return name, getattr(self, f"_{name}")()

    def granted(self, name: str, given: Any) -> None:
        """The operation succeeded, with this result."""
        if name in ("create_run", "claim_run"):
            run, owner = self._claims
            self._owner[run] = owner
        if name == "append":
            run, owner, unit = self._appends
            self._requested += [event.approval_id for event in unit if isinstance(event, ev.ToolApprovalRequested)]
            places = zip(unit, given, strict=True)
            self._unit = run, owner, [msgspec.structs.replace(event, seq=stored["seq"]) for event, stored in places]

    def _run(self) -> str:
        """Usually one that has an owner."""
        return self.chance.choice(list(self._owner) if self._owner and self.chance.random() < 0.7 else RUNS)

    def _session(self, run: str) -> str:
        return f"s{int(run[1:]) % 5}"

    def _whose(self, run: str = "") -> Callable[[list[int]], int]:
        """Usually the run's; otherwise another, or none."""
        n = self.chance.randrange(-1, self._owners)
        if run in self._owner and self.chance.random() < 0.9:
            n = self._owner[run]
        self._claims = (run, n)
        return lambda epochs: epochs[n] if n >= 0 else 0

    def _register(self) -> Any:
        owner, lease_s = Owner(owner_id=f"o{self._owners}", host="h"), self.chance.choice(LEASES)
        self._owners += 1

        async def use(store: Store, epochs: list[int]) -> Any:
            registered = await store.register(owner, lease_s=lease_s)
            epochs.append(registered.epoch)
            return registered

        return use

    def _renew(self) -> Any:
        whose, lease_s = self._whose(), self.chance.choice(LEASES)
        return lambda store, epochs: store.renew(whose(epochs), lease_s=lease_s)

    def _release(self) -> Any:
        whose = self._whose()
        return lambda store, epochs: store.release(whose(epochs)) if whose(epochs) else store.lost_runs()

    def _create_run(self) -> Any:
        run = self.chance.choice(RUNS)
        whose = self._whose(run)
        spec = {"prompt": "go", "context": self._context()}
        provider = self.chance.choice(("p", ""))
        info = RunInfo(run_id=run, session_id=self._session(run), spec=spec, provider=provider)
        return lambda store, epochs: store.create_run(info, epoch=whose(epochs))

    def _context(self) -> dict[str, Any]:
        labels = self.chance.choice(({}, *({"team": value} for value in ("a", "", 1, None))))
        context = {"tenant": self.chance.choice(TENANTS), "labels": labels}
        return {name: value for name, value in context.items() if value is not None}

    def _claim_run(self) -> Any:
        run, lost = self._run(), self.chance.random() < 0.3
        whose = self._whose(run)
        return lambda store, epochs: store.claim_run(run, epoch=whose(epochs), lost=lost)

    def _release_run(self) -> Any:
        run = self._run()
        whose = self._whose(run)
        return lambda store, epochs: store.release_run(run, epoch=whose(epochs))

    def _append(self) -> Any:
        run = self._run()
        whose = self._whose(run)
        about = {"run_id": run, "session_id": self._session(run)}
        unit = [msgspec.structs.replace(self._event(run), **about) for _ in range(self.chance.randint(1, 3))]
        if self.chance.random() < 0.3:
            n = self.chance.randrange(4)
            unit[0] = msgspec.structs.replace(unit[0], event_id=f"e{n}")
        self._appends = run, self._claims[1], unit
        return lambda store, epochs: store.append(unit, epoch=whose(epochs))

    def _append_again(self) -> Any:
        """The latest stored unit, repeated as after a lost answer: alone, with more, or changed."""
        run, owner, unit = self._unit or ("r0", -1, [ev.RunStarted(run_id="r0", session_id="s0", at=AT, seq=1)])
        if self.chance.random() < 0.3:
            owner = self.chance.randrange(-1, self._owners)
        if self.chance.random() < 0.3:
            unit = [*unit, msgspec.structs.replace(self._event(run), run_id=run, session_id=self._session(run))]
        if self.chance.random() < 0.2:
            unit = [
                msgspec.structs.replace(self._event(run), run_id=run, session_id=self._session(run), seq=unit[0].seq)
            ]
        return lambda store, epochs: store.append(unit, epoch=epochs[owner] if owner >= 0 else 0)

    def _event(self, run: str) -> ev.Event:
        chance = self.chance
        n = chance.randrange(3)
        call: dict[str, Any] = {"tool_call_id": f"c{n}", "tool_name": "t"}
        approval = f"{run}.{n}"
        drawn = chance.choice(
            [
                ev.RunStarted(metadata={"context": self._context()}),
                ev.MessageReceived(content=f"m{chance.randrange(9)}"),
                ev.TokenUsageUpdated(input_tokens=chance.randrange(9), cost_usd=0.5),
                ev.ToolCallRequested(**call, tool_input={"n": n}),
                ev.ToolCallStarted(**call, tool_input={"n": n}),
                ev.ToolCallStarted(**call, tool_input={"n": n}),
                ev.ToolCallCompleted(**call, tool_output="x"),
                requested(approval),
                requested(approval),
                ev.ToolApprovalGranted(approval_id=approval, **call, by="ana"),
                ev.ToolApprovalExpired(approval_id=approval, **call),
                chance.choice((ev.RunCompleted(output="done"), ev.RunCancelled(reason="x"), ev.RunStarted())),
            ]
        )
        return msgspec.structs.replace(drawn, at=AT)

    def _answer(self) -> Any:
        approval, granted = f"{self._run()}.{self.chance.randrange(3)}", self.chance.random() < 0.5
        if self._requested and self.chance.random() < 0.9:
            approval = self.chance.choice(self._requested[-3:])
        given = ApprovalAnswer(granted=granted, by="ana", input_digest=self.chance.choice((None, "other")))
        return lambda store, epochs: store.answer(approval, given, at=AT)

    def _instruct(self) -> Any:
        order = self.chance.choice(
            [
                Cancel(scope="run", value=self._run(), by="ana"),
                Block(scope="all", by="ana"),
                UnblockStarts(scope="all", by="ana"),
            ]
        )
        return lambda store, epochs: store.send_command(order)

    def _reserve(self) -> Any:
        run = self._run()
        whose = self._whose(run)
        draws = [
            Reservation(
                claim=claim,
                used=self.chance.randrange(5),
                want=self.chance.randrange(4),
                least=self.chance.randrange(2),
            )
            for claim in self.chance.sample(CLAIMS, self.chance.randint(1, 2))
        ]
        return lambda store, epochs: store.reserve(run, draws, epoch=whose(epochs))

    def _settle(self) -> Any:
        run = self._run()
        whose = self._whose(run)
        used = {"cost_usd": float(self.chance.randrange(6)), "tool_calls": float(self.chance.randrange(5))}

        async def use(store: Store, epochs: list[int]) -> Any:
            return sorted(await store.settle(run, used, epoch=whose(epochs)), key=lambda drawn: drawn.claim.budget)

        return use

    def _prune(self) -> Any:
        session = self._session(self._run())

        async def use(store: Store, epochs: list[int]) -> Any:
            last = await store.last_seq(session)
            return await store.prune(ev.RecordPruned(session_id=session, at=AT), up_to=last)

        return use

    def _looks(self) -> Any:
        run, session = self._run(), self._session(self._run())
        before, limit = self.chance.choice((None, self._run())), self.chance.choice((2, 100))
        where = self.chance.choice(
            (
                RunFilter(),
                RunFilter(tenant="t"),
                RunFilter(tenant=""),
                RunFilter(labels={"team": self.chance.choice(("", "a", "1", "null"))}),
                RunFilter(provider=self.chance.choice(("", "p"))),
                RunFilter(status=frozenset({"lost", "running"})),
                RunFilter(begins="r1"),
            )
        )

        async def use(store: Store, epochs: list[int]) -> Any:
            return [
                await store.run(run),
                await store.runs(before=before, limit=limit, where=where),
                await store.runs(session_id=session),
                await store.session(session),
                await store.lost_runs(),
                await store.approvals(waiting=False),
                await store.approvals(session_id=session),
                await store.approval(f"{run}.0"),
                await store.blocks(),
                await store.commands(),
                await store.last_command(),
                await store.size(),
                await store.budgets(),
                await store.last_seq(session),
                [event async for event in store.read(session, after=1)],
                [event async for event in store.read(session, run_id=run, newest_first=True)],
                [(entry.session_id, entry.seq, entry.run_id, entry.tenant) async for entry in store.log()],
            ]

        return use


_NAMES = [name[1:] for name in vars(Uses) if name.startswith("_") and name[1:2] != "_"]
_NAMES = [name for name in _NAMES if name not in ("run", "session", "whose", "event", "context")]
_NAMES += [name for name in _NAMES if name not in ("release", "release_run", "prune")] * 2
_NAMES += ["append"] * 24 + ["create_run", "claim_run"] * 4


async def _given(store: Store, use: Any, epochs: list[int]) -> Any:
    """The result of an operation, or its error, without the store's own values."""
    try:
        given = await use(store, epochs)
    except StoreError as error:
        return f"refused: {error.kind}"
    return _plain(msgspec.to_builtins(given, enc_hook=str), epochs)


def _plain(value: Any, epochs: list[int]) -> Any:
    if isinstance(value, dict):
        kept = {key: _plain(item, epochs) for key, item in value.items() if key not in _OWN}
        if kept.get("epoch"):
            kept["epoch"] = epochs.index(kept["epoch"])
        return kept
    return [_plain(item, epochs) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_any_sequence_of_operations_has_the_same_results(seed: int, tmp_path: Path) -> None:
    """Starts, claims, units, approvals, commands, budgets, lists, pruning; every error with its kind."""
    uses = Uses(random.Random(seed))
    async with stores(tmp_path) as opened:
        epochs: list[list[int]] = [[] for _ in opened]
        done = []
        for name in ["register", "register", *[""] * STEPS]:
            name, use = (name, getattr(uses, f"_{name}")()) if name else uses.next()
            given = [await _given(store, use, own) for store, own in zip(opened, epochs, strict=True)]
            done.append((name, given[0]))

            assert given[1:] == [given[0]] * 2, (seed, len(done), done[-8:])
            if not isinstance(given[0], str):
                uses.granted(name, given[0])
