"""`runs`: its columns, its filters, and its pages."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest

from proctor.adapters.cli.live import EventLines
from proctor.adapters.kit.display_text import amount, took
from proctor.adapters.stores import SQLiteStore
from proctor.policies.events import PolicyViolated, RunCompleted, RunStarted, ToolApprovalRequested, ToolCallStarted
from proctor.supervisor.ports.stored_types import RunInfo

AT = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)


async def fill(path: Path) -> None:
    """Three ended runs of two tenants, and one that was only created."""
    async with SQLiteStore(path) as store:
        for n in range(3):
            ids: Any = {"run_id": f"run_{n}", "session_id": f"ses_{n}", "provider": "claude"}
            labels = {"env": "prod" if n else "dev"}
            spec = {"prompt": f"Fix it, please {n}", "context": {"tenant": f"t{n % 2}", "labels": labels}}
            await store.create_run(RunInfo(created_at=AT, spec=spec, **ids))
            await store.append(
                [
                    RunStarted(at=AT + timedelta(hours=n), **ids),
                    *(ToolCallStarted(tool_call_id=f"c{call}", tool_name="bash", **ids) for call in range(n)),
                    PolicyViolated(**ids),
                    RunCompleted(
                        at=AT + timedelta(hours=n, seconds=75),
                        usage={"input_tokens": 12_345, "output_tokens": 5, "cost_usd": 0.5},
                        **ids,
                    ),
                ]
            )
        await store.create_run(RunInfo(run_id="run_new", session_id="ses_new", created_at=AT))


@pytest.fixture
def listed(cli: Any, place: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("PROCTOR_STORE", str(place / "some.db"))
    anyio.run(fill, place / "some.db")
    return lambda *arguments: cli("runs", *arguments)


def test_a_line_has_the_outcome_the_duration_and_the_usage(listed: Any) -> None:
    """Columns without values are omitted."""
    title, _, line, *_ = (line for line in listed().out.splitlines() if not line.startswith("  "))

    assert title.split() == [
        *("run", "status", "agent", "tenant", "started", "(UTC)", "took", "calls", "violations", "tokens", "cost")
    ]
    assert line.split() == [
        *("run_2", "completed", "claude", "t0", "2026-01-02", "05:04", "1m15s", "2", "1", "12.3k", "$0.50")
    ]
    assert "cost" not in listed("--status", "created").out


@pytest.mark.parametrize(("given", "expected"), [
    (("--status", "completed", "--status", "failed"), "run_2 run_1 run_0"),
    (("--tenant", "t0"), "run_2 run_0"),
    (("--label", "env=prod"), "run_2 run_1"),
    (("--label", "env=prod", "--tenant", "t1"), "run_1"),
    (("--agent", "codex"), ""),
    (("--since", "2026-01-02T04:04", "--until", "2026-01-02T05:04"), "run_1"),
    (("--since", "2026-01-02T06:04+02:00"), "run_2 run_1"),
    (("--since", "1h"), ""),
    (("--since", "2h ago"), ""),
    (("--since", "999999w"), "run_new run_2 run_1 run_0"),
    (("--before", "run_2"), "run_1 run_0"),
    (("--session", "ses_1"), "run_1"),
    (("--limit", "1", "--before", "run_1"), "run_0"),
])  # fmt: skip
def test_runs_are_filtered(listed: Any, given: tuple[str, ...], expected: str) -> None:
    """By all given filters, newest first."""
    assert [line["run_id"] for line in listed("--json", *given).lines] == expected.split()


def test_json_has_every_value_and_a_truncated_list_says_how_to_continue(listed: Any) -> None:
    """As stored, with the duration in milliseconds. The note is on standard error, and only if the list
    is truncated.
    """
    [line] = listed("--json", "--session", "ses_2").lines

    assert (line["calls"], line["violations"], line["duration_ms"]) == (2, 1, 75_000)
    assert (line["usage"]["input_tokens"], line["usage"]["cost_usd"]) == (12_345, 0.5)
    assert (line["tenant"], line["labels"], line["started_seq"], line["ended_seq"]) == ("t0", {"env": "prod"}, 1, 5)
    assert listed("--limit", "2").err == "older ones: `--before run_2`, or a larger `--limit`\n"
    assert listed("--limit", "4").err == ""


def test_the_command_that_answers_an_approval_names_the_store() -> None:
    """It can be copied, and has no password."""
    event = ToolApprovalRequested(run_id="run_1234567890", tool_call_id="a", tool_name="pay", approval_id="run_123.1")

    def shown(store: str | None) -> str:
        return str(EventLines(store=store).of(event)).partition("proctor approve ")[2]

    assert shown(None) == "run_123.1"
    assert shown("my runs.db") == "run_123.1 --store 'my runs.db'"
    assert shown("postgresql://ana:secret@h/d") == "run_123.1 --store postgresql://ana@h/d"


def test_times_and_counts_are_short() -> None:
    """At most two units and five characters."""
    assert [took(ms) for ms in (7, 1_500, 59_960, 61_000, 3_700_000, 200_000_000)] == [
        *("7ms", "1.5s", "60.0s", "1m01s", "1h01m", "2d07h")
    ]
    assert [amount(n) for n in (0, 999, 1_000, 99_940, 99_960, 999_499, 999_500, 2_500_000_000)] == [
        *("0", "999", "1.0k", "99.9k", "100k", "999k", "1.0M", "2.5G")
    ]


AGENT = """
name: agent
tools: [lint, deploy]
steps: [{call: lint, input: {}}, {call: deploy, input: {}}, {call: lint, input: {}}, {call: lint, input: {}}]
"""
ORDER = """
name: order
on_violation: deny
rules: [{type: before, first: test, then: deploy}]
"""


def test_show_numbers_the_command_that_failed_among_all_calls(cli: Any, place: Path) -> None:
    """While the run is active, the number of the call; afterwards also the total, including the failed one."""
    (place / "agent.yaml").write_text(AGENT)
    (place / "order.yaml").write_text(ORDER)
    live = cli("run", "--adapter", "scripted", "--set", "script=agent.yaml", "--policy", "order.yaml", "go").out

    assert "`test` never completed (call 2); expected" in " ".join(live.split())
    assert "`test` never completed (call 2 of 4); expected" in " ".join(cli("show", "last").out.split())
