"""A session that the real client does not have, or has only in part: what is replayed to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from continued_sessions import provider_ids, ways

from proctor.adapters.stores import MemoryStore
from proctor.policies import parse_policies
from proctor.policies.events import MessageSent, ToolCallStarted
from proctor.supervisor import RunResult, UnknownSessionError, run_once
from proctor.supervisor.testing.fakes import PATIENCE_S

pytestmark = [pytest.mark.claude, pytest.mark.anyio]
LIMITS = parse_policies("{name: p, limits: {max_input_tokens: 1500, max_turns: {max: 6, scope: session}}}")


class Session:
    """One session of the real client over several runs, on machines with homes of their own."""

    def __init__(self, bench: Any) -> None:
        self.bench = bench
        self.store = MemoryStore()

    async def run(self, prompt: str, *, home: str = "home", **more: Any) -> RunResult:
        """A run of it on a machine."""
        folder = self.bench.cwd.with_name(home)
        env = {"HOME": str(folder), "CLAUDE_CONFIG_DIR": str(folder / "claude")}
        adapter = self.bench.adapter(env=env)
        with anyio.fail_after(PATIENCE_S):
            return await run_once(adapter, prompt, policies=LIMITS, store=self.store, session_id="s", **more)

    def kept(self) -> Path:
        """The file in which the client keeps the conversation on the first machine."""
        found = [path for path in self.bench.cwd.with_name("home").rglob("*.jsonl") if path.is_file()]
        latest: Path = max(found, key=lambda path: path.stat().st_mtime_ns)
        return latest

    def sent(self) -> str:
        """What the model was sent last."""
        return str(self.bench.api.requests[-1]["messages"])


@pytest.fixture
async def session(bench: Any) -> Session:
    """A session whose first run called a tool and said something."""
    api, session = bench.api, Session(bench)
    api.say(api.reply(api.text("I look"), api.bash("echo n is $((3 + 4))")), api.reply(api.text("noted")))
    await session.run("remember n")
    return session


async def test_a_session_of_another_machine_is_replayed_to_a_new_one(session: Session) -> None:
    """In its order, before the prompt; nothing is counted or run again, and the next run resumes what began here.
    Where the caller wants the client's own session only, that is an error, and no model is asked.
    """
    api = session.bench.api
    before = len(api.requests)
    with pytest.raises(UnknownSessionError, match="continuation=`replay` tells it the conversation") as caught:
        await session.run("which?", home="elsewhere", continuation="native")
    assert len(api.requests) == before
    assert session.bench.marked(caught.value.partial.run_id) == []

    api.say(api.reply(api.text("seven"), input_tokens=1000), api.reply(api.text("yes"), input_tokens=1000))
    second = await session.run("which?", home="elsewhere")
    sent = session.sent()
    third = await session.run("sure?", home="elsewhere")

    assert (second.output, ways(second)) == ("seven", ("native", ["unknown_session"]))
    places = [sent.index(words) for words in ("remember n", "I look", "n is 7", "noted", "which?")]
    assert places == sorted(places)
    assert [event.content for event in second.events if isinstance(event, MessageSent)] == ["which?"]
    assert [event for event in second.events if isinstance(event, ToolCallStarted)] == []
    assert (second.usage.input_tokens, third.usage.input_tokens) == (1000, 1000)
    assert (third.output, ways(third)) == ("yes", ("native", []))
    first_id, second_id, third_id = await provider_ids(session.store)
    assert first_id != second_id == third_id
    assert "which?" in session.sent()
    assert session.bench.marked(second.run_id) == []


def unlinked(file: Path) -> None:
    file.unlink()


def emptied(file: Path) -> None:
    file.write_bytes(b"")


def garbled(file: Path) -> None:
    file.write_bytes(b"\x00\xff nothing of the kind\n" * 5)


def replaced(file: Path) -> None:
    file.unlink()
    file.mkdir()


async def test_a_conversation_that_the_client_cannot_read_is_replayed_to_it(session: Session) -> None:
    """Whatever became of its file; each replay begins a conversation whose file is damaged next."""
    api = session.bench.api
    for damage in (unlinked, emptied, garbled, replaced):
        damage(session.kept())
        api.say(api.reply(api.text(f"seven, {damage.__name__}")))
        later = await session.run("which?")

        assert (later.output, ways(later)) == (f"seven, {damage.__name__}", ("native", ["unknown_session"]))
        assert "n is 7" in session.sent()


async def test_a_conversation_that_the_client_has_in_part_is_resumed_as_it_is(session: Session) -> None:
    """Nobody but the client knows that it lacks something; the record lacks nothing, and replay tells all of it."""
    file = session.kept()
    lines = file.read_bytes().splitlines(keepends=True)
    last = next(n for n, line in enumerate(lines) if b'"noted"' in line)
    file.write_bytes(b"".join(lines[:last]) + lines[last][:40])
    api = session.bench.api
    api.say(api.reply(api.text("hm")), api.reply(api.text("seven")))
    second = await session.run("which?")
    native = session.sent()
    await session.run("really?", continuation="replay")

    assert ways(second) == ("native", [])
    assert ("n is 7" in native, "noted" in native) == (True, False)
    assert "noted" in session.sent()
