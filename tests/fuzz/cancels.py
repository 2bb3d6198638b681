"""Callers that are cancelled at any moment: a share is many runs, each cancelled from outside after some
checkpoints.
"""

import random
from contextlib import suppress
from functools import partial
from typing import Any, Final

import anyio

from proctor.policies import parse_policies
from proctor.policies.events import MessageReceived
from proctor.supervisor import MemoryStore, PolicyViolationError, Supervisor, run_once
from proctor.supervisor.testing import Ask, FakeAdapter, FakeApprover
from tests.whole_records import whole_record, wrong

from .ledger import Share

RUNS: Final = 400
MOST_CHECKPOINTS: Final = 60
_ASKING: Final = "{name: p, rules: [{type: blocklist, tools: [bash], action: %s}]}"
_ACTIONS: Final = ("warn", "deny", "cancel", "request_approval")


def cancels(seed: int, number: int) -> Share:
    """One share, half of it on each event loop."""
    chance = random.Random(f"{seed}/{number}")
    found: list[str] = []
    cut = 0
    for n in range(RUNS):
        drawn = random.Random(chance.random())
        unlike, was_cut = anyio.run(_cancelled, drawn, backend=("asyncio", "trio")[n % 2])
        found += [f"share {number}, run {n}: {each}" for each in unlike]
        cut += was_cut
    return Share({"runs cancelled from outside": RUNS, "before their end": cut}, found)


async def _cancelled(chance: random.Random) -> tuple[list[str], bool]:
    """What is wrong with the event log of a run whose caller was cancelled, and whether that was before its end."""
    store, adapter = MemoryStore(), FakeAdapter([_step(chance, n) for n in range(chance.randrange(8))])
    policies = parse_policies(_ASKING % chance.choice(_ACTIONS))
    way = _run_once if chance.random() < 0.5 else _supervised
    use = partial(way, store, adapter, policies, chance.random() < 0.5)
    with anyio.CancelScope() as caller:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_cancel_after, chance.randrange(MOST_CHECKPOINTS), caller)
            with suppress(PolicyViolationError):
                await use()
            tasks.cancel_scope.cancel()
    runs, sessions = await whole_record(store)
    found = list(wrong(runs, sessions, [f"ran {run.run_id} {call.id}" for run in runs for call in adapter.ran]))
    if adapter.closed != len(adapter.launches):
        found.append("a client was not released")
    return found, caller.cancelled_caught


def _step(chance: random.Random, n: int) -> Any:
    if chance.random() < 0.3:
        return MessageReceived(content="x")
    return Ask(id=f"c{n}", name=chance.choice(["read", "bash"]))


async def _run_once(store: MemoryStore, adapter: FakeAdapter, policies: Any, answer: bool) -> None:
    await run_once(adapter, "go", policies=policies, store=store, approver=FakeApprover(answer), session_id="s")


async def _supervised(store: MemoryStore, adapter: FakeAdapter, policies: Any, answer: bool) -> None:
    async with Supervisor(store, approver=FakeApprover(answer)) as supervisor:
        await (await supervisor.start(adapter, "go", policies=policies, session_id="s")).wait()


async def _cancel_after(checkpoints: int, scope: anyio.CancelScope) -> None:
    for _ in range(checkpoints):
        await anyio.lowlevel.checkpoint()
    scope.cancel()
