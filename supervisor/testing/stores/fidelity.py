"""That events come back as they were, whatever is in them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from proctor.policies.stream.codec import decode_event, encode_event
from proctor.policies.stream.events import RunStarted, ToolCallStarted, Unrecognized

from .checks import StoreChecks, kind_of_refusal, message, run_of, stored, texts


class FidelityChecks(StoreChecks):
    """That events come back as they were, whatever is in them."""

    async def test_any_text_comes_back_as_it_was(self) -> None:
        """Other scripts, control characters, quotes, the empty string; in ids too."""
        odd = ["", "\x00\x01", "日本語 🦑", "'; drop table events; --", '"\\', "e\u0301", "\u2028", " "]
        async with self.open_store() as store:
            for text in odd:
                session_id, run_id = f"s{text}", f"r{text}"
                [event] = await store.append([message(session_id, text, run_id=run_id, event_id=f"e{text}")])

                assert await stored(store, session_id, run_id=run_id) == [event]
                assert (await store.append([message(session_id, "x", event_id=f"e{text}")])) == [event]
                run = await run_of(store, run_id)
                assert run.session_id == session_id

    async def test_huge_events_are_kept_whole(self) -> None:
        """Megabytes in one event, beside small ones."""
        huge = "x" * 5_000_000
        async with self.open_store() as store:
            await store.append([message("s", "small"), message("s", huge), message("s", "small")])

            assert ["small", huge, "small"] == texts(await stored(store, "s"))

    async def test_deep_events_are_kept_or_refused_but_never_unreadable(self) -> None:
        """Whatever was acknowledged can be read again; two hundred levels must be possible."""
        async with self.open_store() as store:
            kept = 0
            for depth in (10, 200, *range(280, 320), 500, 900, 990, 5_000, 100_000):
                nested: Any = []
                for _ in range(depth):
                    nested = [nested]
                event = ToolCallStarted(session_id="s", tool_call_id="c", tool_name="t", tool_input={"n": nested})
                refused = await kind_of_refusal(store.append([event]))
                kept += refused is None

                assert refused in ((None,) if depth <= 200 else (None, "bad_record"))
                while nested:  # undone by hand: Python itself would fall over the deepest
                    nested = nested.pop()
            assert kept == len(await stored(store, "s"))

    async def test_unknown_events_are_kept_as_they_came(self) -> None:
        """To the byte, unknown fields and their order included."""
        line = b'{"type":"from_the_future","b":1,"a":{"z":[1.5,null],"y":"\xc3\xa9"},"session_id":"s","seq":7}'
        async with self.open_store() as store:
            event = decode_event(line)
            assert isinstance(event, Unrecognized)
            [kept] = await store.append([event])
            [read] = await stored(store, "s")

            assert line.replace(b'"seq":7', b'"seq":1') == encode_event(kept)
            assert encode_event(kept) == encode_event(read)

    async def test_times_come_back_exactly(self) -> None:
        """To the microsecond."""
        at = datetime(2026, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
        async with self.open_store() as store:
            await store.append([RunStarted(session_id="s", run_id="r", at=at)])
            [event] = await stored(store, "s")
            run = await store.run("r")

            assert event.at == at
            assert run is not None
            assert run.created_at == at

    async def test_what_was_appended_can_be_changed_without_changing_the_record(self) -> None:
        """The store shares no state with its callers."""
        given: dict[str, Any] = {"command": "ls"}
        async with self.open_store() as store:
            await store.append(
                [ToolCallStarted(session_id="s", tool_call_id="c", tool_name="bash", tool_input=given)]
            )
            given["command"] = "rm"
            [event] = await stored(store, "s")

            assert isinstance(event, ToolCallStarted)
            assert event.tool_input == {"command": "ls"}
