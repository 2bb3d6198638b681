"""`import messages_api`: a scripted Messages API on loopback, and an environment that reaches nothing else."""

import json
import os
import subprocess
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import loopback
import pytest

from proctor.supervisor.testing.fakes import PATIENCE_S

HERMETIC = {
    "ANTHROPIC_API_KEY": "dummy",
    "BUN_JSC_useDFGJIT": "0",  # a client runs for seconds, too short to benefit from the optimising compiler
    "BUN_JSC_useGC": "0",  # and the garbage collector
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "CLAUDE_CODE_MAX_RETRIES": "2",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "DISABLE_TELEMETRY": "1",
    "NO_PROXY": "127.0.0.1",
}


class Reply:
    """One scripted answer: content blocks with their usage, or an HTTP error; `after` delays its end."""

    def __init__(
        self,
        *blocks: Mapping[str, Any],
        status: int = 200,
        input_tokens: int = 100,
        output_tokens: int = 20,
        cache_read: int = 0,
        cache_write: int = 0,
        hold: threading.Event | None = None,
        cut: bool = False,
    ) -> None:
        self.blocks = [dict(block) for block in blocks]
        self.status = status
        self.usage = {
            "input_tokens": input_tokens,
            "cache_read_input_tokens": cache_read,
            "cache_creation_input_tokens": cache_write,
        }
        self.output_tokens = output_tokens
        self.hold = hold
        self.cut = cut


class MessagesAPI:
    """Answers each model request with the next reply of its thread: `script` for the main one, `sub_script` for
    requests whose first user message starts with "sub "; requests without tools get a short text.
    """

    def __init__(self) -> None:
        self.script: list[Reply] = []
        self.sub_script: list[Reply] = []
        self.requests: list[dict[str, Any]] = []
        self.arrived = threading.Condition()
        self._lock = threading.Lock()
        self._ids = 0
        self._holds: list[threading.Event] = []
        self._server = loopback.Server(self._answer)
        self.url = self._server.url

    def close(self) -> None:
        """Release every held stream and stop serving."""
        for hold in self._holds:
            hold.set()
        self._server.close()

    def say(self, *replies: Reply, sub: bool = False) -> None:
        """Add replies to a thread's script."""
        (self.sub_script if sub else self.script).extend(replies)
        self._holds.extend(reply.hold for reply in replies if reply.hold is not None)

    def new_id(self, prefix: str) -> str:
        with self._lock:
            self._ids += 1
            return f"{prefix}_{self._ids:04d}"

    def tool(self, name: str, **tool_input: Any) -> dict[str, Any]:
        """A tool_use block."""
        return {"type": "tool_use", "id": self.new_id("toolu"), "name": name, "input": tool_input}

    def bash(self, command: str, **more: Any) -> dict[str, Any]:
        """A tool_use block of the shell."""
        return self.tool("Bash", command=command, description="x", **more)

    def text(self, text: str) -> dict[str, Any]:
        """A text block."""
        return {"type": "text", "text": text}

    def reply(self, *blocks: Mapping[str, Any], **how: Any) -> Reply:
        """A reply; see Reply."""
        return Reply(*blocks, **how)

    def next_reply(self, body: dict[str, Any]) -> Reply:
        """Choose the reply to one request and store the request."""
        with self._lock:
            self.requests.append(body)
            script = self.sub_script if _of_sub_agent(body) else self.script
            if not body.get("tools"):
                reply = Reply({"type": "text", "text": "ok"}, input_tokens=0, output_tokens=0)
            else:
                reply = script.pop(0) if script else Reply({"type": "text", "text": "nothing more scripted"})
        with self.arrived:
            self.arrived.notify_all()
        return reply

    def _answer(self, request: loopback.Exchange) -> None:
        if request.method == "HEAD":
            request.give(b"")
            return
        if request.path.partition("?")[0] != "/v1/messages":
            request.give({}, status=404)
            return
        reply = self.next_reply(request.body)
        if reply.status != 200:
            error = {"type": "api_error", "message": f"scripted {reply.status}"}
            request.give({"type": "error", "error": error}, status=reply.status)
            return
        request.stream(_played(reply, self.new_id("msg"), request.body.get("model", "")))

    def wait_for_requests(self, count: int, timeout_s: float = 20) -> bool:
        """Block until a number of model requests have arrived."""
        with self.arrived:
            return self.arrived.wait_for(lambda: len(self.requests) >= count, timeout_s)


def _of_sub_agent(body: Mapping[str, Any]) -> bool:
    content = body["messages"][0]["content"]
    texts = [content] if isinstance(content, str) else [block.get("text", "") for block in content]
    return any(text.startswith("sub ") for text in texts)


