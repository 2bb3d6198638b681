"""What lists say of runs, and which runs a list is asked for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from proctor.policies.stream.calls import Usage
from proctor.policies.stream.events import (
    PolicyViolated,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunStarted,
    TokenUsageUpdated,
    ToolCallStarted,
)
from proctor.supervisor.ports.adapters import RunFilter, RunInfo, Store

from .checks import StoreChecks, message, run_of

_BEGAN = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)


async def _line(store: Store, run_id: str) -> RunInfo:
    """The run, as `run` and as `runs` give it."""
    found = await run_of(store, run_id)
    assert [run for run in await store.runs() if run.run_id == run_id] == [found]
    return found


async def _names(store: Store, *, limit: int = 100, before: str | None = None, **where: Any) -> str:
    return " ".join(run.run_id for run in await store.runs(limit=limit, before=before, where=RunFilter(**where)))


class ListingChecks(StoreChecks):
    """What lists say of runs, and which runs a list is asked for."""

    async def test_the_line_of_a_run_follows_its_events(self) -> None:
        """When it began and ended and where, its calls that ran, its violations."""
        ids: Any = {"run_id": "r", "session_id": "s"}
        other = message("s", "before")
        async with self.open_store() as store:
            await store.append([other, RunStarted(at=_BEGAN, provider="p", **ids)])
            first = await _line(store, "r")
            for call_id in "ab":
                call = ToolCallStarted(tool_call_id=call_id, tool_name="t", **ids)
                await store.append([call, PolicyViolated(**ids)])
            await store.append([ToolCallStarted(tool_call_id="d", tool_name="t", **ids)])
            await store.append([RunCompleted(at=_BEGAN + timedelta(seconds=2.5), **ids)])
            last = await _line(store, "r")

            assert (first.started_at, first.started_seq, first.ended_at, first.ended_seq) == (_BEGAN, 2, None, 0)
            assert (first.duration_ms, first.calls, first.violations) == (None, 0, 0)
            assert (last.started_seq, last.ended_seq, last.duration_ms) == (2, 8, 2500)
            assert (last.calls, last.violations) == (3, 2)

    async def test_what_a_run_used_is_what_was_reported_until_its_end_states_it(self) -> None:
        """Deltas add up, a cumulative figure stands for all before it; the end has the last word, for good."""
        ids: Any = {"run_id": "r", "session_id": "s"}
        figures: Any = {"input_tokens": 100, "output_tokens": 10, "cost_usd": 0.5}
        async with self.open_store() as store:
            await store.append([RunStarted(**ids), TokenUsageUpdated(input_tokens=3, cost_usd=0.25, **ids)])
            await store.append([TokenUsageUpdated(input_tokens=4, cache_read_tokens=2, **ids)])
            added = (await _line(store, "r")).usage
            report = TokenUsageUpdated(scope="cumulative", input_tokens=50, cost_usd=0.125, **ids)
            await store.append([report, TokenUsageUpdated(output_tokens=7, **ids)])
            raised = (await _line(store, "r")).usage
            await store.append([RunCancelled(usage={**figures, "reasoning_tokens": "x"}, **ids)])

            assert added == Usage(input_tokens=7, cache_read_tokens=2, cost_usd=0.25)
            assert raised == Usage(input_tokens=50, output_tokens=7, cache_read_tokens=2, cost_usd=0.25)
            assert (await _line(store, "r")).usage == Usage(cache_read_tokens=2, **figures)

    async def test_one_append_may_hold_a_whole_run_and_several_runs(self) -> None:
        """What it changes is the same as in many."""
        events = [
            event
            for n in range(3)
            for event in (
                ToolCallStarted(tool_call_id=f"c{n}", tool_name="t", run_id=f"r{n % 2}", session_id="s"),
                TokenUsageUpdated(input_tokens=n + 1, run_id=f"r{n % 2}", session_id="s"),
            )
        ]
        async with self.open_store() as store:
            await store.append([*events, RunFailed(run_id="r0", session_id="s")])
            found = {run.run_id: (run.calls, run.usage.input_tokens) for run in await store.runs()}

            assert found == {"r0": (2, 4), "r1": (1, 2)}

    async def test_a_repeated_event_is_counted_once(self) -> None:
        """An append that was tried again changes nothing."""
        call = ToolCallStarted(run_id="r", session_id="s", event_id="e", tool_call_id="c", tool_name="t")
        async with self.open_store() as store:
            for _ in range(3):
                await store.append([call, call])

            assert (await _line(store, "r")).calls == 1

    async def test_whose_a_run_is_stands_in_its_context(self) -> None:
        """Where it was created with one, else where it started; whatever else is in that place is nobody's."""
        context = {"tenant": "ac\x00me", "labels": {"env": "prod", "n": 3}}
        async with self.open_store() as store:
            await store.create_run(RunInfo(run_id="created", session_id="s", spec={"context": context}))
            late = {"context": {"tenant": "other", "labels": {"env": "late"}}}
            for run_id in ("created", "started"):
                await store.append([RunStarted(run_id=run_id, session_id="s", metadata=late)])
            odd = {"context": {"tenant": 7, "labels": ["env"]}}
            await store.append([RunStarted(run_id="odd", session_id="s", metadata=odd)])

            assert [(run.tenant, run.labels) for run in await store.runs()] == [
                (None, {}),
                ("other", {"env": "late"}),
                (context["tenant"], context["labels"]),
            ]

    async def test_a_list_has_the_runs_that_meet_all_that_is_given(self) -> None:
        """Status, tenant, labels, provider and when they began, alone and together, page by page."""
        async with self.open_store() as store:
            for n in range(6):
                labels = {"env": "prod" if n % 3 else "dev", "n": n, "on": n > 3, "none": None}
                context = {"tenant": f"t{n % 2}", "labels": labels}
                at = _BEGAN + timedelta(minutes=n)
                ids: Any = {"run_id": f"r{n}", "session_id": f"s{n % 2}"}
                await store.create_run(RunInfo(created_at=_BEGAN, spec={"context": context}, **ids))
                if n:
                    await store.append([RunStarted(at=at, provider="p" if n < 4 else "q", **ids)])
                if n > 3:
                    await store.append([RunCompleted(**ids)])

            assert await _names(store, status=frozenset(("created", "completed"))) == "r5 r4 r0"
            assert await _names(store, tenant="t1") == "r5 r3 r1"
            assert await _names(store, provider="p") == "r3 r2 r1"
            assert await _names(store, labels={"env": "prod"}) == "r5 r4 r2 r1"
            assert (
                await _names(store, labels={"n": "3"})
                == await _names(store, labels={"n": "3", "on": "false"})
                == "r3"
            )
            assert await _names(store, labels={"none": "null", "on": "true"}) == "r5 r4"
            assert await _names(store, labels={"missing": "null"}) == await _names(store, tenant="t") == ""
            assert await _names(store, since=_BEGAN + timedelta(minutes=4)) == "r5 r4"
            assert await _names(store, until=_BEGAN + timedelta(minutes=1)) == "r0"
            assert await _names(store, tenant="t1", labels={"env": "prod"}, limit=1) == "r5"
            assert await _names(store, tenant="t1", labels={"env": "prod"}, limit=1, before="r5") == "r1"
            assert await _names(store, begins="r") == "r5 r4 r3 r2 r1 r0"
            assert await _names(store, begins="r3") == "r3"
            assert await _names(store, begins="%") == await _names(store, begins="r33") == ""
            of_one = await store.runs(session_id="s0", where=RunFilter(provider="p"))
            assert [run.run_id for run in of_one] == ["r2"]
