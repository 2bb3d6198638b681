"""The shipped conformance suite for adapters, on loops that are functions."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from proctor.adapters import FunctionAdapter, LoopGate, ToolRefused
from proctor.policies.events.run_context import Usage
from proctor.supervisor.testing.adapter_fixture import Agent
from proctor.supervisor.testing.suites import AdapterConformance


class Loops(AdapterConformance):
    """Loops whose tool writes files."""

    without = frozenset({"delegating", "staying"})

    def making(self, *files: str, together: bool = False) -> Agent:
        async def loop(gate: LoopGate, prompt: str) -> str:
            if together:
                async with anyio.create_task_group() as siblings:
                    for file in files:
                        siblings.start_soon(self._make, gate, file)
                        await checkpoint()
            else:
                for n, file in enumerate(files):
                    if n:
                        await gate.turn()
                    await self._make(gate, file)
            return "made"

        return self._agent(loop)

    def silent(self) -> Agent:
        async def loop(gate: LoopGate, prompt: str) -> None:
            await gate.message("hm")
            await anyio.sleep_forever()

        return self._agent(loop)

    def using(self) -> tuple[Agent, Usage]:
        """Deltas, and the run's total."""

        async def loop(gate: LoopGate, prompt: str) -> None:
            await gate.usage(input_tokens=10, output_tokens=2)
            await gate.turn()
            await gate.usage(input_tokens=25, output_tokens=4, cache_read_tokens=5, cumulative=True)

        return self._agent(loop), Usage(input_tokens=25, output_tokens=4, cache_read_tokens=5)

    def erring(self) -> Agent:
        async def burst() -> None:
            raise RuntimeError("burst")

        async def loop(gate: LoopGate, prompt: str) -> None:
            with suppress(RuntimeError):
                await gate.tool(burst)()

        return self._agent(loop)

    def failing(self) -> Agent:
        async def loop(gate: LoopGate, prompt: str) -> None:
            await gate.message("x")
            raise RuntimeError("no more")

        return self._agent(loop)

    def offering(self) -> tuple[Agent, list[str]]:
        offered: list[str] = []

        async def loop(gate: LoopGate, prompt: str) -> None:
            offered.extend(gate.narrow(["kept", "hidden"]))

        return self._agent(loop), offered

    def _agent(self, loop: Any) -> Agent:
        return Agent(FunctionAdapter(loop))

    async def _make(self, gate: LoopGate, file: str) -> None:
        try:
            await gate.tool(name="make")(self._touch)(file)
        except ToolRefused:
            await gate.message("then not")

    def _touch(self, path: str) -> Sequence[str]:
        (self.workspace / path).touch()
        return [path]


@pytest.mark.anyio
class TestFunctionAdapter(Loops):
    """They call other loops too."""

    row = "function"

    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path) -> None:
        self.workspace = tmp_path

    def delegating(self, file: str) -> Agent:
        async def loop(gate: LoopGate, prompt: str) -> None:
            async def delegate() -> None:
                await self._make(gate, file)

            await gate.tool(delegate)()

        return self._agent(loop)
