"""What an agent asks before it acts is found out by having it act."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from proctor.adapters.agents.acp.adapter import AcpAdapter
from proctor.adapters.agents.acp.probe import BY_COMMAND, BY_EDIT, ProbeReport, probe
from proctor.supervisor.errors import ProviderError, UsageError
from proctor.supervisor.testing.fakes import PATIENCE_S

pytestmark = pytest.mark.anyio
COMMAND = {"call": "c1", "title": "touch", "run": f"touch {BY_COMMAND}"}
EDIT = {"call": "c2", "kind": "edit", "run": f"touch {BY_EDIT}"}
READ = {"call": "c3", "kind": "read", "asks": False}


@pytest.fixture
def agent(scripts: Any) -> Callable[..., Callable[[Path], AcpAdapter]]:
    """Makes adapters for an agent that does what a script says."""

    def making(*steps: dict[str, Any], **script: Any) -> Callable[[Path], AcpAdapter]:
        return lambda folder: scripts.adapter(*steps, adapter={"cwd": folder}, **script)

    return making


async def probed(make: Callable[[Path], AcpAdapter], tmp_path: Path) -> ProbeReport:
    """What a probe reports."""
    folder = tmp_path / "probed"
    folder.mkdir()
    with anyio.fail_after(PATIENCE_S):
        return await probe(make, folder)


async def test_an_agent_that_asks_for_all_but_reading_gates_some(agent: Any, tmp_path: Path) -> None:
    """Its refusals hold, and it goes on after one."""
    report = await probed(agent(COMMAND, EDIT, READ), tmp_path)

    assert report == ProbeReport(
        asked=("execute", "edit"), unasked=("read",), refusal_held=True, went_on_after_refusal=True, completed=True
    )
    assert report.gate == "some"


async def test_an_agent_that_asks_for_everything_gates_all(agent: Any, tmp_path: Path) -> None:
    """As far as four calls can show."""
    report = await probed(agent(COMMAND, {**READ, "asks": True}, refusal_ends=True), tmp_path)

    assert report.gate == "all"


async def test_an_agent_whose_refusal_ends_its_turn_says_so(agent: Any, tmp_path: Path) -> None:
    """Nothing comes after the first."""
    report = await probed(agent(COMMAND, {"stop": "end_turn"}), tmp_path)

    assert report.went_on_after_refusal is False


async def test_an_agent_that_asks_nothing_has_no_gate(agent: Any, tmp_path: Path) -> None:
    """Whatever the answer would have been."""
    report = await probed(agent({**COMMAND, "asks": False}), tmp_path)

    assert (report.gate, report.asked, report.unasked, report.refusal_held) == ("none", (), ("execute",), None)


async def test_an_agent_that_acts_before_or_against_the_answer_has_no_gate(agent: Any, tmp_path: Path) -> None:
    """Its question is a courtesy."""
    early = {"call": "c0", "kind": "edit", "run": f"touch {BY_COMMAND}", "asks": False}
    report = await probed(agent(early, COMMAND), tmp_path)

    assert (report.gate, report.early, report.refusal_held) == ("none", (BY_COMMAND,), False)


async def test_a_probe_needs_an_empty_folder_and_an_agent_that_works(agent: Any, tmp_path: Path) -> None:
    """What is there is not touched."""
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    with pytest.raises(UsageError, match="is not an empty folder"):
        await probe(agent(COMMAND), tmp_path / "full")
    with pytest.raises(ProviderError, match="the probed agent failed"):
        await probed(agent({"stop": "refusal"}), tmp_path)
