"""A scripted agent of the Agent Client Protocol: `scripted_agent.py SCRIPT [RECEIVED]`.

SCRIPT is JSON: `prompts` (a list of steps for each prompt), `at` (steps to run when a method arrives, instead of
handling it), `after` (steps to run after its answer), `loads`, `greeting`, `session` (more fields of the answers).
RECEIVED is a file to which every received line is written.

Steps: {"say"}, {"think"}, {"update"}, {"raw"}, {"long"}, {"cut"}, {"exit"}, {"silence"}, {"call", ...}, {"together":
[calls]}, {"answer": result}, {"error": error}, {"stop": reason, ...}, {"ask": method}; with "late", they run even
after a cancel. A call: "call" (id), "title", "kind", "run" (a command), "asks" (true), "announced" (true), "options",
"fields" (more fields of its updates), "question" (the same for its permission request).
"""

import json
import os
import queue
import subprocess
import sys
import threading
from typing import Any

OPTIONS = [
    {"optionId": "always", "name": "Always", "kind": "allow_always"},
    {"optionId": "once", "name": "Once", "kind": "allow_once"},
    {"optionId": "no", "name": "No", "kind": "reject_once"},
]


class Agent:
    """One conversation. Requests are handled in turn; answers and cancels as they arrive."""

    def __init__(self, script: dict[str, Any], received: str | None) -> None:
        self.script = script
        self.received = received
        self.requests: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self.answers: dict[int, queue.Queue[dict[str, Any]]] = {}
        self.cancelled = threading.Event()
        self.running: list[subprocess.Popen[bytes]] = []
        self.prompts = iter(script.get("prompts", ()))
        self.last_id = 0
        self.writing = threading.Lock()

    def read(self) -> None:
        for line in sys.stdin.buffer:
            if self.received:
                with open(self.received, "ab") as file:
                    file.write(line)
            message = json.loads(line)
            if "method" not in message:
                self.answers[message["id"]].put(message)
            elif message["method"] == "session/cancel":
                self.cancelled.set()
                for process in self.running:
                    process.terminate()
            else:
                if message["method"] == "session/prompt":
                    self.cancelled.clear()
                self.requests.put(message)
        self.requests.put(None)
        if not self.script.get("stays"):
            os._exit(0)

    def serve(self) -> None:
        while (request := self.requests.get()) is not None:
            result = self.handle(request)
            if result is not None:
                self.send({"id": request["id"], **result})
            self.play(self.script.get("after", {}).get(request["method"], []))

    def handle(self, request: dict[str, Any]) -> dict[str, Any] | None:
        method = request["method"]
        steps = self.script.get("at", {}).get(method)
        if steps is not None:
            ended = self.play(steps)
            if ended is not None:
                return ended
        if method == "initialize":
            capabilities = {"loadSession": self.script.get("loads", False)}
            info = {"name": "scripted", "version": "1"}
            greeting = {"protocolVersion": 1, "agentCapabilities": capabilities, "agentInfo": info}
            return {"result": {**greeting, **self.script.get("greeting", {})}}
        if method in ("session/new", "session/load"):
            own = {"sessionId": "ses-1"} if method == "session/new" else {}
            return {"result": {**own, **self.script.get("session", {})}}
        if method != "session/prompt":
            return {"result": {}}
        ended = self.play(next(self.prompts, []))
        return ended or {"result": {"stopReason": "cancelled" if self.cancelled.is_set() else "end_turn"}}

    def play(self, steps: list[dict[str, Any]]) -> dict[str, Any] | None:
        """Run the steps; returns the answer to the request they belong to."""
        for step in steps:
            if self.cancelled.is_set() and not step.get("late"):
                continue
            ended = self.take(step)
            if ended is not None:
                return ended
        return None

    def take(self, step: dict[str, Any]) -> dict[str, Any] | None:
        if "say" in step:
            self.update("agent_message_chunk", content={"type": "text", "text": step["say"]})
        elif "think" in step:
            self.update("agent_thought_chunk", content={"type": "text", "text": step["think"]})
        elif "update" in step:
            self.send({"method": "session/update", "params": {"sessionId": "ses-1", "update": step["update"]}})
        elif "raw" in step:
            self.write(step["raw"].encode() + b"\n")
        elif "long" in step:
            self.write(b"x" * step["long"])
        elif "cut" in step:
            self.write(step["cut"].encode())
            os._exit(0)
        elif "exit" in step:
            print("last words", file=sys.stderr, flush=True)
            os._exit(step["exit"])
        elif "silence" in step:
            (threading.Event() if self.script.get("stays") else self.cancelled).wait()
        elif "ask" in step:
            self.wait(self.ask(step["ask"], {"sessionId": "ses-1"}))
        elif "answer" in step:
            return {"result": step["answer"]}
        elif "error" in step:
            return {"error": step["error"]}
        elif "stop" in step:
            return {"result": {"stopReason": step["stop"], **step.get("fields", {})}}
        else:
            self.act(step.get("together") or [step])
        return None

    def act(self, calls: list[dict[str, Any]]) -> None:
        for call in calls:
            if call.get("announced", True):
                self.update("tool_call", status="pending", **about(call))
        waiting = [(call, self.permission(call) if call.get("asks", True) else None) for call in calls]
        for call, question in waiting:
            if question is None or self.permitted(question) or call.get("anyway"):
                self.perform(call)
            elif not self.cancelled.is_set():
                self.update("tool_call_update", toolCallId=call["call"], status="failed")
                if self.script.get("refusal_ends"):
                    return

    def permission(self, call: dict[str, Any]) -> int:
        options = call.get("options", OPTIONS)
        fields = {**about(call), **call.get("question", {})}
        return self.ask("session/request_permission", {"sessionId": "ses-1", "toolCall": fields, "options": options})

    def permitted(self, question: int) -> bool:
        outcome = self.wait(question).get("result", {}).get("outcome", {})
        return outcome.get("outcome") == "selected" and outcome["optionId"] in ("once", "always")

    def perform(self, call: dict[str, Any]) -> None:
        if self.cancelled.is_set():
            return
        self.update("tool_call_update", toolCallId=call["call"], status="in_progress")
        code = 0
        if "run" in call:
            process = subprocess.Popen(
                ["bash", "-c", call["run"]], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
            )
            self.running.append(process)
            code = process.wait()
        text = {"type": "content", "content": {"type": "text", "text": call.get("output", "ok")}}
        status = "completed" if code == 0 else "failed"
        self.update("tool_call_update", toolCallId=call["call"], status=status, content=[text])

    def ask(self, method: str, params: dict[str, Any]) -> int:
        self.last_id += 1
        self.answers[self.last_id] = queue.Queue()
        self.send({"id": self.last_id, "method": method, "params": params})
        return self.last_id

    def wait(self, question: int) -> dict[str, Any]:
        return self.answers[question].get()

    def update(self, update_kind: str, /, **fields: Any) -> None:
        self.take({"update": {"sessionUpdate": update_kind, **fields}})

    def send(self, message: dict[str, Any]) -> None:
        self.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def write(self, data: bytes) -> None:
        with self.writing:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()


def about(call: dict[str, Any]) -> dict[str, Any]:
    """The fields that describe a call."""
    announced = {
        "toolCallId": call["call"],
        "title": call.get("title", call["call"]),
        "kind": call.get("kind", "execute"),
    }
    given = {"rawInput": {"command": call["run"]}} if "run" in call else {}
    return {**announced, **given, **call.get("fields", {})}


if __name__ == "__main__":
    agent = Agent(json.loads(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None)
    threading.Thread(target=agent.read, daemon=True).start()
    agent.serve()
