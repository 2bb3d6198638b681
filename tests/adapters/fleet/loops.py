"""Agents that workers import by name: one that queues runs itself, and some that end their worker's process."""

from __future__ import annotations

import ctypes
import os
import signal
from typing import Any

from proctor.adapters.agents.loop.gate import LoopGate
from proctor.adapters.fleet import Fleet, RunSpec
from proctor.adapters.stores import open_store
from proctor.policies import parse_policies


async def delegating(gate: LoopGate, prompt: str) -> None:
    """Make two calls, and queue the same one level lower: `LEVELS STORE`."""
    levels, _, place = prompt.partition(" ")
    search = gate.tool(name="search", refused="tell")(lambda: "found")
    for _ in range(2):
        await search()
    if levels == "1":
        return
    options = {"loop": f"{__name__}:delegating"}
    below = f"{int(levels) - 1} {place}"
    async with open_store(place) as store, Fleet(store) as fleet:
        spec = RunSpec.of("function", below, policies=parse_policies("name: free"), options=options)
        await (await fleet.start(spec, run_id=f"level-{levels}")).wait()


async def late(gate: LoopGate, prompt: str) -> None:
    """End the process once the run has started."""
    os._exit(3)


def __getattr__(name: str) -> Any:
    if name == "segfault":
        ctypes.string_at(0)
    if name == "out_of_memory":
        os.kill(os.getpid(), signal.SIGKILL)  # as the kernel does
    raise AttributeError(name)
