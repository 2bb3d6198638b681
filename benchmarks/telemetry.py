"""What telemetry costs a run that nobody traces, and one that is traced: each in processes of its own, in turns."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from time import thread_time
from typing import Any

import anyio

from proctor.policies.events import Event, RunCompleted
from proctor.supervisor import Launch, MemoryStore, Supervisor

from .agents import Agent
from .rows import Row, Size
from .workload import events_of, ordinary, steps

RULES = 10
MODES = ("absent", "off", "traced")
"""The extra is not there; it is there and nobody asks for it; each run is traced, by a span for each call."""
BOUND = 1.05


def run(size: Size) -> list[Row]:
    """Microseconds of processor time of one event of a supervised run, on a store in memory."""
    least = dict.fromkeys(MODES, float("inf"))
    for _ in range(size.of(9, 1)):
        for mode in MODES:
            least[mode] = min(least[mode], _measured_apart(mode, size.of(3_000, 20)))
    return [
        Row("an event, without the extra", least["absent"], "us"),
        Row("an event, with the extra and nobody who asks for it", least["off"], "us"),
        Row("an event, each run traced, spans kept in memory", least["traced"], "us"),
        Row("nobody asks for it / without the extra", least["off"] / least["absent"], "x", BOUND),
        Row("traced / without the extra", least["traced"] / least["absent"], "x"),
    ]


def _measured_apart(mode: str, calls: int) -> float:
    code = f"from benchmarks.telemetry import measured; print(measured({mode!r}, {calls}))"
    hidden = "import sys; sys.modules['opentelemetry'] = None; " if mode == "absent" else ""
    done = subprocess.run(
        [sys.executable, "-c", hidden + code],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[1],
        env=os.environ.copy(),
    )
    if done.returncode != 0:
        raise RuntimeError(f"`{mode}` failed: {done.stderr.strip().splitlines()[-1:]}")
    return float(done.stdout)


def measured(mode: str, calls: int) -> float:
    """Microseconds an event in this process."""
    session = events_of(steps(0, calls))
    publishers = [_traced()] if mode == "traced" else []

    async def play(launch: Launch) -> AsyncIterator[Event]:
        for event in session:
            yield event
        yield RunCompleted(output="done")

    async def main() -> float:
        async with Supervisor(MemoryStore(), publishers=publishers) as supervisor:
            begun = thread_time()
            handle = await supervisor.start(Agent(play), "go", policies=[ordinary(RULES).policy])
            await handle.wait()
            return thread_time() - begun

    return anyio.run(main) / len(session) * 1e6


def _traced() -> Any:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    from proctor.adapters.telemetry import OpenTelemetry

    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(InMemorySpanExporter()))
    return OpenTelemetry(tracer_provider=provider)
