"""The shipped conformance suites fail broken adapters and stores, and pass correct ones."""

import inspect
import unittest
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from proctor.adapters import FunctionAdapter
from proctor.policies import Capabilities, ToolCall
from proctor.policies.events import Event, ToolCallCompleted, ToolCallFailed, ToolOutcome
from proctor.supervisor import GateAnswer, Launch, MemoryStore, Provider, RunInfo, Store
from proctor.supervisor.errors import ProviderError, UnknownSessionError
from proctor.supervisor.testing import FakeAdapter
from proctor.supervisor.testing.adapter_fixture import Agent
from proctor.supervisor.testing.suites import AdapterConformance, StoreConformance
from tests.adapters.agents.loop.test_conformance import Loops

Gate = Callable[[ToolCall], Any]
Stream = AsyncIterator[Event]


class Wrapped:
    """An adapter with one part replaced: its gate, its stream, or its declared capabilities."""

    def __init__(self, inner: FunctionAdapter, **broken: Any) -> None:
        self._inner = inner
        self._broken = broken
        self.name = inner.name
        self.gates: list[Gate] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    @property
    def capabilities(self) -> Capabilities:
        return replace(self._inner.capabilities, **self._broken.get("declares", {}))

    @asynccontextmanager
    async def open(self, launch: Launch) -> AsyncIterator[Provider]:
        self.gates.append(launch.gate)
        gate = self._broken.get("gate")
        if gate is not None:
            real = launch.gate
            launch = replace(launch, gate=lambda call: gate(self, real, call))
        async with self._inner.open(launch) as provider:
            stream = self._broken.get("stream")
            yield provider if stream is None else _Streaming(provider, stream)


class _Streaming:
    def __init__(self, provider: Provider, stream: Callable[[Stream], Stream]) -> None:
        self._provider = provider
        self._stream = stream
        self.cancel_steps = provider.cancel_steps

    def events(self) -> Stream:
        return self._stream(self._provider.events())


class BrokenLoops(Loops):
    """Loops that write files, behind the broken part."""

    broken: dict[str, Any]

    def _agent(self, loop: Any) -> Agent:
        return Agent(Wrapped(FunctionAdapter(loop), **self.broken))


def found_by(suite: type[Any], prepare: Callable[[Any], None]) -> tuple[list[str], list[str]]:
    """The tests of a suite that fail, and those that are skipped."""
    failed, skipped = [], []
    for name, test in inspect.getmembers(suite, inspect.isfunction):
        if not name.startswith("test_"):
            continue
        instance = suite()
        prepare(instance)
        try:
            if inspect.iscoroutinefunction(test):
                anyio.run(test, instance)
            else:
                test(instance)
        except unittest.SkipTest:
            skipped.append(name)
        except Exception:
            failed.append(name)
    return failed, skipped


def in_folders(tmp_path: Path, broken: dict[str, Any]) -> Callable[[BrokenLoops], None]:
    count = iter(range(1000))

    def prepare(suite: BrokenLoops) -> None:
        suite.broken = broken
        suite.workspace = tmp_path / str(next(count))
        suite.workspace.mkdir()

    return prepare


def loops(tmp_path: Path, **broken: Any) -> list[str]:
    """The tests that fail for these loops."""
    return found_by(BrokenLoops, in_folders(tmp_path, broken))[0]


def test_a_correct_adapter_passes(tmp_path: Path) -> None:
    """Otherwise the tests below would prove nothing."""
    assert loops(tmp_path) == []


async def other_input(self: Wrapped, real: Gate, call: ToolCall) -> GateAnswer:
    """The gate gets another input than the tool."""
    answer: GateAnswer = await real(replace(call, input={"path": "harmless"}))
    return answer


async def shared_gate(self: Wrapped, real: Gate, call: ToolCall) -> GateAnswer:
    """Every run uses the gate of the run that was started last."""
    answer: GateAnswer = await self.gates[-1](call)
    return answer


async def first_gate(self: Wrapped, real: Gate, call: ToolCall) -> GateAnswer:
    """Every run uses the gate of the run that was started first."""
    answer: GateAnswer = await self.gates[0](call)
    return answer


async def turnless(self: Wrapped, real: Gate, call: ToolCall) -> GateAnswer:
    """All calls have turn 0, although turns are reported."""
    answer: GateAnswer = await real(replace(call, turn=0))
    return answer


async def swallowing(self: Wrapped, real: Gate, call: ToolCall) -> GateAnswer:
    """A cancel during a pending call is treated as a denial, and the run completes."""
    try:
        answer: GateAnswer = await real(call)
    except BaseException:
        return GateAnswer(allowed=False, tell_model="no")
    return answer


async def without_failures(events: Stream) -> Stream:
    """Failed calls have no outcome."""
    async for event in events:
        if not isinstance(event, ToolCallFailed):
            yield event


async def completed_failures(events: Stream) -> Stream:
    """Failed calls are reported as completed."""
    async for event in events:
        if isinstance(event, ToolCallFailed):
            yield ToolCallCompleted(tool_call_id=event.tool_call_id, tool_name=event.tool_name, tool_output="")
        else:
            yield event


