"""What a policy compiles to for a client, and the client base."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import psutil
import pytest

from proctor.adapters import AmpAdapter, ClaudeAdapter, CodexAdapter
from proctor.adapters.agents.amp import adapter as amp
from proctor.adapters.agents.claude import launch as claude
from proctor.adapters.agents.codex import adapter as codex
from proctor.adapters.agents.openai_agents import adapter as openai_agents
from proctor.adapters.agents.pydantic_ai import adapter as pydantic_ai
from proctor.adapters.kit import run_limits
from proctor.adapters.kit.client_process import ClientProcess, start_client
from proctor.adapters.kit.jsonrpc import ByteLines, EndlessLineError
from proctor.adapters.kit.launch_options import limit_options
from proctor.adapters.mcp_proxy.adapter import McpProxyAdapter
from proctor.policies import Policy, ToolCall, compile_policy, merge_policies, parse_policies
from proctor.supervisor import Adapter, LaunchOptions, ProviderUnavailableError
from proctor.supervisor.testing.fakes import PATIENCE_S

pytestmark = pytest.mark.anyio


def stack_of(*policies: dict[str, Any]) -> Policy:
    return merge_policies(
        [each for n, text in enumerate(policies) for each in parse_policies({"name": f"p{n}", **text})]
    )


COMPILE: dict[str, Callable[[Policy], LaunchOptions]] = {
    "claude": lambda policy: claude.compile_options(policy, {}),
    "codex": codex.compile_options,
    "amp": amp.compile_options,
    "openai_agents": lambda policy: limit_options(policy, openai_agents.OpenAIAgentsAdapter.limits),
    "pydantic_ai": lambda policy: limit_options(policy, pydantic_ai.LIMITS),
}


def has_a_shell(options: LaunchOptions) -> bool:
    """Whether the client starts with its shell."""
    given = options.options
    taken = given.get("disallowed_tools", ()), given.get("rejected", ())
    narrowed = "tools" in given and "Bash" not in given["tools"]
    without = given.get("features", {}).get("shell_tool") is False
    return not (narrowed or without or any({"Bash", "shell_command"} & set(names) for names in taken))


SHELL = ["Bash", "bash"]


@pytest.mark.parametrize("name", ["claude", "codex", "amp"])
def test_aliases_are_followed_as_the_gate_follows_them(name: str) -> None:
    """Whatever their case, and one through another: what an allow list admits through them is not taken away, what an
    entry denies is, and only that is said to be held by the client.
    """
    for aliases in (
        {"Reader": SHELL},
        {"Reader": ["commands"], "Commands": SHELL},
        {"READER": ["a"], "A": ["B"], "b": SHELL},
    ):
        allowing = stack_of({"tool_rules": [{"allow": ["reader"]}], "aliases": aliases})
        denying = COMPILE[name](stack_of({"tool_rules": [{"deny": ["reader", "other_thing"]}], "aliases": aliases}))

        assert compile_policy(allowing).monitor().propose(ToolCall(id="c", name="Bash")).action == "allow"
        assert has_a_shell(COMPILE[name](allowing))
        assert not has_a_shell(denying)
        assert "deny reader" in denying.expressed


@pytest.mark.parametrize("name", ["claude", "codex", "amp"])
@pytest.mark.parametrize(("policies", "taken"), [
    ([{"tool_rules": [{"deny": SHELL, "action": "warn"}]}], False),
    ([{"tool_rules": [{"deny": SHELL}], "on_violation": "request_approval"}], False),
    ([{"tool_rules": [{"deny": SHELL}], "on_violation": "warn"}, {"on_violation": "deny"}], True),
    ([{"tool_rules": [{"deny": SHELL, "when": [{"path": "$.tenant", "equals": "a"}]}]}], False),
])  # fmt: skip
def test_a_tool_is_taken_away_where_the_stack_refuses_its_calls_in_every_run(
    name: str, policies: list[dict[str, Any]], taken: bool
) -> None:
    """The action is the one that the clause has in the stack."""
    assert has_a_shell(COMPILE[name](stack_of(*policies))) is not taken


@pytest.mark.parametrize("name", ["claude", "openai_agents", "pydantic_ai"])
def test_a_limit_of_a_session_is_not_given_to_a_client_that_counts_a_run(name: str) -> None:
    """A client counts from 0 in each run: it would let every run of the session use the whole."""
    limits = {"max_turns": {"max": 5, "scope": "session"}, "max_output_tokens": {"max": 9, "scope": "session"}}
    options = COMPILE[name](stack_of({"limits": limits}))

    assert not {"max_turns", "request_limit", "output_tokens_limit", "env"} & set(options.options)
    assert options.expressed == ()


@pytest.mark.parametrize("name", ["claude", "openai_agents", "pydantic_ai"])
def test_of_several_limits_the_lowest_that_ends_a_run_is_given_to_the_client(name: str) -> None:
    """A weaker one beside it stays with the supervisor, and so the part counts as not held."""
    locked = {"locked": True, "limits": {"max_turns": {"max": 5, "action": "warn"}}}
    both = COMPILE[name](stack_of(locked, {"limits": {"max_turns": 7}}))
    alone = COMPILE[name](stack_of({"limits": {"max_turns": 7}}))

    assert [
        {**options.options}.get("max_turns", options.options.get("request_limit")) for options in (both, alone)
    ] == [7, 7]
    assert (both.expressed, alone.expressed) == ((), ("max_turns",))


def test_the_limits_of_a_run_are_the_lowest_of_each_kind() -> None:
    """Those of which the stack says more are given, and not called held."""
    stack = stack_of(
        {"locked": True, "limits": {"max_turns": 9, "max_cost_usd": {"max": 3, "scope": "session"}}},
        {"limits": {"max_turns": 4, "max_cost_usd": 2, "max_idle_ms": {"max": 5, "action": "warn"}}},
    )

    assert run_limits(stack) == ({"max_turns": 4.0, "max_cost_usd": 2.0}, frozenset({"max_turns"}))


NOWHERE: Any = None


@pytest.mark.parametrize(
    "adapter", [ClaudeAdapter({}), CodexAdapter(), AmpAdapter(), McpProxyAdapter(NOWHERE, NOWHERE, warn=print)]
)
def test_compiling_changes_nothing_of_the_adapter(adapter: Adapter) -> None:
    """A plan made for one policy stays what it is when another policy is compiled."""
    strict = stack_of({"tool_rules": [{"deny": SHELL}], "limits": {"max_turns": 3}})
    before = dict(vars(adapter))
    first = adapter.compile(strict)
    adapter.compile(stack_of({"tool_rules": [{"allow": ["Read"]}]}))

    assert (adapter.compile(strict), vars(adapter)) == (first, before)


FAILING = r"""
import sys
print(sys.stdin.read())
sys.stderr.write("old\n" * 50 + "z" * 9999 + "\nlast\n")
sys.exit(3)
"""


class Pieces:
    """A stream of bytes that brings these pieces and ends."""

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = list(pieces)

    async def receive(self, max_bytes: int = 65536) -> bytes:
        if not self._pieces:
            raise anyio.EndOfStream
        return self._pieces.pop(0)

    async def aclose(self) -> None: ...


@pytest.mark.parametrize(("pieces", "lines"), [
    ([b"a\nb", b"c\n"], [b"a", b"bc", b""]),
    ([b"a", b"b", b"\n\n", b"rest"], [b"ab", b"", b"rest"]),
    ([], [b""]),
])  # fmt: skip
async def test_lines_are_put_together_from_pieces(pieces: list[bytes], lines: list[bytes]) -> None:
    """What the stream ends with is the last."""
    assert [line async for line in ByteLines(Pieces(*pieces))] == lines  # type: ignore[arg-type]


async def test_a_line_without_end_is_an_error_after_those_before_it() -> None:
    """Its beginning is kept."""
    lines = ByteLines(Pieces(b"whole\n" + b"x" * 10, b"y" * 10), max_bytes=15)  # type: ignore[arg-type]
    first = await anext(lines)
    with pytest.raises(EndlessLineError) as caught:
        await anext(lines)

    assert first == b"whole"
    assert caught.value.start == b"x" * 10 + b"y" * 10


@asynccontextmanager
async def client_of(script: str, folder: Path, **how: Any) -> AsyncIterator[ClientProcess]:
    """A client that is a few lines of Python."""
    command = [sys.executable, "-S", "-c", script]
    with anyio.fail_after(PATIENCE_S):
        async with start_client("it", command, cwd=folder, env=os.environ, mark=uuid4().hex, **how) as client:
            yield client


async def test_a_client_that_failed_is_reported_with_its_last_words(tmp_path: Path) -> None:
    """The newest lines, each cut at its front."""
    async with client_of(FAILING, tmp_path) as client:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.read_stderr)
            await client.write_input("told")
            lines = [line async for line in ByteLines(client.stdout)]
        await client.wait_exit()
    error = client.exit_error("it failed")

    words = error.details["stderr"].split("\n")
    assert lines[0] == b"told"
    assert (str(error), error.details["exit_code"], words[-1], len(words)) == ("it failed", 3, "last", 20)
    assert len(words[-2]) == 4096


SLEEPS = "import time; time.sleep(10000)"


async def test_leaving_ends_a_client_that_does_not_leave_by_itself(tmp_path: Path) -> None:
    """Whether it would leave at the end of its input is known, and bounded."""
    for leaves in (True, False):
        async with client_of(SLEEPS, tmp_path, leaves=leaves) as client:
            assert client.exit_code is None

        assert client.exit_code == -9


async def test_a_guardian_whose_command_line_is_not_there_yet_is_left_to_end_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As while a program begins: killed by us, it would be taken for one that the agent killed."""
    shown = psutil.Process.cmdline
    empty: set[int] = set()

    def cmdline(process: psutil.Process) -> list[str]:
        line = shown(process)
        if process.pid in empty:
            return line
        empty.add(process.pid)
        return []

    async with client_of(SLEEPS, tmp_path, leaves=False) as client:
        monkeypatch.setattr(psutil.Process, "cmdline", cmdline)

    assert client.guardian_killed() is None
    assert client.exit_code == -9
    assert empty


