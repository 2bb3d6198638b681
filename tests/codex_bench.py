"""A scripted Responses API on loopback, and an environment in which the real client talks to nothing else."""

import json
import os
import shutil
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import loopback
import pytest
from proxy_processes import QUICK

from proctor.adapters.agents.codex import session
from proctor.adapters.agents.codex.adapter import CodexAdapter
from proctor.supervisor.testing.fakes import PATIENCE_S
from tests.claude_bench import ClientBench

Item = dict[str, Any]
MCP_SERVER = {"command": sys.executable, "args": [str(QUICK)]}


class Reply:
    """One scripted response: its items and usage, or an HTTP status; interrupted, silent after its items, or without
    any.
    """

    def __init__(
        self, *items: Item, used: tuple[int, int] = (100, 20), cached: int = 0, reasoning: int = 0,
        status: int = 200, cut: bool = False, endless: bool = False, mute: bool = False,
    ) -> None:  # fmt: skip
        self.items = items
        self.status = status
        self.cut = cut
        self.endless = endless
        self.mute = mute
        self.usage = {
            "input_tokens": used[0],
            "input_tokens_details": {"cached_tokens": cached},
            "output_tokens": used[1],
            "output_tokens_details": {"reasoning_tokens": reasoning},
            "total_tokens": sum(used),
        }


class ResponsesAPI:
    """Answers each request that offers tools with the next reply of the script, then with `end`."""

    def __init__(self) -> None:
        self.script: list[Reply] = []
        self.agents_script: list[Reply] = []
        self.requests: list[dict[str, Any]] = []
        self._news = threading.Condition()
        self._server = loopback.Server(self._answer)
        self.url = f"{self._server.url}/v1"

    def close(self) -> None:
        """End endless responses and stop serving."""
        self._server.close()

    def reply(self, *items: Item, **how: Any) -> None:
        """Add a reply to the script; see Reply."""
        self.script.append(Reply(*items, **how))

    def agent_reply(self, *items: Item, **how: Any) -> None:
        """Add a reply to the subagents' script; their requests are marked."""
        self.agents_script.append(Reply(*items, **how))

    def text(self, text: str) -> Item:
        """A message of the model."""
        content = [{"type": "output_text", "text": text, "annotations": []}]
        message = {"type": "message", "role": "assistant", "status": "completed", "content": content}
        return {**message, "id": f"msg_{uuid.uuid4().hex}"}

    def call(self, call_id: str, name: str, *, namespace: str | None = None, **arguments: Any) -> Item:
        """A function call of the model."""
        call = {"type": "function_call", "name": name, "arguments": json.dumps(arguments), "call_id": call_id}
        return {**call, "namespace": namespace} if namespace else call

    def shell(self, call_id: str, command: str, **arguments: Any) -> Item:
        """A command of the model."""
        return self.call(call_id, "exec_command", cmd=command, **arguments)

    def patch(self, call_id: str, *lines: str) -> Item:
        """A file change of the model."""
        text = "\n".join(("*** Begin Patch", *lines, "*** End Patch", ""))
        return {"type": "custom_tool_call", "name": "apply_patch", "input": text, "call_id": call_id}

    def scripted(self, call_id: str, *lines: str) -> Item:
        """A script by the model, in which newer models call all tools."""
        call = {"type": "custom_tool_call", "namespace": "functions", "name": "exec", "call_id": call_id}
        return {**call, "input": "\n".join(lines)}

    async def wait_for_requests(self, times: int = 1) -> None:
        """Wait until a number of responses were requested."""

        def count() -> None:
            with self._news:
                self._news.wait_for(lambda: len(self.requests) >= times, PATIENCE_S)

        with anyio.fail_after(PATIENCE_S):
            await anyio.to_thread.run_sync(count, abandon_on_cancel=True)

    def next_reply(self, request: dict[str, Any]) -> Reply:
        """Choose the reply to one request. Side requests offer no tools and get a harmless one."""
        with self._news:
            if not _tools(request):
                return Reply(self.text("{}"), used=(0, 0))
            self.requests.append(request)
            self._news.notify_all()
            script = self.agents_script if "x-openai-subagent" in request["client_metadata"] else self.script
            reply = script.pop(0) if script else Reply(self.text("end"))
            reply.items = tuple(item(request) if callable(item) else item for item in reply.items)
            return reply

    def _answer(self, request: loopback.Exchange) -> None:
        if request.method != "POST":
            request.give({"models": [], "data": []})
            return
        reply = self.next_reply(request.body)
        if reply.status != 200:
            request.give({"error": {"message": "scripted failure"}}, status=reply.status)
            return
        if not request.body.get("stream"):
            request.give(_response(reply, request.body))
            return
        if not reply.mute:
            request.stream(_sse(reply, request.body))
        if reply.mute or reply.endless:
            request.hold()

    def offered(self) -> list[str]:
        """The names of the tools that the client offered to the model last."""
        return [str(tool.get("name") or tool["type"]) for tool in _tools(self.requests[-1])]

    def result_of(self, call_id: str) -> str:
        """The result that the model got for one of its calls."""
        outputs = [item for item in self.requests[-1]["input"] if item["type"].endswith("_output")]
        return "".join(str(item["output"]) for item in outputs if item["call_id"] == call_id)


def _tools(request: dict[str, Any]) -> list[dict[str, Any]]:
    """The tools of a request. Newer models get them in their input; requests for a title have no commands."""
    added = [item["tools"] for item in request["input"] if item["type"] == "additional_tools"]
    offered = [tools for tools in added if "{ exec_command(" in str(tools) or "'exec_command'" in str(tools)]
    return [tool for tools in (request.get("tools") or [], *offered) for tool in tools]


