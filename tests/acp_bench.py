"""A scripted ACP agent, and real agents with scripted model APIs on loopback."""

import itertools
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import loopback
import pytest

from proctor.adapters.agents.acp.adapter import AcpAdapter
from proctor.supervisor.testing.adapter_fixture import Drive, Driven
from proctor.supervisor.testing.fakes import PATIENCE_S

AGENT = Path(__file__).parent / "adapters" / "agents" / "acp" / "scripted_agent.py"
INSTALLED = Path(__file__).parents[1] / ".ci" / "node" / "node_modules" / ".bin"


class Scripts:
    """Adapters for the scripted agent, and the messages it received."""

    def __init__(self, root: Path) -> None:
        self.cwd = root / "work"
        self.received = root / "received.jsonl"
        self.cwd.mkdir()

    def adapter(self, *steps: dict[str, Any], adapter: dict[str, Any] | None = None, **script: Any) -> AcpAdapter:
        """An adapter whose agent runs these steps for its prompt.

        Args:
            steps: the actions for a prompt.
            adapter: more arguments of the adapter.
            script: more fields of the script.
        """
        written = json.dumps({"prompts": [list(steps)], **script})
        command = [sys.executable, str(AGENT), written, str(self.received)]
        return AcpAdapter(command, **{"name": "scripted", "cwd": self.cwd, **(adapter or {})})

    async def run(self, adapter: AcpAdapter, **gate: Any) -> Driven:
        """Run it to its end, in bounded time."""
        with anyio.fail_after(PATIENCE_S):
            return await Drive(adapter, **gate).run()

    def received_messages(self, method: str | None = None) -> list[dict[str, Any]]:
        """The messages that the agent received: those of a method, or the answers."""
        lines = [json.loads(line) for line in self.received.read_bytes().splitlines()]
        return [line for line in lines if line.get("method") == method]

    def outcomes(self) -> list[str]:
        """How the agent's questions were answered: the option, or `cancelled`."""
        given = [line.get("result", {}).get("outcome", {}) for line in self.received_messages()]
        return [str(outcome.get("optionId", outcome.get("outcome"))) for outcome in given]

    def made(self) -> list[str]:
        """The files in the working folder."""
        return sorted(path.name for path in self.cwd.iterdir())


_SCENE = re.compile("scene-([0-9a-f]+)-end")


