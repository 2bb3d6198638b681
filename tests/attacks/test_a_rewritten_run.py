"""A run rewritten by SQL with valid digests: its usage and its calls must still be consistent."""

import json
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from calling import called
from postgres_server import either_store
from stored_rows import in_store

from proctor.adapters.stores.audit.audit import audited
from proctor.adapters.stores.store_names import is_url
from proctor.policies import Policy, parse_policies
from proctor.policies.events import TokenUsageUpdated
from proctor.supervisor import KillSwitch, Store, create_run, run_once
from proctor.supervisor.testing import Ask, FakeAdapter

Records: TypeAlias = list[dict[str, Any]]
empty = either_store


@pytest.fixture
def place(empty: str) -> str:
    """A store with one run of two calls that reported their usage."""

    async def recorded(store: Store) -> None:
        steps: list[TokenUsageUpdated | Ask] = [
            TokenUsageUpdated(input_tokens=100, output_tokens=10),
            Ask(name="bash", input={"command": "echo 1"}),
            Ask(name="bash", input={"command": "echo 2"}),
        ]
        policies = [Policy(name="open")]
        await run_once(FakeAdapter(steps), "go", policies=policies, store=store, session_id="s", run_id="r")

    in_store(empty, recorded)
    return empty


@pytest.mark.parametrize(
    "sums",
    [((0, 100, 0.5), (0, 150, 0.7)), ((0, 100, 0.5), (0, 20, 0.1)), ((0, 10, None), (0, 20, 0.9), (5, 30, 1.0))],
    ids=["over runs", "from zero", "costs from prices"],
)
def test_the_usage_of_the_runs_of_a_session_adds_up(empty: str, sums: Sequence[Any]) -> None:
    """Each run has its part of a total that continues over the session's runs. A run that never started has none."""
    priced = parse_policies({"name": "p", "prices": {"*": {"input_usd_per_mtok": 1000, "output_usd_per_mtok": 0}}})

    async def recorded(store: Store) -> None:
        given: Any = {"policies": priced, "store": store, "session_id": "s", "continuation": "replay"}
        for more, tokens, cost in sums:
            steps = [
                TokenUsageUpdated(scope="cumulative", input_tokens=tokens, cost_usd=cost, model="m"),
                TokenUsageUpdated(input_tokens=more, model="m"),
            ]
            await run_once(FakeAdapter(steps), "go", **given)
        await create_run(store, "go", run_id="r", session_id="s")
        await KillSwitch(store).kill(by="ana", run_id="r")

    in_store(empty, recorded)
    report = audited(empty)

    assert (report.intact, [finding.message for finding in report.findings]) == (True, [])


def nothing(records: Records) -> None: ...


def rewrite(place: str | Path, change: Callable[[Records], None] = nothing, *, session_id: str = "s") -> None:
    """Change the events of a session and recompute all digests, as an expert could."""
    if is_url(place):
        import psycopg

        connected: Any = psycopg.connect(str(place))
        connected.execute("SET search_path = proctor")
        mark = "%s"
    else:
        connected, mark = sqlite3.connect(place), "?"
    of_session = f"FROM events JOIN sessions ON key = session_key WHERE session_id = {mark}"
    update = f"UPDATE events SET type = {mark}, data = {mark}, digest = {mark} WHERE position = {mark}"
    with closing(connected) as connection:
        rows = connection.execute(f"SELECT position, data {of_session} ORDER BY seq", (session_id,)).fetchall()
        events = [json.loads(bytes(data)) for _, data in rows]
        change(events)
        digest = sha256(b"proctor record\0" + session_id.encode()).digest()
        for (position, _), event in zip(rows, events, strict=True):
            data = json.dumps(event, separators=(",", ":")).encode()
            digest = sha256(digest + data).digest()
            connection.execute(update, (event["type"], data, digest, position))
        connection.commit()


def of_type(records: Records, *types: str) -> Records:
    return [each for each in records if each["type"] in types]


def used_less(records: Records) -> None:
    """The reported usage is less than that in the run's end."""
    of_type(records, "token_usage_updated")[0]["input_tokens"] = 1


def used_more(records: Records) -> None:
    of_type(records, "token_usage_updated")[0]["input_tokens"] = 1_234_567


def made_another(record: dict[str, Any], other: dict[str, Any]) -> None:
    """Another event happened at that position."""
    own: dict[str, Any] = {name: record[name] for name in ("event_id", "seq", "at") if name in record}
    record.clear()
    record.update({**other, **own})


def started_again(records: Records) -> None:
    """The end of the first call becomes its start."""
    made_another(of_type(records, "tool_call_completed")[0], of_type(records, "tool_call_started")[0])


def ended_again(records: Records) -> None:
    """The end of the first call becomes the run's end, and the run continues."""
    made_another(of_type(records, "tool_call_completed")[0], of_type(records, "run_completed")[0])


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (nothing, set()),
        (used_less, {"adds_up"}),
        (used_more, {"adds_up"}),
        (started_again, {"started_twice"}),
        (ended_again, {"ended_twice", "after_the_end"}),
    ],
    ids=["nothing", "less", "more", "a second start", "a second end"],
)
def test_an_inconsistent_run_is_found(
    place: str, change: Callable[[Records], None], expected: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Although every digest is valid. The finding names the run's session, and the command fails."""
    rewrite(place, change)
    report = audited(place)
    answer = called(capsys, "audit", "verify", "--store", place)

    assert {finding.code for finding in report.findings} - {"list_changed"} == expected
    assert report.intact is not bool(expected)
    assert answer.code == (1 if expected else 0), answer
    assert all(finding.session_id == "s" for finding in report.findings)
    assert ("adds up to `1,234,567`" in answer.out) is (change is used_more)