def _response(reply: Reply, request: dict[str, Any]) -> dict[str, Any]:
    made = {"id": f"resp_{uuid.uuid4().hex}", "object": "response", "created_at": 1, "status": "completed"}
    required = {"model": request["model"], "tools": [], "tool_choice": "auto", "parallel_tool_calls": True}
    return {**made, **required, "output": reply.items, "usage": reply.usage}


def _sse(reply: Reply, request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    response = _response(reply, request)
    yield {"type": "response.created", "response": {**response, "output": [], "usage": None}}
    for index, item in enumerate(reply.items):
        at = {"output_index": index}
        if item["type"] == "message":
            yield {"type": "response.output_item.added", "item": {**item, "content": []}, **at}
            text = item["content"][0]["text"]
            yield {"type": "response.output_text.delta", "item_id": item["id"], "delta": text, **at}
        yield {"type": "response.output_item.done", "item": item, **at}
    if not reply.endless and not reply.cut:
        yield {"type": "response.completed", "response": response}


class Bench(ClientBench):
    """Adapters for the real client with the scripted API."""

    def __init__(self, api: ResponsesAPI, root: Path, used_home: Path) -> None:
        super().__init__()
        self.api = api
        self.cwd = root / "work"
        self.home = root / "home"
        self.cwd.mkdir()
        shutil.copytree(used_home, self.home)

    def adapter(self, *, config: dict[str, Any] | None = None, **options: Any) -> CodexAdapter:
        """An adapter whose client needs no login and talks only to the scripted API."""
        provider = {
            "name": "scripted", "base_url": self.api.url, "wire_api": "responses",
            "requires_openai_auth": False, "request_max_retries": 1, "stream_max_retries": 1,
        }  # fmt: skip
        quiet = {
            "features.enable_request_compression": False,
            "analytics.enabled": False,
            "features.shell_snapshot": False,
        }
        env = {"PATH": os.environ["PATH"], "HOME": str(self.home), "CODEX_HOME": str(self.home)}
        return CodexAdapter(
            **{"model": "gpt-5.5", "cwd": self.cwd, "env": env, "sandbox": "danger-full-access", **options},
            config={"model_provider": "scripted", "model_providers.scripted": provider, **quiet, **(config or {})},
        )

    def made(self, pattern: str = "[!.]*") -> list[str]:
        """The names of the files in the working folder, without the hidden ones of the sandbox."""
        return sorted(path.name for path in self.cwd.glob(pattern))


@pytest.fixture(autouse=True)
def client_installed(request: pytest.FixtureRequest) -> None:
    """Skip the test if the real client is not installed."""
    if request.node.get_closest_marker("codex") is not None:
        pytest.importorskip("codex_cli_bin", reason="needs the Codex client: pip install '.[codex]'")


@pytest.fixture
def api() -> Iterator[ResponsesAPI]:
    """The scripted API, serving."""
    served = ResponsesAPI()
    yield served
    served.close()


@pytest.fixture(scope="session")
def used_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home in which the client has already created its databases, which takes longer than a run."""
    home = tmp_path_factory.mktemp("home")
    if find_spec("codex_cli_bin") is not None:
        here = {"name": "here", "base_url": "http://127.0.0.1:9/v1", "requires_openai_auth": False}
        config = {"model_provider": "here", "model_providers.here": here}
        env = {"PATH": os.environ["PATH"], "HOME": str(home), "CODEX_HOME": str(home)}
        anyio.run(CodexAdapter(cwd=home, env=env, config=config).prepare)
    return home


@pytest.fixture
def bench(api: ResponsesAPI, tmp_path: Path, used_home: Path) -> Bench:
    """The real client with the scripted API."""
    return Bench(api, tmp_path, used_home)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let an interrupt take as long as it needs on a busy machine, so that later cancel steps are not reached."""
    monkeypatch.setattr(session, "INTERRUPT_S", PATIENCE_S)
    monkeypatch.setattr(session, "CLEAN_UP_S", PATIENCE_S)
    monkeypatch.setattr(session.CodexSession, "interrupt_s", 2 * PATIENCE_S)


@pytest.fixture
def stand_in(tmp_path: Path) -> Callable[[str], Path]:
    """Create an executable that starts as the client does and then follows a script."""

    def make(script: str) -> Path:
        path = tmp_path / "stand-in"
        path.write_text(STAND_IN.replace("SCRIPT", script))
        path.chmod(0o755)
        return path

    return make


STAND_IN = """#!/usr/bin/env python3
import json, sys
from pathlib import Path

def say(message): print(json.dumps(message), flush=True)
def hear(): return json.loads(sys.stdin.readline())
def report(told): say({"method": "told", "params": {"told": told}})
def record(payload):
    with RECORD.open("a") as lines: lines.write(json.dumps({"type": "response_item", "payload": payload}) + "\\n")

DONE = {"method": "turn/completed", "params": {"threadId": "t", "turn": {"id": "u", "status": "completed"}}}
TERMS = {"approvalPolicy": "untrusted", "approvalsReviewer": "user", "sandbox": {"type": "dangerFullAccess"}}
RECORD = Path(__file__).with_name("record")
THREAD = {"thread": {"id": "t", "path": str(RECORD)}, "model": "m", **TERMS}
ANSWERS = {"thread/start": THREAD, "turn/start": {"turn": {"id": "u"}}}
while True:
    message = hear()
    if "id" in message:
        say({"id": message["id"], "result": ANSWERS.get(message["method"], {})})
    if message.get("method") == "turn/start":
        break
SCRIPT
hear()
"""