class ModelAPI:
    """The model APIs of real agents: OpenAI's chat completions and Gemini's generateContent.

    The script is in the prompt, as `scene-HEX-end` with the hexadecimal of a JSON list of replies: {"text"} and/or
    {"calls": [[name, arguments], ...]}, "used": [in, out], "endless"; or {"status"}, an HTTP error. The conversation
    determines the next reply; after the last comes {"text": "end"}. A request that offers no tools gets {"text":
    "title"}; `requests` has every other. `otherwise` are the replies to prompts without a script,
    or functions of the request.
    """

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.otherwise: list[Any] = []
        self._numbers = itertools.count(1)
        self._server = loopback.Server(self._answer)
        self.url = self._server.url

    def close(self) -> None:
        """End endless replies and stop serving."""
        self._server.close()

    def _next_reply(self, request: dict[str, Any]) -> dict[str, Any]:
        if not request.get("tools"):
            return {"text": "title"}
        self.requests.append(request)
        replies, given = self.otherwise, 0
        for message in request.get("messages") or request["contents"]:
            if message["role"] == "user" and (found := _SCENE.findall(json.dumps(message))):
                replies, given = json.loads(bytes.fromhex(found[-1])), 0
            given += message["role"] in ("assistant", "model")
        reply = replies[given] if given < len(replies) else {"text": "end"}
        return reply(request) if callable(reply) else reply

    def _answer(self, request: loopback.Exchange) -> None:
        if request.method != "POST":
            request.give({"models": [], "data": []})
            return
        if ":countTokens" in request.path:
            request.give({"totalTokens": 10})
            return
        reply = self._next_reply(request.body)
        if "status" in reply:
            request.give({"error": {"code": 400, "message": "scripted"}}, status=reply["status"])
        else:
            answer = [_gemini(reply)] if "/models/" in request.path else [*self._chat(reply, request.body)]
            if ":stream" in request.path or request.body.get("stream"):
                request.stream(answer)
            else:
                request.give(answer[0])
        if reply.get("endless"):
            request.hold()

    def _chat(self, reply: dict[str, Any], request: dict[str, Any]) -> Iterator[dict[str, Any] | str]:
        """A reply as the chunks of a chat completion, or whole if no stream was requested."""
        calls = []
        for index, (name, arguments) in enumerate(reply.get("calls", ())):
            function = {"name": name, "arguments": json.dumps(arguments)}
            number = next(self._numbers)
            calls.append({"index": index, "id": f"call_{number:04}", "type": "function", "function": function})
        reason = "tool_calls" if calls else "stop"
        given, answered = reply.get("used", (100, 20))
        usage = {"prompt_tokens": given, "completion_tokens": answered, "total_tokens": given + answered}
        base = {"id": "c", "created": 0, "model": request["model"]}
        if not request.get("stream"):
            message = {"role": "assistant", "content": reply.get("text"), "tool_calls": calls or None}
            choice = {"index": 0, "message": message, "finish_reason": reason}
            yield {**base, "object": "chat.completion", "choices": [choice], "usage": usage}
            return
        base["object"] = "chat.completion.chunk"
        texts = [{"role": "assistant", "content": reply["text"]}] if "text" in reply else []
        for delta in [*texts, *({"tool_calls": [call]} for call in calls)]:
            yield {**base, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        if not reply.get("endless"):
            yield {**base, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}
            yield {**base, "choices": [], "usage": usage}
            yield "[DONE]"


def scene(*replies: dict[str, Any]) -> str:
    """A prompt to which the model gives these replies."""
    return f"please go: scene-{json.dumps(replies).encode().hex()}-end"


def _gemini(reply: dict[str, Any]) -> dict[str, Any]:
    """A reply as generated content."""
    parts: list[dict[str, Any]] = [{"text": reply["text"]}] if "text" in reply else []
    parts += [{"functionCall": {"name": name, "args": arguments}} for name, arguments in reply.get("calls", ())]
    given, answered = reply.get("used", (100, 20))
    usage = {"promptTokenCount": given, "candidatesTokenCount": answered, "totalTokenCount": given + answered}
    candidate: dict[str, Any] = {"index": 0, "content": {"role": "model", "parts": parts}}
    if not reply.get("endless"):
        candidate["finishReason"] = "STOP"
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "gemini-2.5-pro"}


