"""What one hook of an interactive client costs in processor time, early and late in a long session.

Counted are the program that the client starts and, as its share, the process that judges. A hook that the client
sends itself (`--http`) has no program.
"""

from __future__ import annotations

import http.client
import json
import os
import resource
import shlex
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from proctor.adapters.hooks.daemon import PROBE
from proctor.adapters.hooks.daemon_client import DAEMON
from proctor.adapters.hooks.over_http import PATH, endpoint_in
from proctor.adapters.hooks.record import store_id
from proctor.adapters.hooks.settings import command
from proctor.policies import RunContext

from .rows import Row, Size

MOST_MS = 60.0
MOST_SENT_MS = 5.0
FLAT = 1.2
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


def run(size: Size) -> list[Row]:
    """Milliseconds of a hook: the median over the calls measured, after ten calls and after many."""
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        (folder / "policy.yaml").write_text(POLICY)
        with _line(folder, "store.db") as words:
            calls = _Calls(words, folder / "log.jsonl")
            calls.go(10)
            early = calls.go(size.of(100, 3))
            calls.go(size.of(1000, 5))
            late = calls.go(size.of(100, 3))
        with _line(folder, "other.db") as words:  # one client either starts programs or sends
            sending = _Sent(words, folder / "log.jsonl")
            sending.go(10)
            sent = sending.go(size.of(100, 3))
    return [
        Row("one hook after 10 calls", early, "ms", MOST_MS),
        Row(f"one hook after {size.of(1000, 5) + size.of(110, 13)} calls", late, "ms", MOST_MS),
        Row("late / early", late / early, "x", FLAT),
        Row("one hook that the client sends (`--http`)", sent, "ms", MOST_SENT_MS),
    ]


class _Calls:
    """Calls of one session, each asked about before and told after."""

    def __init__(self, words: list[str], log: Path) -> None:
        self._words = words
        self._log = log
        self._count = 0

    def go(self, count: int) -> float:
        """Make so many calls; the milliseconds of processor time of a hook."""
        before = _children() + _judging(self._words[4])
        for _ in range(count):
            self._count += 1
            call: dict[str, object] = {
                "session_id": "s",
                "prompt_id": "p",
                "transcript_path": str(self._log),
                "tool_name": "Bash",
            }
            call |= {"tool_use_id": f"t{self._count}", "tool_input": {"command": f"ls {self._count}"}}
            self._hook({"hook_event_name": "PreToolUse", **call})
            self._hook({"hook_event_name": "PostToolUse", **call, "tool_response": {"stdout": "a\nb\n"}})
        spent = _children() + _judging(self._words[4]) - before
        return spent * 1000 / (2 * count)

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


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _judging(place: str) -> float:
    """Seconds of processor time of the process that judges there."""
    spent = 0.0
    for process in psutil.process_iter(["cmdline", "cpu_times"]):
        if DAEMON in (words := process.info["cmdline"] or ()) and place in words:
            spent += process.info["cpu_times"].user + process.info["cpu_times"].system
    return spent


@contextmanager
def _line(folder: Path, name: str) -> Iterator[list[str]]:
    """The words of a hook's line by a store of this name; in the end, the process that judges is ended."""
    store = folder / name
    try:
        yield shlex.split(command([folder / "policy.yaml"], store, store_id(store), RunContext()))
    finally:
        for process in psutil.process_iter(["cmdline"]):
            if DAEMON in (words := process.info["cmdline"] or ()) and os.fspath(store) in words:
                process.kill()
