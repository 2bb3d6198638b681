"""Fixtures: a session of Claude Code as its hooks see it, with a store in a file."""

import json
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from acp_bench import model_api
from hook_processes import HookProcesses, end_daemons

from proctor.adapters.hooks.decider import HookDecider, HookOptions
from proctor.adapters.hooks.messages import HookAnswer, Unmatched
from proctor.adapters.hooks.record import store_id
from proctor.adapters.hooks.settings import install, settings_path, settings_with_hooks
from proctor.adapters.kit import usage_log as usage
from proctor.adapters.stores import SQLiteStore
from proctor.policies import RunContext
from proctor.supervisor import Owner

__all__ = ["model_api"]


class HookedSession:
    """A session of the client, as its hooks see it. `forgetful`: each hook is evaluated from the event log alone, as
    after a restart of the daemon. `client` is the process of the hooks, if known.
    """

    def __init__(self, folder: Path, *, forgetful: bool) -> None:
        self._forgetful = forgetful
        self._decider: HookDecider | None = None
        self.client: Owner | None = None
        self.unmatched: Unmatched = "ask"
        self.context = RunContext()
        self.policy = folder / "policy.yaml"
        self.store = folder / "store.db"
        self.log = folder / "log" / "s.jsonl"
        self.prompt_id = "p1"

    def hook(self, name: str, **fields: Any) -> HookAnswer:
        data = {"session_id": "s", "hook_event_name": name, "prompt_id": self.prompt_id, **fields}
        data.setdefault("transcript_path", str(self.log))
        return self.raw(json.dumps(data).encode())

    def raw(self, data: bytes) -> HookAnswer:
        """The answer to the client's raw input."""
        if self._decider is None or self._forgetful:
            self.end()
            self._decider = HookDecider(self.line())
        return self._decider.answer_hook(data, self.client)[0]

    def check_clients(self) -> None:
        """The daemon checks its clients."""
        assert self._decider is not None
        self._decider.check()

    def line(self, name: str = "one", policy: Path | None = None) -> HookOptions:
        policies = (str(policy or self.policy),)
        line = HookOptions(name=name, policies=policies, store=self.store, store_id=store_id(self.store))
        return msgspec.structs.replace(line, unmatched=self.unmatched, context=self.context)

    def end(self) -> None:
        if self._decider is not None:
            self._decider.close()
            self._decider = None

    def pre(self, id: str, tool: str = "Bash", **tool_input: Any) -> HookAnswer:
        return self.hook("PreToolUse", tool_use_id=id, tool_name=tool, tool_input=tool_input)

    def post(self, id: str, tool: str = "Bash", response: Any = "", **tool_input: Any) -> HookAnswer:
        fields = {"tool_use_id": id, "tool_name": tool, "tool_input": tool_input, "tool_response": response}
        return self.hook("PostToolUse", **fields)

    def batch(self, *ids: str) -> HookAnswer:
        return self.hook("PostToolBatch", tool_calls=[{"tool_use_id": id, "tool_name": "Bash"} for id in ids])

    def prompt(self, prompt_id: str, text: str = "go", *, policy: str = "") -> HookAnswer:
        """A prompt, under another policy if one is given."""
        if policy:
            self.policy.write_text(policy)
        self.prompt_id = prompt_id
        return self.hook("UserPromptSubmit", prompt=text)

    def used(
        self,
        message: str,
        *,
        log: str = "",
        model: str = "claude-sonnet-4-5",
        call: str = "",
        text: str = "",
        **usage: Any,
    ) -> None:
        """The client writes a line of a response into its log, or into that of a subagent."""
        path = self.log.with_suffix("") / "subagents" / f"{log}.jsonl" if log else self.log
        path.parent.mkdir(parents=True, exist_ok=True)
        output_of: dict[str, Any] = {"id": message, "role": "assistant", "model": model, "usage": usage}
        output_of["content"] = [{"type": "tool_use", "id": call, "name": "Bash", "input": {}}] if call else []
        output_of["content"] += [{"type": "text", "text": text}] if text else []
        line = {"type": "assistant", "timestamp": datetime.now(UTC).isoformat(), "message": output_of}
        with path.open("a") as file:
            file.write(json.dumps(line) + "\n")

    async def events(self, *types: str) -> list[Any]:
        """The stored events, of these types if any are given."""
        async with SQLiteStore(self.store) as store:
            return [event async for event in store.read("s") if not types or event.type in types]

    async def using(self, use: Callable[[SQLiteStore], Awaitable[Any]]) -> Any:
        """The result of an operation on its store."""
        async with SQLiteStore(self.store) as store:
            return await use(store)


@pytest.fixture
def anyio_backend() -> str:
    """One backend: the daemon has its own loop, and the test only reads what it recorded."""
    return "asyncio"


@pytest.fixture
def hooked(tmp_path: Path) -> Iterator[HookProcesses]:
    """A hook under a policy that denies nothing."""
    hooked = HookProcesses(tmp_path)
    yield hooked
    end_daemons(hooked.store)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test in this process waits for a log that nobody writes."""
    monkeypatch.setattr(usage, "WAIT_S", 0.0)
    monkeypatch.setattr(usage, "WAIT_AT_THE_END_S", 0.0)


@pytest.fixture(params=[False, True], ids=["kept", "forgetful"])
def session(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[HookedSession]:
    """A session without events."""
    session = HookedSession(tmp_path, forgetful=request.param)
    yield session
    session.end()


@pytest.fixture
def governed(claude: Any, tmp_path: Path) -> Iterator[Any]:
    """The client in a folder whose settings enforce a policy; `govern(text)` writes it."""
    file, store = tmp_path / "policy.yaml", tmp_path / "store.db"

    def govern(policy: str, unmatched: Any = "ask", **permissions: Any) -> None:
        end_daemons(store)
        file.write_text(policy)
        path = settings_path(user=False, folder=claude.cwd)
        install(path, settings_with_hooks([file], store, home=claude.env["HOME"], unmatched=unmatched))
        settings = json.loads(path.read_text())
        path.write_text(json.dumps({**settings, "permissions": permissions or {"allow": ["Bash"]}}))

    claude.govern, claude.store = govern, store
    yield claude
    end_daemons(store)