def _played(reply: Reply, message_id: str, model: str) -> Iterator[dict[str, Any]]:
    """The events of a reply, held or cut after its first block if it says so."""
    for event in _sse(reply, message_id, model):
        yield event
        if event["type"] == "content_block_stop" and reply.hold is not None:
            reply.hold.wait()
        if event["type"] == "content_block_stop" and reply.cut:
            return


def _sse(reply: Reply, message_id: str, model: str) -> Iterator[dict[str, Any]]:
    message: dict[str, Any] = {
        "id": message_id,
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {**reply.usage, "output_tokens": 1},
    }
    yield {"type": "message_start", "message": message}
    for index, block in enumerate(reply.blocks):
        is_tool = block["type"] == "tool_use"
        start = {**block, "input": {}} if is_tool else {**block, "text": ""}
        delta = (
            {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
            if is_tool
            else {"type": "text_delta", "text": block["text"]}
        )
        yield {"type": "content_block_start", "index": index, "content_block": start}
        yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    stop = "tool_use" if any(block["type"] == "tool_use" for block in reply.blocks) else "end_turn"
    yield {
        "type": "message_delta",
        "delta": {"stop_reason": stop, "stop_sequence": None},
        "usage": {"output_tokens": reply.output_tokens},
    }
    yield {"type": "message_stop"}


@pytest.fixture(autouse=True)
def client_installed(request: pytest.FixtureRequest) -> None:
    """Skip the test if the real client is not installed."""
    if request.node.get_closest_marker("claude") is not None:
        pytest.importorskip("claude_agent_sdk", reason="needs Claude Code: pip install '.[claude]'")


@pytest.fixture
def api() -> Iterator[MessagesAPI]:
    """The scripted API, serving."""
    served = MessagesAPI()
    yield served
    served.close()


@pytest.fixture
def hermetic(api: MessagesAPI, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The client's environment: the scripted API, its own home, and nothing that reaches elsewhere."""
    for name in list(os.environ):
        if name.startswith(("ANTHROPIC_", "CLAUDE")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    home = tmp_path / "home"
    home.mkdir()
    (tmp_path / "work").mkdir()
    return {**HERMETIC, "ANTHROPIC_BASE_URL": api.url, "HOME": str(home), "CLAUDE_CONFIG_DIR": str(home / "claude")}


class Claude:
    """The real client in print mode, with a user's own settings."""

    def __init__(self, api: MessagesAPI, env: Mapping[str, str], cwd: Path) -> None:
        self.api = api
        self.cwd = cwd
        self.env = {"PATH": os.environ["PATH"], **env}

    def run(self, *arguments: str) -> dict[str, Any]:
        """Run one prompt to its end; returns the client's result."""
        ended = subprocess.run(
            self._command(*arguments),
            cwd=self.cwd,
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        if not ended.stdout:
            raise AssertionError(ended.stderr)
        result: dict[str, Any] = json.loads(ended.stdout)
        return result

    def start(self) -> subprocess.Popen[bytes]:
        """Start one prompt, which keeps running."""
        quiet = subprocess.DEVNULL
        return subprocess.Popen(self._command(), cwd=self.cwd, env=self.env, stdin=quiet, stdout=quiet)

    def _command(self, *arguments: str) -> list[str]:
        import claude_agent_sdk

        client = Path(claude_agent_sdk.__file__).parent / "_bundled" / "claude"
        return [str(client), "-p", "go", "--model", "claude-sonnet-4-5", "--output-format", "json", *arguments]

    def at_a_terminal(self) -> tuple[list[str], dict[str, str]]:
        """The command and the environment of an interactive session in a trusted folder."""
        config = Path(self.env["CLAUDE_CONFIG_DIR"]) / ".claude.json"
        config.parent.mkdir(parents=True, exist_ok=True)
        keys = {"approved": [self.env["ANTHROPIC_API_KEY"]], "rejected": []}
        folder = {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}
        state = {"hasCompletedOnboarding": True, "theme": "dark", "customApiKeyResponses": keys}
        config.write_text(json.dumps({**state, "projects": {str(self.cwd): folder}}))
        command = self._command()
        return [command[0], *command[3:5]], {**self.env, "TERM": "xterm-256color"}

    def tool_results(self) -> dict[str, str]:
        """The tool results in the last request to the model, by call."""
        found: dict[str, str] = {}
        for message in self.api.requests[-1]["messages"]:
            blocks = message["content"] if isinstance(message["content"], list) else []
            found |= {
                block["tool_use_id"]: str(block["content"]) for block in blocks if block["type"] == "tool_result"
            }
        return found


@pytest.fixture
def claude(api: MessagesAPI, hermetic: dict[str, str], tmp_path: Path) -> Claude:
    """The real client in a folder of its own."""
    return Claude(api, hermetic, tmp_path / "work")