def delayed_events(which: Callable[[Event], bool], *, last_first: bool = False) -> Callable[[Stream], Stream]:
    """Some events come only at the end."""

    async def stream(events: Stream) -> Stream:
        kept: list[Event] = []
        async for event in events:
            if which(event):
                kept.append(event)
                continue
            if event.type == "run_completed":
                for late in reversed(kept) if last_first else kept:
                    yield late
            yield event

    return stream


def is_outcome(event: Event) -> bool:
    return isinstance(event, ToolOutcome)


def is_usage(event: Event) -> bool:
    """Of an adapter that declares `per_turn`."""
    return event.type == "token_usage_updated"


async def two_ends(events: Stream) -> Stream:
    async for event in events:
        yield event
        if event.type == "run_completed":
            yield event


BROKEN: dict[str, dict[str, Any]] = {
    **{gate.__name__: {"gate": gate} for gate in (other_input, shared_gate, first_gate, turnless, swallowing)},
    "without failures": {"stream": without_failures},
    "failures as completions": {"stream": completed_failures},
    "late outcomes": {"stream": delayed_events(is_outcome)},
    "reversed outcomes": {"stream": delayed_events(is_outcome, last_first=True)},
    "usage at the end": {"stream": delayed_events(is_usage)},
    "two ends": {"stream": two_ends},
    **{f"declares {declared}": {"declares": declared} for declared in (*({"narrow": False},
        {"cancel_kills_children": True}, {"gate": "some"}, {"gate": "none"}),
        *({"rewrite": False}, {"usage": "at_end"}, {"usage": "none"}, {"reports_cost": True}),
        *({"deny_ends_turn": True}, {"resume": True}, {"compiles": ("deny",)}))},
}  # fmt: skip
"""Adapters that propose another call than they run, report what did not happen, or declare a capability they lack."""


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_a_broken_adapter_is_caught(tmp_path: Path, broken: dict[str, Any]) -> None:
    """At least one test of the suite fails. A declared capability that no test can exercise fails too."""
    assert loops(tmp_path, **broken) != []


class Remembering(AdapterConformance):
    """An agent that is asked to resume a session that does not exist."""

    error: Exception | None = None

    def making(self, *files: str, together: bool = False) -> Agent:
        return Agent(FakeAdapter(capabilities=Capabilities(gate="all", resume=True), lacking=self.error))


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("error", "caught"),
    [(None, AssertionError), (ProviderError("no network"), ProviderError), (UnknownSessionError("gone"), None)],
    ids=["opened all the same", "another error", "said so"],
)
async def test_an_adapter_that_does_not_report_a_missing_session_is_caught(
    tmp_path: Path, error: Exception | None, caught: type[Exception] | None
) -> None:
    """Otherwise the session could not be restarted, or would be after another failure."""
    suite = Remembering()
    suite.workspace, suite.error = tmp_path, error
    with nullcontext() if caught is None else pytest.raises(caught):
        await suite.test_a_session_that_the_agent_does_not_have_is_said_so_before_it_begins()


class OnlyMaking(BrokenLoops):
    """An author who defines only `making`."""

    without = frozenset()

    erring = silent = failing = using = offering = lambda self: None  # type: ignore[assignment]


def test_parts_that_an_author_left_out_are_skipped_or_fail(tmp_path: Path) -> None:
    """A test that started nothing does not pass. A capability that is declared and not exercised fails."""
    failed, skipped = found_by(OnlyMaking, in_folders(tmp_path, {}))

    assert "test_the_model_is_offered_what_could_be_called_or_everything" in failed
    assert "test_usage_reports_add_up" in failed
    assert "test_a_call_that_fails_is_reported_as_failed_once" in skipped
    assert "test_it_can_be_cancelled_while_a_call_runs" in skipped
    assert len(skipped) >= 6


class Torn(MemoryStore):
    """A cancelled append stores one event of three."""

    async def append(self, events: Sequence[Event], **owned: Any) -> list[Event]:
        first = await super().append(events[:1], **owned)
        await anyio.lowlevel.checkpoint()
        return first + await super().append(events[1:], **owned)


class LimitFirst(MemoryStore):
    """A limit is applied before the session's filter."""

    async def runs(self, **filters: Any) -> list[RunInfo]:
        session_id = filters.pop("session_id", None)
        found = await super().runs(**filters)
        return [run for run in found if session_id in (None, run.session_id)]


class Hasty(MemoryStore):
    """`wait` returns at once."""

    async def wait(self, token: int, timeout_s: float) -> int:
        return await super().wait(token, 0)


def stores(made: Callable[[], Store]) -> list[str]:
    """The tests that fail for a store."""

    class Suite(StoreConformance):
        def open_store(self) -> AbstractAsyncContextManager[Store]:
            return made()  # type: ignore[return-value]

    return found_by(Suite, lambda suite: None)[0]


def test_the_memory_store_passes() -> None:
    """Otherwise the tests below would prove nothing."""
    assert stores(MemoryStore) == []


@pytest.mark.parametrize("broken", [Torn, LimitFirst, Hasty])
def test_a_broken_store_is_caught(broken: type[MemoryStore]) -> None:
    """At least one test of the suite fails."""
    assert stores(broken) != []
