"""Checks for sessions that a real client resumes, lacks, or has only in part: what is replayed to it."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from proctor.policies import events as ev
from proctor.policies import parse_policies
from proctor.supervisor import MemoryStore, RunResult, Supervisor, UnknownSessionError, run_once

POLICY = parse_policies("{name: p, limits: {max_input_tokens: 1500, max_turns: {max: 6, scope: session}}}")


def continuations(result: RunResult) -> tuple[Any, list[str]]:
    """The intended continuation of a run, and the errors it recorded."""
    [started] = [event for event in result.events if isinstance(event, ev.RunStarted)]
    errors = [event.code for event in result.events if isinstance(event, ev.ErrorOccurred)]
    return started.metadata.get("continuation"), errors


def unlinked(file: Path) -> None:
    file.unlink()


def emptied(file: Path) -> None:
    file.write_bytes(b"")


def garbled(file: Path) -> None:
    file.write_bytes(b"\x00\xff nothing of the kind\n" * 5)


class ContinuedSessions:
    """Session `s` of a client over several runs, on machines with separate homes; `damages` modify its file."""

    damages: tuple[Any, ...] = (unlinked, emptied, garbled)
    bench: Any
    conversation: str
    """The key of the conversation in requests to its model."""

    @pytest.fixture(autouse=True)
    def place(self, bench: Any) -> None:
        """The client and its store."""
        self.bench, self.store = bench, MemoryStore()

    def say(self, text: str, *, command: str = "", used: int = 100) -> None:
        """The model's next message, with a command if one is given."""
        raise NotImplementedError

    def stay(self, command: str, *, in_background: bool) -> None:
        """The model's next command, which does not end."""
        raise NotImplementedError

    def adapter(self, *, elsewhere: bool) -> Any:
        """The client on the first machine, or on another one with the same folder."""
        raise NotImplementedError

    def kept(self) -> Path:
        """The file in which the client saves the conversation on the first machine."""
        raise NotImplementedError

    def left(self, run_id: str) -> list[int]:
        """The processes of a run."""
        raise NotImplementedError

    async def run(self, prompt: str, *, elsewhere: bool = False, **more: Any) -> RunResult:
        """A run of the session."""
        adapter = self.adapter(elsewhere=elsewhere)
        return await run_once(adapter, prompt, policies=POLICY, store=self.store, session_id="s", **more)

    def sent(self) -> str:
        """The last request to the model."""
        return str(self.bench.api.requests[-1][self.conversation])

    async def begin(self) -> None:
        """The first run calls a tool and writes a message."""
        self.say("I look", command="echo n is $((3 + 4))")
        self.say("noted")
        await self.run("remember n")

    @pytest.mark.parametrize("ends", ["answered", "with a call", "with a task in the background"])
    async def test_the_next_run_answers_its_own_prompt_and_has_nothing_else(self, ends: str) -> None:
        """However the earlier run ended, its events do not count again. A client that was ended first tells itself
        what became of its task; that is no answer to the prompt.
        """
        up = self.bench.cwd / "up"
        self.say("I look", command="echo 1")
        if ends != "answered":
            self.stay(f"touch {up}; tail -f /dev/null", in_background=ends != "with a call")
        if ends != "with a call":
            self.say("noted")
        async with Supervisor(self.store) as supervisor:
            first = self.adapter(elsewhere=False)
            handle = await supervisor.start(first, "go", policies=POLICY, session_id="s")
            if ends == "with a call":
                while not up.exists():
                    await anyio.sleep(0.05)
                await handle.cancel()
            await handle.wait()
        self.say("seven", used=1000)
        second = await self.run("which?", continuation="native")

        messages = [event.content for event in second.events if isinstance(event, ev.MessageReceived)]
        assert (second.output, messages) == ("seven", ["seven"])
        assert [event for event in second.events if isinstance(event, ev.ToolEvent)] == []
        assert second.usage.input_tokens == 1000
        assert "which?" in str(self.bench.api.requests[-1][self.conversation][-1])

    async def test_a_session_of_another_machine_is_replayed_to_a_new_one(self) -> None:
        """In order, before the prompt. Nothing is counted or run again, and the next run resumes the new session. If
        the caller allows only the client's own session, that is an error, and no model is called.
        """
        await self.begin()
        before = len(self.bench.api.requests)
        with pytest.raises(UnknownSessionError, match="the continuation `replay` gives it") as caught:
            await self.run("which?", elsewhere=True, continuation="native")
        assert len(self.bench.api.requests) == before
        assert self.left(caught.value.partial.run_id) == []

        self.say("seven", used=1000)
        second = await self.run("which?", elsewhere=True)
        sent = self.sent()
        self.say("yes", used=1000)
        third = await self.run("sure?", elsewhere=True)

        assert (second.output, continuations(second)) == ("seven", ("native", ["unknown_session"]))
        places = [sent.index(words) for words in ("remember n", "I look", "n is 7", "noted", "which?")]
        assert places == sorted(places)
        assert [event.content for event in second.events if isinstance(event, ev.MessageSent)] == ["which?"]
        assert [event for event in second.events if isinstance(event, ev.ToolCallStarted)] == []
        assert (second.usage.input_tokens, third.usage.input_tokens) == (1000, 1000)
        assert (third.output, continuations(third)) == ("yes", ("native", []))
        started = [event async for event in self.store.read("s") if isinstance(event, ev.SessionStarted)]
        first_id, second_id, third_id = (event.provider_session_id for event in started)
        assert first_id != second_id == third_id
        assert "which?" in self.sent()
        assert self.left(second.run_id) == self.left(third.run_id) == []

    async def test_a_conversation_that_the_client_cannot_read_is_replayed_to_it(self) -> None:
        """Whatever happened to its file: a killed client may leave an empty one. Each replay starts a conversation
        whose file is damaged next.
        """
        await self.begin()
        for damage in self.damages:
            damage(self.kept())
            self.say(f"seven, {damage.__name__}")
            later = await self.run("which?")

            assert (later.output, continuations(later)) == (
                f"seven, {damage.__name__}",
                ("native", ["unknown_session"]),
            )
            assert "n is 7" in self.sent()

    async def test_a_conversation_that_the_client_has_in_part_is_resumed_as_it_is(self) -> None:
        """Only the client knows what it lacks. The event log is complete, and a replay has all of it."""
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

        assert continuations(second) == ("native", [])
        assert ("n is 7" in native, "noted" in native) == (True, False)
        assert "noted" in self.sent()