AT_ITS_END = """
import pathlib, sys
print("up", flush=True)
sys.stdin.read()
pathlib.Path("end-of-input").touch()
"""


@pytest.mark.parametrize("leaves", [True, False])
async def test_only_a_client_that_leaves_by_itself_is_given_the_time_to(tmp_path: Path, leaves: bool) -> None:
    """At the end of its input it does what it has to do and ends; any other is ended with its input still open."""
    async with client_of(AT_ITS_END, tmp_path, leaves=leaves) as client:
        assert await anext(aiter(ByteLines(client.stdout))) == b"up"

    assert (tmp_path / "end-of-input").exists() is leaves
    assert client.exit_code == (0 if leaves else -9)


async def test_a_client_that_has_ended_is_not_waited_for(tmp_path: Path) -> None:
    """Its streams are closed with it, and nothing of it is left."""
    async with client_of("print('up')", tmp_path) as client:
        assert await anext(aiter(ByteLines(client.stdout))) == b"up"
        await client.wait_exit()

    assert client.exit_code == 0
    for stream in (client.stdout, client.stdin):
        with pytest.raises((anyio.ClosedResourceError, anyio.BrokenResourceError)):
            await (stream.receive() if hasattr(stream, "receive") else stream.send(b"x"))


async def test_a_client_that_cannot_be_started_is_named_with_what_to_do(tmp_path: Path) -> None:
    """In one error."""
    with pytest.raises(
        ProviderUnavailableError, match=r"it cannot be started: `.*/none`: no such file or directory; install it"
    ):
        async with start_client("it", [str(tmp_path / "none")], cwd=tmp_path, env={}, mark="r", advice="install it"):
            pass
