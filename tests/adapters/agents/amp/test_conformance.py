"""The shipped conformance suite for adapters, on Amp's stand-in."""

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from proctor.adapters.agents.amp.adapter import AmpAdapter
from proctor.policies.events.run_context import Usage
from proctor.supervisor.testing import damaged_output
from proctor.supervisor.testing.adapter_fixture import AdapterChecks, Agent
from proctor.supervisor.testing.adapter_lifecycle import CancellingChecks, CrashingChecks
from proctor.supervisor.testing.suites import AdapterConformance

STAY = "trap '' TERM HUP; setsid sleep 73003 & (setsid sleep 73003 &); touch up; sleep 73003"
STAND_IN = Path(__file__).parent / "stand_in.py"


class Amp(AdapterChecks):
    """Its calls are commands; the delegate asks the gate about each."""

    has_client = True
    without = frozenset({"offering"})

    @pytest.fixture(autouse=True)
    def place(self, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
        self.workspace = tmp_path
        self.scratch = tmp_path_factory.mktemp("scratch")

    def making(self, *files: str, together: bool = False) -> Agent:
        return self._agent(self._commands(*files, together=together))

    def mixing(self, file: str) -> Agent:
        look = {"use": ["look", "Read", {"path": "x"}], "asks": False}
        return self._agent([look, *self._commands(file)])

    def delegating(self, file: str) -> Agent:
        task = {"use": ["task", "Task", {"prompt": "x"}]}
        return self._agent([task, self._use(file, f"touch {file}", parent="task")])

    def erring(self) -> Agent:
        return self._agent([self._use("bad", "exit 3")])

    def staying(self) -> Agent:
        return self._agent([self._use("stay", STAY)])

    def silent(self) -> Agent:
        return self._agent([{"say": "hm"}, {"silence": True}])

    def using(self) -> tuple[Agent, Usage]:
        """The same report with both parts of a message, then another message's, then a total."""
        first = {"input_tokens": 10, "cache_read_input_tokens": 4, "output_tokens": 2}
        total = {"input_tokens": 15, "cache_read_input_tokens": 4, "output_tokens": 9}
        steps: list[dict[str, Any]] = [
            {"say": "a", "message": "m", "usage": first},
            {"say": "b", "message": "m", "usage": first},
            {"say": "c", "message": "n", "usage": {"input_tokens": 5, "output_tokens": 3}},
            {"result": {"result": "end", "usage": total}},
        ]
        return self._agent(steps), Usage(input_tokens=19, output_tokens=9, cache_read_tokens=4)

    def failing(self) -> Agent:
        return self._agent([{"say": "x"}, {"result": {"is_error": True, "subtype": "error_during_execution"}}])

    def garbling(self, *files: str) -> Agent:
        return self._agent(self._commands(*files), damaged_output.garbled([str(STAND_IN)]))

    def truncating(self, *, lives: bool = False) -> Agent:
        return self._agent(self._commands("alpha"), damaged_output.cut([str(STAND_IN)], "tool_use", lives=lives))

    def _commands(self, *files: str, together: bool = False) -> list[dict[str, Any]]:
        same = {"message": "m"} if together else {}
        return [self._use(file, f"touch {file}", **same) for file in files]

    def _use(self, call_id: str, command: str, **more: Any) -> dict[str, Any]:
        return {"use": [call_id, "shell_command", {"command": command}], "run": command, **more}

    def _agent(self, steps: list[dict[str, Any]], client: Sequence[str] = (str(STAND_IN),)) -> Agent:
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
        env = {"PATH": path, "AMP_API_KEY": "none", "STAND_IN_KEPT": str(self.scratch / "kept.json")}
        program = damaged_output.as_program(self.scratch / "amp", client)
        script = ["--script", json.dumps(steps)]
        return Agent(AmpAdapter(amp_path=program, cwd=self.workspace, env=env, arguments=script))


@pytest.mark.anyio
class TestAmpAdapter(Amp, AdapterConformance):
    """The whole suite. Tests that depend on the backend also run below."""

    row = "amp"

    @pytest.fixture
    def anyio_backend(self) -> str:
        return "asyncio"


@pytest.mark.anyio
class TestEndingAmpOnTrio(Amp, CancellingChecks, CrashingChecks):
    """Every way to end a run."""
