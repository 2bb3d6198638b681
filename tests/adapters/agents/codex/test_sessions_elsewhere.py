"""A thread that the real client does not have, or cannot read: what is replayed to it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import anyio
import pytest
from continued_sessions import provider_ids, ways

from proctor.policies.events import ToolCallStarted
from proctor.policies.limits import Limit, Limits
from proctor.policies.policy import Policy
from proctor.supervisor import MemoryStore, ProviderError, RunResult, UnknownSessionError, run_once
from proctor.supervisor.testing.fakes import PATIENCE_S

pytestmark = [pytest.mark.anyio, pytest.mark.codex]

POLICY = Policy(name="p", limits=Limits(max_input_tokens=1500, max_turns=Limit(max=6, scope="session")))


class Session:
    """One session of the real client over several runs."""

    def __init__(self, bench: Any) -> None:
        self.bench = bench
        self.store = MemoryStore()

    async def run(self, prompt: str, **more: Any) -> RunResult:
        """A run of it."""
        with anyio.fail_after(PATIENCE_S):
            return await run_once(
                self.bench.adapter(), prompt, policies=[POLICY], store=self.store, session_id="s", **more
            )

    def moves(self, used_home: Path) -> None:
        """From here on its client is on a machine with the same folder and another home."""
        self.bench.home = self.bench.home.with_name("elsewhere")
        shutil.copytree(used_home, self.bench.home)

    def kept(self) -> Path:
        """The file in which the client keeps the thread."""
        latest: Path = max(self.bench.home.rglob("rollout-*.jsonl"), key=lambda path: path.stat().st_mtime_ns)
        return latest

    def sent(self) -> str:
        """What the model was sent last."""
        return str(self.bench.api.requests[-1]["input"])


@pytest.fixture
async def session(bench: Any) -> Session:
    """A session whose first run called a tool and said something."""
    api, session = bench.api, Session(bench)
    api.reply(api.text("I look"), api.shell("c1", "echo n is $((3 + 4))"))
    api.reply(api.text("noted"))
    await session.run("remember n")
    return session


async def test_a_session_of_another_machine_is_replayed_to_a_new_one(session: Session, used_home: Path) -> None:
    """In its order, before the prompt; nothing is counted or run again, and the next run resumes what began here.
    Where the caller wants the client's own thread only, that is an error, and no model is asked. A client that its
    API refuses has the thread, and is not begun anew.
    """
    api = session.bench.api
    before = len(api.requests)
    session.moves(used_home)
    with pytest.raises(UnknownSessionError, match="continuation=`replay` tells it the conversation"):
        await session.run("which?", continuation="native")
    assert len(api.requests) == before

    api.reply(api.text("seven"), used=(1000, 5))
    second = await session.run("which?")
    sent = session.sent()
    api.reply(api.text("yes"), used=(1000, 5))
    third = await session.run("sure?")
    for _ in range(4):
        api.reply(status=500)
    with pytest.raises(ProviderError) as caught:
        await session.run("and?")

    assert (second.output, ways(second)) == ("seven", ("native", ["unknown_session"]))
    places = [sent.index(words) for words in ("remember n", "I look", "n is 7", "noted", "which?")]
    assert places == sorted(places)
    assert [event for event in second.events if isinstance(event, ToolCallStarted)] == []
    assert (second.usage.input_tokens, third.usage.input_tokens) == (1000, 1000)
    assert (third.output, ways(third)) == ("yes", ("native", []))
    assert not isinstance(caught.value, UnknownSessionError)
    first_id, second_id, third_id, refused_id = await provider_ids(session.store)
    assert first_id != second_id == third_id == refused_id
    session.bench.run_ids += [second.run_id, third.run_id]
    assert session.bench.survivors() == []


def unlinked(file: Path) -> None:
    file.unlink()


def emptied(file: Path) -> None:
    file.write_bytes(b"")


def garbled(file: Path) -> None:
    file.write_bytes(b"\x00\xff nothing of the kind\n" * 5)


async def test_a_thread_that_the_client_cannot_read_is_replayed_to_it(session: Session) -> None:
    """Whatever became of its file: one that is killed may leave an empty one. Each replay begins a thread whose file
    is damaged next.
    """
    for damage in (unlinked, emptied, garbled):
        damage(session.kept())
        session.bench.api.reply(session.bench.api.text(f"seven, {damage.__name__}"))
        later = await session.run("which?")

        assert (later.output, ways(later)) == (f"seven, {damage.__name__}", ("native", ["unknown_session"]))
        assert "n is 7" in session.sent()


async def test_a_thread_that_the_client_has_in_part_is_resumed_as_it_is(session: Session) -> None:
    """Nobody but the client knows that it lacks something; the record lacks nothing, and replay tells all of it."""
    file = session.kept()
    lines = file.read_bytes().splitlines(keepends=True)
    last = next(n for n, line in enumerate(lines) if b'"noted"' in line)
    file.write_bytes(b"".join(lines[:last]) + lines[last][:40])
    api = session.bench.api
    api.reply(api.text("hm"))
    second = await session.run("which?")
    native = session.sent()
    api.reply(api.text("seven"))
    await session.run("really?", continuation="replay")

    assert ways(second) == ("native", [])
    assert ("n is 7" in native, "noted" in native) == (True, False)
    assert "noted" in session.sent()
