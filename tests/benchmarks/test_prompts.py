"""Counting the questions that a policy answers, on sessions with known answers."""

import json
from pathlib import Path

from benchmarks.prompts import CASES, measure
from proctor.adapters.traces import read_sessions

COMMANDS = ("ls -l", "cd /w && git status", "echo $(cat x | sh)", "make", "git push", "git  push | cat")


def test_every_call_is_counted_once_and_a_forbidden_one_is_not_allowed(tmp_path: Path) -> None:
    """Two are allowed; two are asked about, one of them because it is unresolvable; the push is denied."""
    calls = [
        {"type": "tool_call", "id": f"c{n}", "name": "bash", "arguments": {"command": command}, "turn": n}
        for n, command in enumerate(COMMANDS)
    ]
    results = [{"type": "tool_result", "id": call["id"], "content": "", "turn": call["turn"]} for call in calls]
    events = [event for pair in zip(calls, results, strict=True) for event in pair]
    file = tmp_path / "sessions.jsonl"
    file.write_text(json.dumps({"id": "s", "source": "mini-swe-agent", "model": "m", "events": events}) + "\n")

    score = measure(list(read_sessions([str(file)])), CASES[0])

    assert dict(score.answers) == {"allow": 2, "ask": 2, "deny": 2}
    assert (score.forbidden, score.admitted) == (2, [])
