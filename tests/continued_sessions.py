"""What a real client is told of a session that it does not have, or has only in part."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from proctor.policies import parse_policies
from proctor.policies.events import ErrorOccurred, MessageSent, RunStarted, SessionStarted, ToolCallStarted
from proctor.supervisor import MemoryStore, RunResult, UnknownSessionError, run_once
from proctor.supervisor.testing.fakes import PATIENCE_S

POLICY = parse_policies("{name: p, limits: {max_input_tokens: 1500, max_turns: {max: 6, scope: session}}}")


def ways(result: RunResult) -> tuple[Any, list[str]]:
    """How a run was meant to go on, and what of errors it recorded."""
    [started] = [event for event in result.events if isinstance(event, RunStarted)]
    errors = [event.code for event in result.events if isinstance(event, ErrorOccurred)]
    return started.metadata.get("continuation"), errors


def unlinked(file: Path) -> None:
    file.unlink()


def emptied(file: Path) -> None:
    file.write_bytes(b"")


def garbled(file: Path) -> None:
    file.write_bytes(b"\x00\xff nothing of the kind\n" * 5)


class ContinuedSessions:
    """Session `s` of a client over several runs, on machines with homes of their own; `damages` befall its file."""

    damages: tuple[Any, ...] = (unlinked, emptied, garbled)
    bench: Any
    conversation: str
    """What requests to its model have the conversation under."""

    @pytest.fixture(autouse=True)
    def place(self, bench: Any) -> None:
        """The client and its record."""
        self.bench, self.store = bench, MemoryStore()

    def say(self, text: str, *, command: str = "", used: int = 100) -> None:
        """The model says this next, and runs a command if one is given."""
        raise NotImplementedError

    def adapter(self, *, elsewhere: bool) -> Any:
        """The client on the first machine, or on another one with the same folder."""
        raise NotImplementedError

    def kept(self) -> Path:
        """The file in which the client keeps the conversation on the first machine."""
        raise NotImplementedError

    def left(self, run_id: str) -> list[int]:
        """The processes of a run."""
        raise NotImplementedError

    async def run(self, prompt: str, *, elsewhere: bool = False, **more: Any) -> RunResult:
        """A run of the session."""
        adapter = self.adapter(elsewhere=elsewhere)
        with anyio.fail_after(PATIENCE_S):
            return await run_once(adapter, prompt, policies=POLICY, store=self.store, session_id="s", **more)

    def sent(self) -> str:
        """What the model was sent last."""
        return str(self.bench.api.requests[-1][self.conversation])

    async def begin(self) -> None:
        """The first run calls a tool and says something."""
        self.say("I look", command="echo n is $((3 + 4))")
        self.say("noted")
        await self.run("remember n")

    async def test_a_session_of_another_machine_is_replayed_to_a_new_one(self) -> None:
        """In its order, before the prompt; nothing is counted or run again, and the next run resumes what began here.
        Where the caller wants the client's own session only, that is an error, and no model is asked.
        """
        await self.begin()
        before = len(self.bench.api.requests)
        with pytest.raises(UnknownSessionError, match="continuation=`replay` tells it the conversation") as caught:
            await self.run("which?", elsewhere=True, continuation="native")
        assert len(self.bench.api.requests) == before
        assert self.left(caught.value.partial.run_id) == []

        self.say("seven", used=1000)
        second = await self.run("which?", elsewhere=True)
        sent = self.sent()
        self.say("yes", used=1000)
        third = await self.run("sure?", elsewhere=True)

        assert (second.output, ways(second)) == ("seven", ("native", ["unknown_session"]))
        places = [sent.index(words) for words in ("remember n", "I look", "n is 7", "noted", "which?")]
        assert places == sorted(places)
        assert [event.content for event in second.events if isinstance(event, MessageSent)] == ["which?"]
        assert [event for event in second.events if isinstance(event, ToolCallStarted)] == []
        assert (second.usage.input_tokens, third.usage.input_tokens) == (1000, 1000)
        assert (third.output, ways(third)) == ("yes", ("native", []))
        started = [event async for event in self.store.read("s") if isinstance(event, SessionStarted)]
        first_id, second_id, third_id = (event.provider_session_id for event in started)
        assert first_id != second_id == third_id
        assert "which?" in self.sent()
        assert self.left(second.run_id) == self.left(third.run_id) == []

    async def test_a_conversation_that_the_client_cannot_read_is_replayed_to_it(self) -> None:
        """Whatever became of its file: one that is killed may leave an empty one. Each replay begins a conversation
        whose file is damaged next.
        """
        await self.begin()
        for damage in self.damages:
            damage(self.kept())
            self.say(f"seven, {damage.__name__}")
            later = await self.run("which?")

            assert (later.output, ways(later)) == (f"seven, {damage.__name__}", ("native", ["unknown_session"]))
            assert "n is 7" in self.sent()

    async def test_a_conversation_that_the_client_has_in_part_is_resumed_as_it_is(self) -> None:
        """Nobody but the client knows what it lacks; the record lacks nothing, and replay tells all of it."""
        await self.begin()
        file = self.kept()
        lines = file.read_bytes().splitlines(keepends=True)
        last = next(n for n, line in enumerate(lines) if b'"noted"' in line)
        file.write_bytes(b"".join(lines[:last]) + lines[last][:40])
        self.say("hm")
        second = await self.run("which?")
        native = self.sent()
        self.say("seven")
        await self.run("really?", continuation="replay")

        assert ways(second) == ("native", [])
        assert ("n is 7" in native, "noted" in native) == (True, False)
        assert "noted" in self.sent()
