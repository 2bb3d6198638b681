"""Which files one allowed call and one event pass through, counted while they do: `<!-- facts: followed -->`."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import FrameType
from typing import Any

import anyio

import proctor.policies
from benchmarks.workload import Agent, ordinary, steps
from proctor.policies.events import Event, RunCompleted
from proctor.supervisor import Launch, MemoryStore, Supervisor

from .markdown import table

_ROOT = Path(proctor.policies.__file__).parents[1]
_RULES, _STEPS = 10, 4
_SESSIONS = 10
"""The shortest of these counts: a timer of another task may fire during one."""


class Followed:
    """A profiler's function that notes each file of the three packages, and each call from one to another.

    Attributes:
        files: the files in which a function was called, in the order of the first call.
        hops: calls whose nearest caller within the packages stands in another file; a coroutine counts once, and
            not at all if it was called before.
    """

    def __init__(self) -> None:
        self.files: list[str] = []
        self.hops = 0
        self._frames: set[FrameType] = set()

    def start(self) -> None:
        """Count from here on; what has been called before, and waits for this, is no part of it."""
        frame: FrameType | None = sys._getframe()
        while frame is not None:
            self._frames.add(frame)
            frame = frame.f_back
        sys.setprofile(self)

    def __call__(self, frame: FrameType, what: str, argument: Any) -> None:
        name = _file_of(frame)
        if what != "call" or name is None or frame in self._frames:
            return
        self._frames.add(frame)
        if name not in self.files:
            self.files.append(name)
        caller = frame.f_back
        while caller is not None and _file_of(caller) is None:
            caller = caller.f_back
        self.hops += caller is not None and _file_of(caller) != name


def _file_of(frame: FrameType) -> str | None:
    path = Path(frame.f_code.co_filename)
    return path.relative_to(_ROOT).as_posix() if path.is_relative_to(_ROOT) else None


async def _follow() -> dict[str, Followed]:
    """The last call of a short session, and the event that it was completed: by then all is loaded and compiled."""
    call, event = Followed(), Followed()

    async def session(launch: Launch) -> AsyncIterator[Event]:
        *before, last = steps(0, _STEPS)
        for step in before:
            await launch.gate(step.call)
            yield step.completed
        call.start()
        await launch.gate(last.call)
        event.start()
        yield last.completed
        sys.setprofile(None)
        yield RunCompleted(output="done")

    async with MemoryStore() as store, Supervisor(store) as supervisor:
        handle = await supervisor.start(Agent(session), "go", policies=[ordinary(_RULES).policy])
        await handle.wait()
    return {"a call, from its request to its answer": call, "an event, evaluated and recorded": event}


def shortest() -> dict[str, Followed]:
    """What one allowed call and one event pass through, of several sessions the least."""
    sessions = [anyio.run(_follow) for _ in range(_SESSIONS)]
    return {
        what: min((each[what] for each in sessions), key=lambda seen: (len(seen.files), seen.hops))
        for what in sessions[0]
    }


def followed(name: str) -> str:
    """How many files and hops, and which packages' files they are."""
    rows = []
    for what, seen in shortest().items():
        by_package = [sum(file.startswith(f"{row}/") for file in seen.files) for row in ("policies", "supervisor")]
        hops = f"about {5 * round(seen.hops / 5)}"
        rows.append((what, f"{len(seen.files)}", "{} and {}".format(*by_package), hops))
    return table(["what is followed", "files", "in policies and supervisor", "calls from one file to another"], rows)
