"""Programs as they are started: imports, the lists of a full store, a hook of a client, and runs with telemetry."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import thread_time
from typing import Any

import anyio
import psutil

from proctor.adapters.hooks.daemon import PROBE
from proctor.adapters.hooks.daemon_client import DAEMON
from proctor.adapters.hooks.over_http import PATH, endpoint_in
from proctor.adapters.hooks.settings import command
from proctor.adapters.stores import SQLiteStore
from proctor.policies.events import Event, RunCompleted, RunStarted, ToolApprovalRequested, ToolCallStarted
from proctor.supervisor import MemoryStore, Supervisor

from .figures import Row, Size
from .timing import ROOT, seconds_of, seconds_of_children
from .workload import Agent, events_of, ordinary, playing, steps

STARTS = {
    "nothing": "pass",
    "base": "import anyio, msgspec, structlog",
    "supervisor": "import proctor.supervisor",
    "used": "from proctor.supervisor import Supervisor, run_once",
    "help": "import sys; sys.argv = ['proctor', '--help']; from proctor.adapters.cli import main; main()",
}
START_BOUND = 2.5
LISTS = (("runs",), ("runs", "--status", "running", "--tenant", "t7"), ("approvals", "--limit", "20"), ("tail",))
LIST_BOUND = 1.5
MOST_MS = 60.0
MOST_SENT_MS = 5.0
FLAT = 1.2
HOOKED = (10, 100, 1_000, 10_000)
"""How many calls a session has had, for the plot."""
POLICY = """
name: bench
on_violation: deny
limits: {max_tool_calls: 1000000, max_duration_ms: 36000000}
tool_rules:
  - deny: [WebFetch]
  - deny: [{tool: Bash, where: [{path: $.command, regex: "git +push"}]}]
rules:
  - {type: count, tool: Write, max: 50}
  - {type: before, first: Read, then: Edit}
  - {type: loop, window: 10, threshold: 5}
  - {type: never_after, trigger: WebSearch, forbidden: Write}
