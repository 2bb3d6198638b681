"""The shipped conformance suite for adapters, on the real Claude Code with a scripted model."""

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from scenes import Scenes

from proctor.policies.events.run_context import Usage
from proctor.supervisor.testing import damaged_output
from proctor.supervisor.testing.adapter_fixture import AdapterChecks, Agent
from proctor.supervisor.testing.adapter_lifecycle import CrashingChecks
from proctor.supervisor.testing.suites import AdapterConformance

SLEEP = "tail -f /dev/null --sleep-interval=73003"
STAY = f"trap '' TERM HUP; setsid {SLEEP} & (setsid {SLEEP} &); touch up; {SLEEP}"
Replies = list[Callable[[], Any]]


def scenes_of(api: Any) -> Scenes[Replies]:
    """Conversations over the Messages API: each request of the model gets the next reply."""

    def due(replies: Replies | None, steps: int) -> Any:
        return replies[steps]() if replies and steps < len(replies) else api.reply(api.text("end"))

    return Scenes(
        api,
        messages="messages",
        step=lambda message: message["role"] == "assistant",
        due=due,
        otherwise=lambda _: api.reply(api.text("ok"), input_tokens=0, output_tokens=0),
    )


class Claude(AdapterChecks):
    """Agents that run real commands."""

    has_client = True
    without = frozenset({"offering"})

    @pytest.fixture(autouse=True)
    def place(self, bench: Any, tmp_path: Path) -> None:
        self.bench = bench
        self.scratch = tmp_path
        self.workspace = bench.cwd
        self.scenes = scenes_of(bench.api)

    def making(self, *files: str, together: bool = False) -> Agent:
        return self._agent(self._commands(*files, together=together))

    def delegating(self, file: str) -> Agent:
        api, inner = self.bench.api, self.scenes.add(self._commands(file))
        start = {"description": "d", "prompt": inner, "subagent_type": "general-purpose", "run_in_background": False}
        outer = self.scenes.add([lambda: api.reply(api.tool("Agent", **start))])
        return Agent(self.bench.adapter("Bash", "Agent"), outer)

    def erring(self) -> Agent:
        return self._agent([lambda: self.bench.api.reply(self.bench.api.bash("exit 3"))])

    def staying(self) -> Agent:
        return self._agent([lambda: self.bench.api.reply(self.bench.api.bash(STAY))])

    def silent(self) -> Agent:
        api = self.bench.api
        reply = api.reply(api.text("hm"), hold=threading.Event())
        api.say(reply)
        return self._agent([lambda: reply])

    def using(self) -> tuple[Agent, Usage]:
        """Two responses, with cached input."""
        api = self.bench.api
        first: Callable[[], Any] = lambda: api.reply(api.bash("touch a"), input_tokens=100, cache_read=40)  # noqa: E731
        second: Callable[[], Any] = lambda: api.reply(api.text("x"), input_tokens=10, output_tokens=5)  # noqa: E731
        cost: Any = pytest.approx(110 * 3e-6 + 40 * 0.3e-6 + 25 * 15e-6)
        used = Usage(input_tokens=150, output_tokens=25, cache_read_tokens=40, cost_usd=cost)
        return self._agent([first, second]), used

    def failing(self) -> Agent:
        return self._agent([lambda: self.bench.api.reply(status=400)])

    def garbling(self, *files: str) -> Agent:
        return self._agent(self._commands(*files), cli_path=self.bench.stand_in(damaged_output.garbled))

    def truncating(self, *, lives: bool = False) -> Agent:
        cut = partial(damaged_output.cut, mark="tool_use", lives=lives)
        return self._agent(self._commands("alpha"), cli_path=self.bench.stand_in(cut))

    def _commands(self, *files: str, together: bool = False) -> Replies:
        api = self.bench.api

        def reply(*names: str) -> Callable[[], Any]:
            return lambda: api.reply(*(api.bash(f"touch {name}") for name in names))

        return [reply(*files)] if together else [reply(file) for file in files]

    def _agent(self, replies: Replies, **options: Any) -> Agent:
        return Agent(self.bench.adapter(**options), self.scenes.add(replies))


@pytest.mark.claude
@pytest.mark.anyio
class TestClaudeAdapter(Claude, AdapterConformance):
    """The whole suite. Tests that depend on the backend also run below."""

    row = "claude"

    @pytest.fixture
    def anyio_backend(self) -> str:
        return "asyncio"

    async def test_tokens_and_usd_past_launch_options_end_the_run(self) -> None:
        """The limit on output is one for each response, so the model is limited."""
        await super().test_tokens_and_usd_past_launch_options_end_the_run()

        assert min(request["max_tokens"] for request in self.scenes.requests) == 1
        self.saw_compiled(self.bench.adapter().capabilities, "max_output_tokens")


@pytest.mark.claude
@pytest.mark.anyio
class TestDyingClaude(Claude, CrashingChecks):
    """Every way in which the client dies, also on trio; `test_ending` cancels it there."""
