"""A scripted agent, and real agents against scripted model APIs on loopback."""

import json
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from proctor.adapters.agents.acp.adapter import AcpAdapter
from proctor.supervisor.testing.adapter_fixture import Drive, Driven
from proctor.supervisor.testing.fakes import PATIENCE_S

HERE = Path(__file__).parent / "adapters" / "agents" / "acp"
AGENT = HERE / "scripted_agent.py"
APIS = HERE / "model_apis.py"
INSTALLED = Path(__file__).parents[1] / ".ci" / "node" / "node_modules" / ".bin"


class Scripts:
    """Adapters for the scripted agent, and what it was told."""

    def __init__(self, root: Path) -> None:
        self.cwd = root / "work"
        self.received = root / "received.jsonl"
        self.cwd.mkdir()

    def adapter(self, *steps: dict[str, Any], adapter: dict[str, Any] | None = None, **script: Any) -> AcpAdapter:
        """An adapter whose agent takes these steps for its prompt.

        Args:
            steps: what it does for a prompt.
            adapter: more arguments of the adapter.
            script: more of the script.
        """
        written = json.dumps({"prompts": [list(steps)], **script})
        command = [sys.executable, str(AGENT), written, str(self.received)]
        return AcpAdapter(command, **{"name": "scripted", "cwd": self.cwd, **(adapter or {})})

    async def run(self, adapter: AcpAdapter, **gate: Any) -> Driven:
        """Run it to its end, in bounded time."""
        with anyio.fail_after(PATIENCE_S):
            return await Drive(adapter, **gate).run(run_id=f"run-{uuid.uuid4().hex}")

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


class ModelAPI:
    """The scripted model APIs, serving."""

    def __init__(self, folder: Path) -> None:
        self.requests = folder / "requests.jsonl"
        self.requests.touch()
        self.otherwise = folder / "otherwise"
        self.otherwise.touch()
        command = [sys.executable, str(APIS), str(self.requests), str(self.otherwise)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.url = f"http://127.0.0.1:{int(self._process.stdout.readline())}"

    def close(self) -> None:
        """Stop them."""
        self._process.kill()
        self._process.communicate()


class Bench:
    """Real agents against the scripted APIs, in throw-away homes and without any other network."""

    def __init__(self, root: Path, api: ModelAPI) -> None:
        self.cwd = root / "work"
        self.home = root / "home"
        self._api = api
        self._before = api.requests.stat().st_size
        for folder in (self.cwd, self.home / ".gemini"):
            folder.mkdir(parents=True)

    def moves(self) -> None:
        """From here on agents are on a machine with the same folder and another home."""
        self.home = self.home.with_name("elsewhere")
        (self.home / ".gemini").mkdir(parents=True)

    def another_minute(self) -> None:
        """Gemini's sessions are of another minute: within theirs it writes over them."""
        for session in self.home.glob(".gemini/tmp/*/chats/session-2*"):
            session.rename(session.with_name(session.name.replace("session-2", "session-1", 1)))

    def prompt(self, *replies: dict[str, Any]) -> str:
        """A prompt to which the model gives these replies."""
        return f"please go: scene-{json.dumps(replies).encode().hex()}-end"

    def otherwise(self, *replies: dict[str, Any]) -> None:
        """What the model replies to prompts of somebody else's."""
        self._api.otherwise.write_text(json.dumps(replies).encode().hex())

    def command(self, name: str) -> list[str]:
        """Starts an installed agent; what needs it is skipped where it is not."""
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
        """The requests the model got in this test."""
        return [json.loads(line) for line in self._api.requests.read_bytes()[self._before :].splitlines()]

    def environment(self, name: str) -> dict[str, str]:
        """An agent's whole environment."""
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
            "BUN_JSC_useDFGJIT": "0",  # opencode lives for seconds, which repay neither the optimising compiler
            "BUN_JSC_useGC": "0",  # nor the garbage collector
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
            "OPENCODE_MODELS_PATH": str(models),  # its own list of models takes a second to read
            "npm_config_registry": "http://127.0.0.1:9",  # where it looks, for a minute, for types of plugins
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
        # without it, it starts itself once more as a child, which takes a second
        return {"GEMINI_CLI_NO_RELAUNCH": "1", "GEMINI_API_KEY": "none", "GOOGLE_GEMINI_BASE_URL": self._api.url}


@pytest.fixture
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """One, or the one that a test names: the conformance suite runs every ending on both."""
    return str(getattr(request, "param", "trio"))


@pytest.fixture(scope="session")
def model_api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelAPI]:
    """The scripted model APIs."""
    api = ModelAPI(tmp_path_factory.mktemp("model"))
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
    """A call that makes a file."""

    def call(file: str, **more: Any) -> dict[str, Any]:
        return {"call": f"c-{file}", "title": f"touch {file}", "run": f"touch {file}", **more}

    return call
