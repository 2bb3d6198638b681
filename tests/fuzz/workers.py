"""A worker of the chaos run, as a separate process: `python -m tests.fuzz.workers STORE LEASE_S SLOW BACKEND`.

It executes the created runs of the store, several at a time, in competition with the other workers. Lines written:
`working`, `ack SESSION SEQ RUN TYPE` for each stored event, `ran RUN CALL` for each call that really ran. While the
file SLOW exists, every commit takes 7 seconds: the events are stored, and the answer is late.
"""

import os
import random
import sys
from pathlib import Path
from typing import Any, Final

import anyio

from proctor.adapters.stores import PostgresStore, SQLiteStore
from proctor.adapters.stores.store_names import is_url
from proctor.policies import RunContext, parse_policies
from proctor.policies.events import Event, MessageReceived, TokenUsageUpdated
from proctor.supervisor import ProctorError, RunFilter, Supervisor
from proctor.supervisor.control import ownership
from proctor.supervisor.testing import Ask, FakeAdapter
from tests.whole_records import place_of

MOST_CALLS: Final = 12
MOST_USD: Final = 0.5
DEAREST_USD: Final = 0.05
AT_ONCE: Final = 4
SLOW_S: Final = 7.0
POLICIES: Final = f"""
name: shared
approval: {{timeout_s: 20}}
budgets:
  - {{name: calls, max_tool_calls: {MOST_CALLS}, per: $.tenant, action: deny}}
  - {{name: money, max_cost_usd: {MOST_USD}, reserve: {DEAREST_USD}, per: $.tenant}}
rules:
  - {{type: blocklist, tools: [write], action: request_approval}}
"""


class SlowCommits:
    """A store whose commits are slow while a file exists."""

    slow = Path()

    async def append(self, *given: Any, **more: Any) -> Any:
        answer = await super().append(*given, **more)  # type: ignore[misc]
        if self.slow.exists():
            await anyio.sleep(SLOW_S)
        return answer


class SlowFile(SlowCommits, SQLiteStore):
    pass


class SlowServer(SlowCommits, PostgresStore):
    pass


def name_of(number: int) -> tuple[str, str]:
    """The id of the n-th run, and that of its session."""
    return f"r{number}", f"s{number // 3}"


def tenant_of(run_id: str) -> str:
    """Its tenant: some concurrent sessions share one tenant's budgets."""
    return f"t{int(run_id[1:]) // 12}"


def agent(run_id: str) -> FakeAdapter:
    """A run's actions are drawn from its name; each of its messages and usage reports is unique."""
    chance = random.Random(run_id)

    def call(n: int) -> Ask:
        async def runs() -> None:
            os.write(1, f"ran {run_id} c{n}\n".encode())
            await anyio.sleep(chance.random() / 20)

        return Ask(id=f"c{n}", name="write" if chance.random() < 0.2 else "read", meanwhile=runs)

    steps: list[Any] = []
    for n in range(chance.randint(1, 4)):
        usd = round(chance.uniform(0.01, DEAREST_USD), 3)
        steps += [MessageReceived(content=f"m{n}"), TokenUsageUpdated(input_tokens=n + 1, cost_usd=usd), call(n)]
    return FakeAdapter(steps, rung_s=0.2)


def acknowledge(event: Event) -> None:
    """Published events are stored."""
    os.write(1, f"ack {place_of(event)}\n".encode())


async def work(place: str, lease_s: float, slow: Path) -> None:
    """Execute runs until killed."""
    ownership.LEASE_S, ownership.RENEW_S = lease_s, lease_s / 4
    SlowCommits.slow = slow
    store = SlowServer(place, patience_s=20) if is_url(place) else SlowFile(place, busy_timeout_s=20)
    async with store, Supervisor(store, publishers=[acknowledge]) as supervisor, anyio.create_task_group() as tasks:
        os.write(1, b"working\n")
        for _ in range(AT_ONCE):
            tasks.start_soon(_one_after_another, store, supervisor)


async def _one_after_another(store: Any, supervisor: Supervisor) -> None:
    policies, token = parse_policies(POLICIES), 0
    while True:
        try:
            created = await store.runs(where=RunFilter(status=frozenset(("created",))), limit=20)
            if not created:
                token = await store.wait(token, 1)
                continue
            run = random.choice(created)
            context = RunContext(tenant=tenant_of(run.run_id))
            handle = await supervisor.execute(agent(run.run_id), run.run_id, policies=policies, context=context)
            await handle.wait_finished()
        except (
            ProctorError
        ):  # another was quicker or has its session, its budget is exhausted, or the store is unavailable
            await anyio.sleep(0.05)


if __name__ == "__main__":
    anyio.run(work, sys.argv[1], float(sys.argv[2]), Path(sys.argv[3]), backend=sys.argv[4])