"""
TRACED = ("absent", "off", "traced")
"""The extra is not there; it is there and nobody asks for it; each run is traced, by a span for each call."""
TRACED_BOUND = 1.05


def startup(size: Size) -> list[Row]:
    """Milliseconds of processor time of a fresh interpreter, less those of an empty one."""
    least = dict.fromkeys(STARTS, float("inf"))
    for _ in range(size.of(15, 1)):
        for name, code in STARTS.items():
            least[name] = min(least[name], seconds_of([sys.executable, "-c", code]))
    ms = {name: (least[name] - least["nothing"]) * 1000 for name in STARTS}
    return [
        Row("import anyio, msgspec, structlog", ms["base"], "ms"),
        Row("import proctor.supervisor", ms["supervisor"], "ms"),
        Row("from proctor.supervisor import Supervisor, run_once", ms["used"], "ms"),
        Row("proctor --help", ms["help"], "ms"),
        Row("import proctor.supervisor / what it stands on", ms["supervisor"] / ms["base"], "x", START_BOUND),
        Row("... and its names / what it stands on", ms["used"] / ms["base"], "x", START_BOUND),
        Row("proctor --help / what it stands on", ms["help"] / ms["base"], "x", START_BOUND),
    ]


def lists(size: Size) -> list[Row]:
    """Milliseconds of processor time of a command that lists what is in a store, and how many times that of an empty
    store.
    """
    runs, waiting = size.of(10_000, 100), size.of(1_000, 10)
    with tempfile.TemporaryDirectory() as folder:
        empty, full = Path(folder, "empty.db"), Path(folder, "full.db")
        anyio.run(_fill, empty, 0, 0)
        anyio.run(_fill, full, runs, waiting)
        least = {(words, path): float("inf") for words in LISTS for path in (empty, full)}
        for _ in range(size.of(9, 1)):
            for words, path in least:
                line = [sys.executable, "-m", "proctor", *words, "--store", str(path)]
                least[words, path] = min(least[words, path], seconds_of(line))
    rows = []
    for words in LISTS:
        name = f"proctor {' '.join(words)}"
        rows.append(Row(f"{name}, empty", least[words, empty] * 1000, "ms"))
        rows.append(Row(f"{name}, {runs:,} runs and {waiting:,} that wait", least[words, full] * 1000, "ms"))
        rows.append(Row(f"{name}, full / empty", least[words, full] / least[words, empty], "x", LIST_BOUND))
    return rows


async def _fill(path: Path, runs: int, waiting: int) -> None:
    """Runs of a hundred tenants, the latest of which wait for a person."""
    async with SQLiteStore(path, synchronous="OFF") as store:
        for n in range(runs):
            ids: Any = {"run_id": f"run_{n:032x}", "session_id": f"ses_{n:032x}", "provider": "claude"}
            start = RunStarted(metadata={"context": {"tenant": f"t{n % 100}"}}, **ids)
            call = ToolCallStarted(tool_call_id="c", tool_name="bash", tool_input={"command": "ls"}, **ids)
            last: Event = RunCompleted(**ids)
            if n >= runs - waiting:
                about: Any = {"tool_call_id": "d", "tool_name": "deploy", "input_digest": "d"}
                last = ToolApprovalRequested(approval_id=f"{ids['run_id']}.1", tool_input={"to": n}, **about, **ids)
            await store.append([start, call, last])


def hook(size: Size) -> list[Row]:
    """Milliseconds of a hook, over the calls measured, after ten calls and after many. Counted are the program that
    the client starts and, as its share, the process that judges; a hook that the client sends itself (`--http`) has
    no program.
    """
    with _hooking(_Calls) as calls:
        calls.go(10)
        early = calls.go(size.of(100, 3))
        calls.go(size.of(1000, 5))
        late = calls.go(size.of(100, 3))
    with _hooking(_Sent) as sending:  # one client either starts programs or sends
        sending.go(10)
        sent = sending.go(size.of(100, 3))
    return [
        Row("one hook after 10 calls", early, "ms", MOST_MS),
        Row(f"one hook after {size.of(1000, 5) + size.of(110, 13)} calls", late, "ms", MOST_MS),
        Row("late / early", late / early, "x", FLAT),
        Row("one hook that the client sends (`--http`)", sent, "ms", MOST_SENT_MS),
    ]


def by_calls() -> dict[str, list[tuple[int, float]]]:
    """Milliseconds of a hook that the client sends, against the calls before it in its session, for the plot."""
    points: list[tuple[int, float]] = []
    with _hooking(_Sent) as sending:
        for calls in HOOKED:
            sending.go(calls - sending.count)
            points.append((calls, min(sending.go(100) for _ in range(3))))
    return {"a hook that is sent": points}


class _Calls:
    """Calls of one session, each asked about before and told after."""

    def __init__(self, words: list[str], log: Path) -> None:
        self._words = words
        self._log = log
        self.count = 0

    def go(self, count: int) -> float:
        """Make so many calls; the milliseconds of processor time of a hook."""
        before = seconds_of_children() + _judging(self._words[4])
        for _ in range(count):
            self.count += 1
            call: dict[str, object] = {
                "session_id": "s",
                "prompt_id": "p",
                "transcript_path": str(self._log),
                "tool_name": "Bash",
            }
            call |= {"tool_use_id": f"t{self.count}", "tool_input": {"command": f"ls {self.count}"}}
            self._hook({"hook_event_name": "PreToolUse", **call})
            self._hook({"hook_event_name": "PostToolUse", **call, "tool_response": {"stdout": "a\nb\n"}})
        spent = seconds_of_children() + _judging(self._words[4]) - before
        return spent * 1000 / (2 * max(1, count))

    def _hook(self, data: dict[str, object]) -> None:
        ended = subprocess.run(self._words, input=json.dumps(data).encode(), capture_output=True, check=True)
        if ended.stdout:
            raise RuntimeError(f"the hook said {ended.stdout!r}")


class _Sent(_Calls):
    """The same over one connection."""

    def __init__(self, words: list[str], log: Path) -> None:
        super().__init__(words, log)
        self._endpoint = endpoint_in(words[4])
        subprocess.run(words, input=PROBE, capture_output=True, check=True)  # it learns that hooks are sent
        self._connection = http.client.HTTPConnection("127.0.0.1", self._endpoint.port)

    def _hook(self, data: dict[str, object]) -> None:
        headers = {"Authorization": self._endpoint.authorization}
        self._connection.request("POST", PATH, json.dumps(data), headers)
        answer = self._connection.getresponse()
        if (body := answer.read()) or answer.status != 200:
            raise RuntimeError(f"the hook said {answer.status}: {body!r}")


def _judging(place: str) -> float:
    """Seconds of processor time of the process that judges there."""
    spent = 0.0
    for process in psutil.process_iter(["cmdline", "cpu_times"]):
        if DAEMON in (words := process.info["cmdline"] or ()) and place in words:
            spent += process.info["cpu_times"].user + process.info["cpu_times"].system
    return spent


@contextmanager
def _hooking(calls: type[_Calls]) -> Iterator[_Calls]:
    """A session of calls with a store of its own; in the end, the process that judges is ended."""
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        (folder / "policy.yaml").write_text(POLICY)
        store = folder / "store.db"
        try:
            yield calls(command([folder / "policy.yaml"], store), folder / "log.jsonl")
        finally:
            for process in psutil.process_iter(["cmdline"]):
                if DAEMON in (words := process.info["cmdline"] or ()) and os.fspath(store) in words:
                    process.kill()


def telemetry(size: Size) -> list[Row]:
    """Microseconds of processor time of one event of a supervised run, on a store in memory: each way in processes of
    its own, in turns.
    """
    least = dict.fromkeys(TRACED, float("inf"))
    for _ in range(size.of(9, 1)):
        for mode in TRACED:
            least[mode] = min(least[mode], _traced_apart(mode, size.of(3_000, 20)))
    return [
        Row("an event, without the extra", least["absent"], "us"),
        Row("an event, with the extra and nobody who asks for it", least["off"], "us"),
        Row("an event, each run traced, spans kept in memory", least["traced"], "us"),
        Row("nobody asks for it / without the extra", least["off"] / least["absent"], "x", TRACED_BOUND),
        Row("traced / without the extra", least["traced"] / least["absent"], "x"),
    ]


def _traced_apart(mode: str, calls: int) -> float:
    code = f"from {__name__} import traced; print(traced({mode!r}, {calls}))"
    hidden = "import sys; sys.modules['opentelemetry'] = None; " if mode == "absent" else ""
    line = [sys.executable, "-c", hidden + code]
    done = subprocess.run(line, capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode != 0:
        raise RuntimeError(f"`{mode}` failed: {done.stderr.strip().splitlines()[-1:]}")
    return float(done.stdout)


def traced(mode: str, calls: int) -> float:
    """Microseconds an event in this process."""
    session = events_of(steps(0, calls))
    publishers = [_tracing()] if mode == "traced" else []

    async def main() -> float:
        async with Supervisor(MemoryStore(), publishers=publishers) as supervisor:
            begun = thread_time()
            await (await supervisor.start(Agent(playing(session)), "go", policies=[ordinary().policy])).wait()
            return thread_time() - begun

    return anyio.run(main) / len(session) * 1e6


def _tracing() -> Any:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    from proctor.adapters.telemetry import OpenTelemetry

    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(InMemorySpanExporter()))
    return OpenTelemetry(tracer_provider=provider)
