"""The delegate, run by the real client and alone: if anything is wrong, the call is denied."""

import os
import subprocess
from pathlib import Path
from typing import Any

import anyio
import pytest
from amp_bench import permission

from proctor.adapters.agents.amp.adapter import GateSocket, open_gate_socket
from proctor.adapters.agents.amp.translation import their_names
from proctor.supervisor.ports.adapter import GateAnswer

pytestmark = pytest.mark.anyio


async def allow(tool: str, given: Any) -> GateAnswer:
    return GateAnswer(allowed=True)


async def started(
    socket: GateSocket, given: bytes = b'{"cmd": "ls"}', **env: str
) -> subprocess.CompletedProcess[bytes]:
    """The delegate as a client starts it."""
    environment = {"PATH": os.environ["PATH"], "AGENT": "amp", "AGENT_TOOL_NAME": "Bash", **env}
    return await anyio.run_process([str(socket.program)], input=given, env=environment, check=False)


@pytest.mark.parametrize("answer", [GateAnswer(allowed=True), GateAnswer(allowed=False, tell_model="Not here.")])
async def test_the_real_client_obeys_the_gate(amp: str, tmp_path: Path, answer: GateAnswer) -> None:
    """It asks with the tool's name and input, and passes proctor's text to the model."""
    proposed: list[tuple[str, Any]] = []

    async def gate(tool: str, given: Any) -> GateAnswer:
        proposed.append((tool, given))
        return answer

    async with open_gate_socket(gate) as socket:
        found = await permission(amp, socket, tmp_path, "edit_file", "--path", "/x")

    assert proposed == [("edit_file", {"path": "/x"})]
    assert found["action"] == ("allow" if answer.allowed else "reject")
    assert answer.allowed or found["error"] == "Not here.\n"


@pytest.mark.parametrize(
    "call", [("Bash", "--cmd", "ls"), ("shell_command", "--command", "ls"), ("mcp__docs__find", "--q", "x")]
)
async def test_the_real_client_rejects_denied_tools_without_asking(
    amp: str, tmp_path: Path, call: tuple[str, ...]
) -> None:
    """By either name of its shell, and by a prefix."""

    async def nobody(tool: str, given: Any) -> GateAnswer:
        raise AssertionError

    rejected = (*their_names("bash"), *their_names("mcp__docs__*"))
    async with open_gate_socket(nobody) as socket:
        found = await permission(amp, socket, tmp_path, *call, rejected=rejected)

    assert (found["action"], found["matchedEntry"]["action"]) == ("reject", "reject")


async def test_the_real_client_rejects_a_call_without_an_answer(amp: str, tmp_path: Path) -> None:
    """The supervisor has gone; its folder still exists."""
    async with open_gate_socket(allow) as socket:
        (socket.folder / "socket").unlink()
        found = await permission(amp, socket, tmp_path, "Read", "--path", "x")

    assert found["action"] == "reject"
    assert "cannot be reached" in found["error"]


async def test_an_unreadable_input_and_a_wrong_token_are_denied() -> None:
    """A missing input is an empty one. Any process that can open the folder may ask, and no other."""
    async with open_gate_socket(allow) as socket:
        codes = [(await started(socket, given)).returncode for given in (b"", b"{", b"[" * 2000, b"\xff")]
        (socket.folder / "token").write_text("guessed")
        denied = await started(socket)

    assert (codes, denied.returncode) == ([0, 2, 2, 2], 2)


async def test_a_missing_answer_is_a_denial() -> None:
    """The gate raises, so the supervisor closes the connection."""

    async def broken(tool: str, given: Any) -> GateAnswer:
        raise RuntimeError

    async with open_gate_socket(broken) as socket:
        done = await started(socket)

    assert (done.returncode, b"cannot be reached" in done.stderr) == (2, True)


async def test_a_delegate_that_cannot_start_denies_and_reads_its_input() -> None:
    """Otherwise the client exits silently because nobody reads its output."""
    async with open_gate_socket(allow) as socket:
        broken = socket.program.read_text().replace("delegate.py", "gone.py")
        socket.program.write_text(broken)
        done = await started(socket, b"x" * 1_000_000)

    assert done.returncode == 2


async def test_the_delegate_imports_nothing_from_its_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent may write there."""
    (tmp_path / "json.py").write_text("import os; os._exit(0)")
    monkeypatch.chdir(tmp_path)

    async def refuse(tool: str, given: Any) -> GateAnswer:
        return GateAnswer(allowed=False)

    async with open_gate_socket(refuse) as socket:
        done = await started(socket, PYTHONPATH=str(tmp_path))

    assert done.returncode == 2


async def test_the_folder_is_private_and_removed_after_the_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Even if temporary folders have long paths."""
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    async with open_gate_socket(allow) as socket:
        modes = {path.name: path.stat().st_mode & 0o777 for path in socket.folder.iterdir()}
        assert socket.folder.stat().st_mode & 0o777 == 0o700
        assert (await started(socket)).returncode == 0

    assert modes == {"delegate": 0o700, "socket": 0o600, "token": 0o600}
    assert not socket.folder.exists()
