"""`proctor run` with an agent that blocks its exit: it still exits after a second SIGTERM, a third Ctrl-C, and its
own timeout.
"""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from proctor.supervisor.testing.fakes import PATIENCE_S

PROGRAM = """
import sys, time
from contextlib import asynccontextmanager
import anyio
from proctor.adapters.cli.commands.run import supervised
from proctor.adapters.cli.exits import EndingSignals
from proctor.policies import Limits, Policy
from proctor.policies.events import MessageReceived
from proctor.supervisor.ports.adapter import CancelStep
from proctor.supervisor.run import tasks as apart
from proctor.supervisor.testing import FakeAdapter

apart.RELEASE_S = 0.1
where, store = sys.argv[1:]

class Provider:
    async def events(self):
        yield MessageReceived(content="hello")
        print("it holds on", file=sys.stderr)
        if where == "blocks":
            time.sleep(1000)
        while True:
            try:
                await anyio.sleep(0.01)
            except BaseException:
                pass

    def cancel_steps(self):
        async def act():
            return None
        return [CancelStep(name="kill", act=act, bound_s=0.1)]

class Stubborn(FakeAdapter):
    @asynccontextmanager
    async def open(self, launch):
        yield Provider()

async def main():
    policy = Policy(name="open", limits=Limits(max_tool_calls=9))
    return await supervised(Stubborn(), "go", [policy], store=store, as_json=True, signals=signals)

signals = EndingSignals()
sys.exit(anyio.run(main))
"""


@contextmanager
def running(where: str, tmp_path: Path) -> Iterator[Any]:
    """The program, with its agent working."""
    words = [sys.executable, "-u", "-c", PROGRAM, where, str(tmp_path / "s.db")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            assert process.stderr.readline() == "it holds on\n"
            yield process
        finally:
            process.kill()


def test_a_run_whose_agent_swallows_every_cancel_ends_at_the_first_signal(tmp_path: Path) -> None:
    """With its result and the exit code of a cancelled run."""
    with running("swallows", tmp_path) as process:
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=PATIENCE_S)
    last = json.loads(out.splitlines()[-1])
    assert (process.returncode, last["status"]) == (3, "cancelled")
    assert '"released":false' in out
    assert "Traceback" not in err


@pytest.mark.parametrize("sent", [[signal.SIGTERM] * 2, [signal.SIGINT] * 3])
def test_signals_end_the_program_while_its_agent_blocks_the_thread(
    sent: list[signal.Signals], tmp_path: Path
) -> None:
    """No event loop can handle them; the last one ends the program as it does any other."""
    with running("blocks", tmp_path) as process:
        codes: list[int | None] = []
        for number in sent:
            process.send_signal(number)
            try:
                codes.append(process.wait(timeout=1))
            except subprocess.TimeoutExpired:
                codes.append(None)
    assert codes == [None] * (len(sent) - 1) + [-sent[-1]]
