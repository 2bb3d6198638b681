"""The shipped conformance suite for adapters, on the real Codex with a scripted model."""

import threading
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import pytest
from codex_bench import Reply
from scenes import Scenes

from proctor.policies.events.run_context import Capabilities, Usage
from proctor.supervisor.testing import damaged_output
from proctor.supervisor.testing.adapter_fixture import AdapterChecks, Agent
from proctor.supervisor.testing.adapter_lifecycle import CancellingChecks, CrashingChecks
from proctor.supervisor.testing.fakes import PATIENCE_S
from proctor.supervisor.testing.suites import AdapterConformance

SLEEP = "sleep 73004"
STAY = f"trap '' TERM HUP; setsid {SLEEP} & (setsid {SLEEP} &); touch up; {SLEEP}"
Script: TypeAlias = Sequence[Callable[[], Reply]]
"""The responses of one conversation."""


def real_client() -> str:
    """The path of the client in the package."""
    return str(import_module("codex_cli_bin").bundled_codex_path())


def scenes_of(api: Any) -> Scenes[Script]:
    """Conversations over the Responses API: the calls in a request show how far each has got."""

    def due(script: Script | None, calls: int) -> Any:
        for respond in script or ():
            reply = respond()
            if calls <= 0:
                return reply
            calls -= sum(item["type"] == "function_call" for item in reply.items)
        return Reply(api.text("end"))

    return Scenes(
        api, messages="input", step=lambda item: item["type"] == "function_call", due=due, otherwise=api.next_reply
    )


class Codex(AdapterChecks):
    """Agents that run real commands."""

    has_client = True
    in_order = False
    without = frozenset({"offering"})

    @pytest.fixture(autouse=True)
    def place(self, bench: Any, tmp_path: Path) -> None:
        self.bench = bench
        self.scratch = tmp_path
        self.workspace = bench.cwd
        self.scenes = scenes_of(bench.api)

    def making(self, *files: str, together: bool = False) -> Agent:
        return self._agent(*self._commands(*files, together=together))

    def delegating(self, file: str) -> Agent:
        api, answered = self.bench.api, threading.Event()

        def after_the_answer() -> Reply:
            answered.set()
            return Reply(api.text("done"))

        def wait() -> Reply:
            answered.wait(PATIENCE_S)
            return Reply(api.text("end"))

        inner = self.scenes.add([lambda: Reply(api.shell("inner", f"touch {file}")), after_the_answer])
        spawn = api.call("spawn", "spawn_agent", namespace="multi_agent_v1", message=inner)
        return self._agent(lambda: Reply(spawn), wait, features={"multi_agent": True})

    def saw_sub_agents(self, declared: Capabilities) -> None:
        super().saw_sub_agents(msgspec.structs.replace(declared, gate=self.bench.adapter().capabilities.gate))

    def erring(self) -> Agent:
        return self._agent(lambda: Reply(self.bench.api.shell("c1", "exit 3")))

    def staying(self) -> Agent:
        return self._agent(lambda: Reply(self.bench.api.shell("stay", STAY, yield_time_ms=30000)))

    def silent(self) -> Agent:
        return self._agent(lambda: Reply(self.bench.api.text("hm"), endless=True))

    def using(self) -> tuple[Agent, Usage]:
        """Two responses, with cached input and reasoning."""
        api = self.bench.api
        agent = self._agent(
            lambda: Reply(api.shell("c1", "touch a"), used=(100, 20), cached=40, reasoning=5),
            lambda: Reply(api.text("x"), used=(30, 3)),
        )
        return agent, Usage(input_tokens=130, output_tokens=23, cache_read_tokens=40, reasoning_tokens=5)

    def failing(self) -> Agent:
        return self._agent(lambda: Reply(status=400))

    def garbling(self, *files: str) -> Agent:
        return self._agent(*self._commands(*files), codex_path=self._program(damaged_output.garbled([real_client()])))

    def truncating(self, *, lives: bool = False) -> Agent:
        cut = damaged_output.cut([real_client()], "turn/started", lives=lives)
        return self._agent(*self._commands("alpha"), codex_path=self._program(cut))

    def _commands(self, *files: str, together: bool = False) -> Script:
        calls = [self.bench.api.shell(f"call-{file}", f"touch {file}") for file in files]
        return [lambda: Reply(*calls)] if together else [partial(Reply, call) for call in calls]

    def _agent(self, *script: Callable[[], Reply], **options: Any) -> Agent:
        own_default = {"features.shell_snapshot": True}
        return Agent(self.bench.adapter(config=own_default, **options), self.scenes.add(script))

    def _program(self, command: list[str]) -> str:
        return str(damaged_output.as_program(self.scratch / "client", command))


@pytest.mark.codex
@pytest.mark.anyio
class TestCodexAdapter(Codex, AdapterConformance):
    """The whole suite. Tests that depend on the backend also run below."""

    row = "codex"

    @pytest.fixture
    def anyio_backend(self) -> str:
        return "asyncio"


@pytest.mark.codex
@pytest.mark.anyio
class TestEndingCodexOnTrio(Codex, CancellingChecks, CrashingChecks):
    """Every way to end a run."""
