#!/usr/bin/env python3
"""A stand-in for the `amp` client, whose agent runs on a server: `stand_in.py ... --script SCRIPT`.

It obeys the permission rules of its settings file as the client does, runs the delegate that they name, and writes
the client's stream of JSON. SCRIPT is JSON: a list of steps, {"use": [id, tool, input], ...} (with "run", a command;
"asks": false ignores the rules, "anyway": true runs it although they deny it; "late": reported after the question),
{"say"}, {"raw"}, {"exit"}, {"silence"}, {"result": fields}, {"usage"}. It has one thread, T-1. Its standard input and
arguments are stored beside its working directory.
"""

import fnmatch
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any


class Client:
    """One run."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.rules = settings["amp.permissions"]
        self.message = 0

    def play(self, steps: list[dict[str, Any]]) -> None:
        self.write({"type": "system", "subtype": "init", "session_id": "T-1", "cwd": os.getcwd(), "tools": ["Bash"]})
        for step in steps:
            self.message += 1
            self.take(step)
            if "result" in step:
                return
        self.take({"result": {"result": "end"}})

    def take(self, step: dict[str, Any]) -> None:
        if "say" in step:
            self.assistant({"type": "text", "text": step["say"]}, step)
        elif "raw" in step:
            print(step["raw"], flush=True)
        elif "exit" in step:
            print("last words", file=sys.stderr, flush=True)
            os._exit(step["exit"])
        elif "silence" in step:
            threading.Event().wait()
        elif "record" in step:
            self.write(step["record"])
        elif "result" in step:
            ended = {"type": "result", "subtype": "success", "is_error": False, "num_turns": 1, "session_id": "T-1"}
            self.write({**ended, **step["result"]})
        else:
            self.use(step)

    def use(self, step: dict[str, Any]) -> None:
        call_id, tool, given = step["use"]
        shown = {"type": "tool_use", "id": call_id, "name": tool, "input": given}
        if not step.get("late"):
            self.assistant(shown, step)
        refusal = self.decide(tool, given) if step.get("asks", True) else None
        if step.get("late"):
            self.assistant(shown, step)
        refusal = None if step.get("anyway") else refusal
        if refusal is None and "run" in step:
            code = subprocess.run(["bash", "-c", step["run"]], stdin=subprocess.DEVNULL, check=False).returncode
            refusal = None if code == 0 else f"exit code {code}"
        outcome = {"content": refusal or "ok", "is_error": refusal is not None}
        result = {"type": "tool_result", "tool_use_id": call_id, **outcome}
        self.write({"type": "user", "message": {"role": "user", "content": [result]}, "session_id": "T-1"})

    def decide(self, tool: str, given: dict[str, Any]) -> str | None:
        """None if the call may run, else the text for the model."""
        for rule in self.rules:
            if not fnmatch.fnmatch(tool.lower(), rule["tool"].lower()):
                continue
            if rule["action"] == "reject":
                return "rejected by a rule"
            env = {**os.environ, "AGENT": "amp", "AGENT_TOOL_NAME": tool}
            delegate = subprocess.run(
                [rule["to"]], input=json.dumps(given).encode(), env=env, stderr=subprocess.PIPE, check=False
            )
            return None if delegate.returncode == 0 else delegate.stderr.decode()
        return "no rule"

    def assistant(self, block: dict[str, Any], step: dict[str, Any]) -> None:
        message = {"id": step.get("message", f"m{self.message}"), "role": "assistant", "content": [block]}
        message["usage"] = step.get("usage", {"input_tokens": 0, "output_tokens": 0})
        parent = step.get("parent")
        self.write({"type": "assistant", "message": message, "session_id": "T-1", "parent_tool_use_id": parent})

    def write(self, record: dict[str, Any]) -> None:
        print(json.dumps(record), flush=True)


def main() -> None:
    arguments = sys.argv[1:]
    settings = Path(arguments[arguments.index("--settings-file") + 1])
    kept = {"arguments": arguments, "prompt": sys.stdin.read(), "settings": json.loads(settings.read_text())}
    Path(os.environ["STAND_IN_KEPT"]).write_text(json.dumps(kept))
    if arguments[:2] == ["threads", "continue"] and arguments[2] != "T-1":
        sys.exit(f"Thread https://ampcode.com/threads/{arguments[2]} does not exist.")
    Client(kept["settings"]).play(json.loads(arguments[arguments.index("--script") + 1]))


if __name__ == "__main__":
    main()