class Bench:
    """Real agents with the scripted APIs, in temporary homes and without any other network."""

    def __init__(self, root: Path, api: ModelAPI) -> None:
        self.cwd = root / "work"
        self.home = root / "home"
        self._api = api
        self._before = len(api.requests)
        for folder in (self.cwd, self.home / ".gemini"):
            folder.mkdir(parents=True)

    def moves(self) -> None:
        """From now on, agents run on another machine: the same folder, another home."""
        self.home = self.home.with_name("elsewhere")
        (self.home / ".gemini").mkdir(parents=True)

    def another_minute(self) -> None:
        """Move Gemini's sessions to another minute; within one minute it overwrites them."""
        for session in self.home.glob(".gemini/tmp/*/chats/session-2*"):
            session.rename(session.with_name(session.name.replace("session-2", "session-1", 1)))

    def prompt(self, *replies: dict[str, Any]) -> str:
        """A prompt to which the model gives these replies."""
        return scene(*replies)

    def otherwise(self, *replies: dict[str, Any]) -> None:
        """The model's replies to unscripted prompts."""
        self._api.otherwise = list(replies)

    def command(self, name: str) -> list[str]:
        """The command of an installed agent; a test is skipped if the agent is missing."""
        program = shutil.which(name, path=f"{INSTALLED}{os.pathsep}{os.environ['PATH']}")
        if program is None:
            pytest.skip(f"needs the agent `{name}`: run .ci/npm-agents")
        return [program, "acp" if name == "opencode" else "--acp"]

    def agent(self, name: str, **options: Any) -> AcpAdapter:
        """An adapter for an installed agent."""
        given = {"name": name, "cwd": self.cwd, "env": self.environment(name), **options}
        return AcpAdapter(given.pop("command", None) or self.command(name), **given)

    def made(self) -> list[str]:
        """The files in the working folder."""
        return sorted(path.name for path in self.cwd.iterdir())

    def asked_model(self) -> list[dict[str, Any]]:
        """The requests that the model got in this test."""
        return self._api.requests[self._before :]

    def environment(self, name: str) -> dict[str, str]:
        """The complete environment of an agent."""
        own = {"opencode": self._opencode, "copilot": self._copilot}.get(name, self._gemini)()
        nowhere = "http://127.0.0.1:9"
        folders = {name: str(self.home / name) for name in ("CONFIG", "DATA", "CACHE", "STATE")}
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "TMPDIR": str(self.home),
            **{f"XDG_{name}_HOME": path for name, path in folders.items()},
            "HTTP_PROXY": nowhere,
            "HTTPS_PROXY": nowhere,
            "NO_PROXY": "127.0.0.1,localhost",
            "BUN_JSC_useDFGJIT": "0",  # opencode runs for seconds, too short to benefit from the optimising compiler
            "BUN_JSC_useGC": "0",  # and the garbage collector
            **own,
        }

    def _copilot(self) -> dict[str, str]:
        return {
            "COPILOT_OFFLINE": "true",
            "COPILOT_PROVIDER_BASE_URL": f"{self._api.url}/v1",
            "COPILOT_MODEL": "gpt-4.1",
            "XDG_CACHE_HOME": str(INSTALLED.parents[1] / "cache"),  # it unpacks 240 MB there
        }

    def _opencode(self) -> dict[str, str]:
        model = {
            "name": "m1",
            "tool_call": True,
            "cost": {"input": 3, "output": 15},
            "limit": {"context": 100000, "output": 8000},
        }
        provider = {
            "npm": "@ai-sdk/openai-compatible",
            "name": "Scripted",
            "options": {"baseURL": f"{self._api.url}/v1", "apiKey": "none"},
            "models": {"m1": model},
        }
        config = {
            "model": "scripted/m1",
            "small_model": "scripted/m1",
            "autoupdate": False,
            "share": "disabled",
            "permission": {"*": "ask", "read": "allow"},
            "provider": {"scripted": provider},
        }
        models = self.home / "models.json"
        models.write_text("{}")
        off = ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS")
        return {
            "OPENCODE_CONFIG_CONTENT": json.dumps(config),
            "OPENCODE_MODELS_PATH": str(models),  # reading its own list of models takes a second
            "npm_config_registry": "http://127.0.0.1:9",  # where it searches, for a minute, for types of plugins
            "npm_config_fetch_retries": "0",
            **{f"OPENCODE_DISABLE_{name}": "1" for name in off},
        }

    def _gemini(self) -> dict[str, str]:
        settings = {
            "security": {"auth": {"selectedType": "gemini-api-key"}},
            "telemetry": {"enabled": False},
            "privacy": {"usageStatisticsEnabled": False},
            "general": {"enableAutoUpdate": False},
            "model": {"name": "gemini-2.5-pro"},
        }
        (self.home / ".gemini" / "settings.json").write_text(json.dumps(settings))
        # otherwise it restarts itself as a child, which takes a second
        return {"GEMINI_CLI_NO_RELAUNCH": "1", "GEMINI_API_KEY": "none", "GOOGLE_GEMINI_BASE_URL": self._api.url}


@pytest.fixture
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """One backend, or the one that a test names: the conformance suite runs every end on both."""
    return str(getattr(request, "param", "trio"))


@pytest.fixture(scope="session")
def model_api() -> Iterator[ModelAPI]:
    """The scripted model APIs."""
    api = ModelAPI()
    yield api
    api.close()


@pytest.fixture
def bench(tmp_path: Path, model_api: ModelAPI) -> Bench:
    """Real agents."""
    return Bench(tmp_path, model_api)


@pytest.fixture
def scripts(tmp_path: Path) -> Scripts:
    """The scripted agent."""
    return Scripts(tmp_path)


@pytest.fixture
def touch() -> Callable[..., dict[str, Any]]:
    """A call that creates a file."""

    def call(file: str, **more: Any) -> dict[str, Any]:
        return {"call": f"c-{file}", "title": f"touch {file}", "run": f"touch {file}", **more}

    return call
