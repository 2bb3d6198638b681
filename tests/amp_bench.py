"""A stand-in for the Amp client's agent, and the real client's permissions."""

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from proctor.adapters.agents.amp.adapter import AmpAdapter, GateSocket, settings_for
from proctor.policies.policy import Policy
from proctor.supervisor.testing.adapter_fixture import Drive, Driven
from proctor.supervisor.testing.fakes import PATIENCE_S

STAND_IN = Path(__file__).parent / "adapters" / "agents" / "amp" / "stand_in.py"
INSTALLED = Path(__file__).parents[1] / ".ci" / "node" / "node_modules" / ".bin"


class Bench:
    """Adapters for the stand-in, and what it received."""

    def __init__(self, root: Path) -> None:
        self.cwd = root / "work"
        self.kept = root / "kept.json"
        self.home = root / "home"
        self.cwd.mkdir()
        self.home.mkdir()

    def adapter(self, *steps: dict[str, Any], **options: Any) -> AmpAdapter:
        """An adapter whose client runs these steps."""
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
        env = {"PATH": path, "HOME": str(self.home), "AMP_API_KEY": "none", "STAND_IN_KEPT": str(self.kept)}
        arguments = ["--script", json.dumps(steps)]
        return AmpAdapter(**{"amp_path": STAND_IN, "cwd": self.cwd, "env": env, "arguments": arguments, **options})

    async def run(self, adapter: AmpAdapter, *, policy: Policy | None = None, **gate: Any) -> Driven:
        """Run it to its end, in bounded time."""
        if policy is not None:
            gate["options"] = adapter.compile(policy)
        with anyio.fail_after(PATIENCE_S):
            return await Drive(adapter, **gate).run("do it")

    def started_with(self) -> Any:
        """The arguments and settings of the stand-in."""
        return json.loads(self.kept.read_text())

    def made(self) -> list[str]:
        """The files in the working folder."""
        return sorted(path.name for path in self.cwd.iterdir())


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """The stand-in."""
    return Bench(tmp_path)


async def permission(
    amp: str, socket: GateSocket, home: Path, *call: str, rejected: tuple[str, ...] = (), cwd: Path | None = None
) -> dict[str, Any]:
    """The real client's decision on a call under proctor's settings."""
    content = json.dumps(settings_for({}, rejected, str(socket.program))).encode()
    settings = socket.write("settings.json", content)
    command = [amp, "--settings-file", str(settings), "permissions", "test", *call, "--json"]
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "AMP_URL": "http://127.0.0.1:9"}
    with anyio.fail_after(PATIENCE_S):
        done = await anyio.run_process(command, env=env, cwd=cwd or home, check=False)
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


@pytest.fixture
def amp() -> str:
    """The real client; a test is skipped if it is not installed."""
    found = shutil.which("amp", path=f"{INSTALLED}{os.pathsep}{os.environ['PATH']}")
    if found is None:
        pytest.skip("needs the Amp client: run .ci/npm-agents")
    return found


@pytest.fixture
def touch() -> Callable[..., dict[str, Any]]:
    """A shell call that creates a file."""

    def use(file: str, tool: str = "Bash", **more: Any) -> dict[str, Any]:
        given = {"cmd" if tool == "Bash" else "command": f"touch {file}"}
        return {"use": [f"u-{file}", tool, given], "run": f"touch {file}", **more}

    return use
