"""The shipped conformance suite for adapters, on those that need nothing installed."""

from collections.abc import Sequence
from pathlib import Path

import anyio
import psutil
import pytest

from proctor.adapters import FallbackAdapter, ReplayAdapter, ScriptedAdapter, ShellAdapter
from proctor.policies import Allow, Policy, ToolCall, Usage
from proctor.policies import events as ev
from proctor.supervisor import GateAnswer, ProviderUnavailableError
from proctor.supervisor.testing import FakeAdapter
from proctor.supervisor.testing.adapter_fixture import Agent, Drive
from proctor.supervisor.testing.suites import AdapterConformance

pytestmark = pytest.mark.anyio

STAY = "trap '' TERM HUP; setsid sleep 73001 & (setsid sleep 73001 &); touch up; sleep 73001"


class Placed(AdapterConformance):
    """Runs every test in its own directory."""

    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path) -> None:
        self.workspace = tmp_path


class TestScriptedAdapter(Placed):
    """A script, with gated calls."""

    row: str | None = "scripted"
    gated = True
    without = frozenset({"delegating", "offering"})

    def making(self, *files: str, together: bool = False) -> Agent:
        calls = [{"call": "bash", "input": {"command": f"touch {file}"}} for file in files]
        return self._agent([{"parallel": calls}] if together else calls)

    def staying(self) -> Agent:
        return self._agent([{"call": "bash", "input": {"command": STAY}}])

    def silent(self) -> Agent:
        return self._agent([{"say": "hm"}, {"silence": "forever"}])

    def using(self) -> tuple[Agent, Usage]:
        """Deltas, then a cumulative report."""
        steps = [
            {"usage": {"input_tokens": 10, "output_tokens": 2, "cost_usd": 0.5}},
            {"usage": {"input_tokens": 5, "cache_read_tokens": 4}},
            {"usage": {"scope": "cumulative", "input_tokens": 20, "output_tokens": 2, "cache_read_tokens": 4}},
        ]
        return self._agent(steps), Usage(input_tokens=20, output_tokens=2, cache_read_tokens=4, cost_usd=0.5)

    def erring(self) -> Agent:
        return self._agent([{"call": "bash", "input": {"command": "exit 3"}}])

    def failing(self) -> Agent:
        return self._agent([{"say": "x"}, {"fail": "no more"}])

    def _agent(self, steps: Sequence[object]) -> Agent:
        return Agent(ScriptedAdapter({"steps": [*steps]}, gated=self.gated, workspace=self.workspace))


class TestUngatedScriptedAdapter(TestScriptedAdapter):
    """The same without a gate."""

    row = None
    gated = False


class TestFallbackAdapter(TestScriptedAdapter):
    """A script as the fallback of an agent that can't be started."""

    row = None
    without = TestScriptedAdapter.without | {"mixing"}

    def failing(self) -> Agent:
        return self._agent([{"call": "bash", "input": {"command": "true"}}, {"fail": "no more"}])

    def _agent(self, steps: Sequence[object]) -> Agent:
        script = ScriptedAdapter({"steps": [*steps]}, workspace=self.workspace)
        missing = ProviderUnavailableError("it is not installed")
        absent = FakeAdapter([], unavailable=missing, capabilities=script.capabilities)
        return Agent(FallbackAdapter([absent, script]))


class TestShellAdapter(Placed):
    """A command line, denied as a whole if any part is."""

    row: str | None = "shell"
    all_or_nothing = True
    without = frozenset({"delegating", "failing", "offering", "silent", "using"})

    def making(self, *files: str, together: bool = False) -> Agent:
        return Agent(ShellAdapter(cwd=self.workspace), "; ".join(f"touch {file}" for file in files))

    def staying(self) -> Agent:
        return Agent(ShellAdapter(cwd=self.workspace), STAY)

    def erring(self) -> Agent:
        return Agent(ShellAdapter(cwd=self.workspace), "false")

    async def test_what_is_seen_only_when_it_runs_needs_an_allow_list_that_names_it(self) -> None:
        """Otherwise it does not run, although the gate allows everything."""
        agent = Agent(ShellAdapter(cwd=self.workspace), "a=alpha; eval touch $a")
        await self.run(agent)
        assert self.made() == []
        allowing = Policy(name="p", tool_rules=(Allow(("eval", "bash", "dynamic")),))
        await self.run(agent, options=agent.adapter.compile(allowing))

        assert self.made() == ["alpha"]
        self.saw_compiled(agent.adapter.capabilities, "allow dynamic")


class TestReplayAdapter(Placed):
    """A recording; its calls have no effects."""

    row: str | None = "replay"
    acts = False
    gated = True
    without = frozenset({"failing", "offering", "silent", "staying"})

    def making(self, *files: str, together: bool = False) -> Agent:
        events: list[ev.Event] = []
        for n, file in enumerate(files):
            turn = 1 if together else n + 1
            command = {"command": f"touch {file}"}
            events.append(ev.TurnStarted(turn=turn))
            events.append(ev.ToolCallStarted(tool_call_id=file, tool_name="bash", tool_input=command, turn=turn))
            events.append(ev.ToolCallCompleted(tool_call_id=file, tool_name="bash", tool_output=""))
        return Agent(ReplayAdapter(events, gated=self.gated))

    def erring(self) -> Agent:
        events = [
            ev.ToolCallStarted(tool_call_id="c", tool_name="bash", tool_input={"command": "x"}, turn=1),
            ev.ToolCallFailed(tool_call_id="c", tool_name="bash", error="boom"),
        ]
        return Agent(ReplayAdapter(events, gated=self.gated))

    def delegating(self, file: str) -> Agent | None:
        calls = [("task", None), (file, "task")]
        events = [
            ev.ToolCallStarted(tool_call_id=call, tool_name="x", turn=1, parent_tool_call_id=parent)
            for call, parent in calls
        ]
        return Agent(ReplayAdapter(events)) if self.gated else None

    async def test_it_can_be_cancelled_while_a_call_runs(self) -> None:
        """A recording runs none."""
        before = psutil.Process().children(recursive=True)
        held: list[psutil.Process] = []

        async def hold(call: ToolCall) -> GateAnswer:
            held.extend(psutil.Process().children(recursive=True))
            drive.cancel()
            await anyio.sleep_forever()
            raise AssertionError

        agent = self.making("alpha")
        drive = Drive(agent.adapter, answer=hold)
        await drive.run()

        self.saw(agent.adapter.capabilities, cancel_kills_children=not set(held) - set(before))

    def using(self) -> tuple[Agent, Usage]:
        """Recorded reports."""
        events = [
            ev.TokenUsageUpdated(input_tokens=1),
            ev.MessageReceived(content="x"),
            ev.TokenUsageUpdated(output_tokens=2),
        ]
        return Agent(ReplayAdapter(events)), Usage(input_tokens=1, output_tokens=2)


class TestObservingReplayAdapter(TestReplayAdapter):
    """The same without a gate."""

    without = TestReplayAdapter.without | {"delegating"}
    row = None
    gated = False
