"""Two scripted model APIs on loopback, one process: `model_apis.py REQUESTS OTHERWISE`; prints its port.

Answers what real agents ask of their models: OpenAI's chat completions (streamed) and Gemini's generateContent.
The script is in the prompt, as `scene-HEX-end` with the hexadecimal of a JSON list of replies: {"text"} and/or
{"calls": [[name, arguments], ...]}, "used": [in, out], "endless"; or {"status"}, an HTTP error. The conversation
tells which reply is due; after the last comes {"text": "end"}. A request that offers no tools gets {"text": "title"}.
REQUESTS is a file that gets every request with tools as a line of JSON; OTHERWISE one with the replies to prompts
that have no script, as hexadecimal.
"""

import json
import pathlib
import re
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

END: dict[str, Any] = {"text": "end"}
SCENE = re.compile("scene-([0-9a-f]+)-end")


class Script:
    """The replies that prompts ask for."""

    def __init__(self, requests: str, otherwise: str) -> None:
        self._requests = requests
        self._otherwise = otherwise
        self._lock = threading.Lock()

    def next_reply(self, request: dict[str, Any]) -> dict[str, Any]:
        """The reply to a request."""
        if not request.get("tools"):
            return {"text": "title"}
        with self._lock, open(self._requests, "a") as file:
            file.write(json.dumps(request) + "\n")
        replies = read(pathlib.Path(self._otherwise).read_text())
        given = 0
        for message in request.get("messages") or request["contents"]:
            if message["role"] == "user" and (found := SCENE.findall(json.dumps(message))):
                replies, given = read(found[-1]), 0
            given += message["role"] in ("assistant", "model")
        return replies[given] if given < len(replies) else END


def read(script: str) -> list[dict[str, Any]]:
    """The replies of a script."""
    replies: list[dict[str, Any]] = json.loads(bytes.fromhex(script) or b"[]")
    return replies


def chat_chunks(reply: dict[str, Any]) -> list[dict[str, Any]]:
    """A reply as the chunks of a chat completion."""
    deltas: list[dict[str, Any]] = []
    if "text" in reply:
        deltas.append({"role": "assistant", "content": reply["text"]})
    for index, (name, arguments) in enumerate(reply.get("calls", ())):
        function = {"name": name, "arguments": json.dumps(arguments)}
        deltas.append(
            {"tool_calls": [{"index": index, "id": unique("call"), "type": "function", "function": function}]}
        )
    base = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "m1"}
    chunks = [{**base, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    if not reply.get("endless"):
        reason = "tool_calls" if reply.get("calls") else "stop"
        chunks.append({**base, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
        given, answered = reply.get("used", (100, 20))
        usage = {"prompt_tokens": given, "completion_tokens": answered, "total_tokens": given + answered}
        chunks.append({**base, "choices": [], "usage": usage})
    return chunks


def gemini_chunks(reply: dict[str, Any]) -> list[dict[str, Any]]:
    """A reply as the chunks of a generated content."""
    parts: list[dict[str, Any]] = [{"text": reply["text"]}] if "text" in reply else []
    parts += [{"functionCall": {"name": name, "args": arguments}} for name, arguments in reply.get("calls", ())]
    given, answered = reply.get("used", (100, 20))
    usage = {"promptTokenCount": given, "candidatesTokenCount": answered, "totalTokenCount": given + answered}
    candidate: dict[str, Any] = {"index": 0, "content": {"role": "model", "parts": parts}}
    if not reply.get("endless"):
        candidate["finishReason"] = "STOP"
    return [{"candidates": [candidate], "usageMetadata": usage, "modelVersion": "gemini-2.5-pro"}]


_count = 0


def unique(prefix: str) -> str:
    """An id that no other call has."""
    global _count
    _count += 1
    return f"{prefix}_{_count:04}"


def handler(script: Script) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            pass

        def do_GET(self) -> None:
            self.answer(b'{"models": [], "data": []}')

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or b"{}")
            if ":countTokens" in self.path:
                self.answer(b'{"totalTokens": 10}')
                return
            gemini = "/models/" in self.path
            reply = script.next_reply(request)
            if "status" in reply:
                self.answer(b'{"error": {"code": 400, "message": "scripted"}}', reply["status"])
                return
            chunks = gemini_chunks(reply) if gemini else chat_chunks(reply)
            if gemini and ":stream" not in self.path:
                self.answer(json.dumps(chunks[0]).encode())
                return
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("connection", "close")
            self.end_headers()
            for chunk in chunks:
                self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
                self.wfile.flush()
            if reply.get("endless"):
                threading.Event().wait()
            elif not gemini:
                self.wfile.write(b"data: [DONE]\n\n")

        def answer(self, body: bytes, status: int = 200) -> None:
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """An agent that goes away in the middle of a response is what some tests are about."""


if __name__ == "__main__":
    server = Server(("127.0.0.1", 0), handler(Script(*sys.argv[1:])))
    print(server.server_address[1], flush=True)
    server.serve_forever()
