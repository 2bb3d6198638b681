"""The webhook with a receiver that accepts, fails, hangs, rejects or is down (docs: Webhook)."""

import base64
import hashlib
import hmac
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import loopback
import pytest
from cloudevents.v1.http import from_http
from page_blocks import ROOT, blocks
from stored_rows import in_store, stored_rows

from proctor.adapters.cli.exits import FAILED, code_of
from proctor.adapters.stores import SQLiteStore
from proctor.adapters.stores.sqlite.file import copy_store
from proctor.adapters.web.webhook import (
    CursorFile,
    DeliveryStatus,
    Target,
    begin,
    cursor_of,
    send,
    send_events,
    signed,
    target_of,
)
from proctor.policies import events as ev
from proctor.supervisor import RunInfo, Store, UsageError
from proctor.supervisor.ports.stored_types import LogPosition

SECRET = "a-secret-both-sides-know"
pytestmark = pytest.mark.anyio


class Receiver:
    """Stores what arrives; `answer` gives the status for each request, by its number from 1."""

    def __init__(self, answer: Callable[[int], int | None], port: int) -> None:
        self._answer = answer
        self.got: list[loopback.Exchange] = []
        self.taken: list[str] = []
        self._seen: set[str] = set()
        self._server = loopback.Server(self._take, port=port)
        self.port = int(self._server.url.rpartition(":")[2])
        self.url = f"{self._server.url}/hook?token=not-to-be-logged"

    def _take(self, exchange: loopback.Exchange) -> None:
        self.got.append(exchange)
        status = self._answer(len(self.got))
        if status is None:
            exchange.hold()
            return
        if status < 300 and exchange.headers["webhook-id"] not in self._seen:  # it may arrive again: at least once
            self._seen.add(exchange.headers["webhook-id"])
            self.taken.append(exchange.body["data"]["message"])
        exchange.give({}, status=status)

    async def until(self, *taken: str) -> None:
        """Return when exactly these have arrived."""
        while self.taken != list(taken):
            await anyio.to_thread.run_sync(threading.Event().wait, 0.01)

    def close(self) -> None:
        self._server.close()


@contextmanager
def receiving(answer: Callable[[int], int | None] = lambda n: 204, *, port: int = 0) -> Iterator[Receiver]:
    receiver = Receiver(answer, port)
    try:
        yield receiver
    finally:
        receiver.close()


def target(url: str, **more: Any) -> Target:
    patience = {"first_wait_s": 0.01, "longest_wait_s": 0.02, "timeout_s": 5.0} | more
    return Target(url=url, key=SECRET.encode(), types=frozenset(["policy_violation"]), **patience)


DAMAGING = """CREATE TRIGGER damaging AFTER INSERT ON events WHEN new.type = 'policy_violation'
    AND instr(new.data, CAST('damaged' AS BLOB))
    BEGIN UPDATE events SET data = x'00' WHERE position = new.position; END"""


def copied(place: Path) -> Path:
    """A copy of the store as it is now."""
    copy = place.with_name("copy.db")
    copy_store(place, copy)
    return copy


def restore(copy: Path, place: Path) -> None:
    """Replace the content of a store that is in use by that of a copy, as SQLite itself does it."""
    with closing(sqlite3.connect(copy)) as source, closing(sqlite3.connect(place)) as target:
        source.backup(target)


class Sending:
    """A store, and the webhook that is started and stopped on it."""

    def __init__(self, store: Store, place: Path) -> None:
        self.store = store
        self.place = place

    async def violated(self, message: str, *, ago_s: float = 0, session_id: str = "ses_1") -> None:
        """An event to send, and one that is not."""
        at = datetime.now(UTC) - timedelta(seconds=ago_s)
        about: dict[str, Any] = {"run_id": session_id.replace("ses", "run"), "session_id": session_id, "at": at}
        await self.store.append(
            [ev.MessageReceived(content="x", **about), ev.PolicyViolated(message=message, **about)]
        )

    @asynccontextmanager
    async def to(self, wanted: Target) -> AsyncIterator[CursorFile]:
        """Send while inside."""
        with cursor_of(self.place, wanted.url) as cursor:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(send, self.store, wanted, cursor)
                yield cursor
                tasks.cancel_scope.cancel()

    async def begun(self, receiver: Receiver, **more: Any) -> Target:
        """A target with a webhook started and stopped at once, so that there is a cursor."""
        wanted = target(receiver.url, **more)
        async with self.to(wanted) as cursor:
            while cursor.read() is None:
                await anyio.sleep(0.01)
        return wanted


@pytest.fixture
async def sending(tmp_path: Path) -> Any:
    """A store with a run."""
    place = tmp_path / "runs.db"
    async with SQLiteStore(place) as store:
        await store.create_run(RunInfo(run_id="run_1", session_id="ses_1"))
        await store.append([ev.RunStarted(run_id="run_1", session_id="ses_1")])
        yield Sending(store, place)


@pytest.fixture
def anyio_backend() -> str:
    """The server of the page runs on it."""
    return "asyncio"


@pytest.mark.parametrize(("secret", "key"), [
    (SECRET, SECRET.encode()),
    (f"whsec_{base64.b64encode(bytes(range(32))).decode()}", bytes(range(32))),
])  # fmt: skip
def test_the_receiver_of_the_page_accepts_genuine_messages_only(secret: str, key: bytes) -> None:
    """The key is the secret, or the base64 behind `whsec_` as the libraries of Standard Webhooks have it."""
    (code,) = [block.text for block in blocks(ROOT / "docs" / "reference" / "http.md") if block.kind == "python"]
    names: dict[str, Any] = {}
    exec(code, names)
    now = round(datetime.now(UTC).timestamp())
    headers = signed(target_of("https://receiver.example", secret).key, "id", b"{}", now)

    assert names["is_genuine"](headers, b"{}", key)
    assert not names["is_genuine"](headers, b"[]", key)
    assert not names["is_genuine"](signed(key, "id", b"{}", now - 3600), b"{}", key)


async def test_the_sent_message_is_a_signed_cloud_event(sending: Sending) -> None:
    """Parsed by the CloudEvents library. The signature follows Standard Webhooks, over id, time and body."""
    with receiving() as receiver:
        wanted = await sending.begun(receiver)
        await sending.violated("one")
        async with sending.to(wanted):
            await receiver.until("one")
        (exchange,) = receiver.got

    event = from_http(exchange.headers, exchange.raw)
    id, at = exchange.headers["webhook-id"], exchange.headers["webhook-timestamp"]
    digest = hmac.new(SECRET.encode(), f"{id}.{at}.".encode() + exchange.raw, hashlib.sha256).digest()
    assert (event["type"], event["subject"], event["id"]) == ("proctor.policy_violation", "run_1", id)
    assert event.data["message"] == "one"
    assert exchange.headers["webhook-signature"] == f"v1,{base64.b64encode(digest).decode()}"
    assert abs(int(at) - datetime.now(UTC).timestamp()) < 300


async def test_the_first_start_sends_only_new_events(sending: Sending) -> None:
    """A new receiver does not get the past. A restart continues from its cursor and loses nothing."""
    await sending.violated("before")
    with receiving() as receiver:
        wanted = await sending.begun(receiver)
        await sending.violated("one")
        async with sending.to(wanted):
            await receiver.until("one")
        await sending.violated("while it was down")
        async with sending.to(wanted):
            await receiver.until("one", "while it was down")


@pytest.mark.parametrize(("status", "times", "more", "taken"), [
    (503, 3, {}, ["one", "two"]),
    (None, 1, {"timeout_s": 0.2}, ["one", "two"]),
    (302, 3, {"refusals": 3}, ["two"]),
    (400, 3, {"refusals": 3}, ["two"]),
], ids=["fails", "hangs", "redirects", "refuses"])  # fmt: skip
async def test_a_failed_delivery_is_retried_in_order(
    sending: Sending, status: int | None, times: int, more: dict[str, Any], taken: list[str]
) -> None:
    """No event overtakes one that was not accepted, and the id stays the same. A request that hangs times out, a
    redirect is not followed, and a rejected event is given up eventually.
    """
    with receiving(lambda n: status if n <= times else 200) as receiver:
        wanted = await sending.begun(receiver, **more)
        await sending.violated("one")
        await sending.violated("two")
        async with sending.to(wanted):
            await receiver.until(*taken)

    tried = ["one"] * times + taken
    assert [each.body["data"]["message"] for each in receiver.got] == tried
    assert len({each.headers["webhook-id"] for each in receiver.got}) == 2
    assert {each.path for each in receiver.got} == {"/hook?token=not-to-be-logged"}


async def test_only_rejections_count_towards_giving_up_an_event(sending: Sending) -> None:
    """A proxy whose service was away for long may answer 404 for a moment when it is back."""
    with receiving(lambda n: {8: 404}.get(n, 503 if n < 8 else 204)) as receiver:
        wanted = await sending.begun(receiver)
        await sending.violated("one")
        async with sending.to(wanted):
            await receiver.until("one")


async def test_a_receiver_that_was_down_gets_everything_afterwards(
    sending: Sending, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody listens at first. The log says so, without the URL after the host."""
    with receiving() as receiver:
        wanted = await sending.begun(receiver)
    await sending.violated("one")
    await sending.violated("two")
    async with sending.to(wanted):
        while "webhook.again" not in caplog.text:
            await anyio.to_thread.run_sync(threading.Event().wait, 0.01)
        with receiving(port=receiver.port) as again:
            await again.until("one", "two")
    assert "not-to-be-logged" not in caplog.text


@pytest.mark.parametrize("live", [False, True])
async def test_an_unreadable_event_does_not_block_later_ones(
    sending: Sending, caplog: pytest.LogCaptureFixture, live: bool
) -> None:
    """Found at the webhook's start or as it comes; the log names it."""
    stored_rows(sending.place, DAMAGING)
    with receiving() as receiver:
        wanted = await sending.begun(receiver)
        await sending.violated("one")
        if not live:
            await sending.violated("damaged")
        async with sending.to(wanted):
            await receiver.until("one")
            if live:
                await sending.violated("damaged")
            await sending.violated("two")
            await receiver.until("one", "two")
    assert caplog.text.count("webhook.unreadable") == 1
    assert "record 5 of session `ses_1` cannot be read" in caplog.text


async def test_a_store_that_is_away_is_reported_once_and_read_again(
    sending: Sending, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As while its disk is not mounted. What was stored before is sent once it is back."""
    tries: list[str] = []
    usual = sending.store.place

    async def place() -> LogPosition:
        tries.append("place")
        return await usual()

    monkeypatch.setattr(sending.store, "place", place)
    monkeypatch.setattr("proctor.adapters.web.webhook.STORE_PAUSE_S", 0.01)
    away = sending.place.with_suffix(".away")
    with receiving() as receiver:
        wanted = await sending.begun(receiver)
        await sending.violated("one")
        sending.place.rename(away)
        async with sending.to(wanted):
            tries.clear()
            while len(tries) < 5:
                await anyio.to_thread.run_sync(threading.Event().wait, 0.01)
            away.rename(sending.place)
            await receiver.until("one")
    assert caplog.text.count("webhook.store_unreadable") == 1


async def test_a_cursor_that_cannot_be_stored_ends_nothing(
    sending: Sending, caplog: pytest.LogCaptureFixture
) -> None:
    """As on a full disk: each event is sent once meanwhile."""
    with receiving() as receiver:
        wanted = target(receiver.url)
        with cursor_of(sending.place, wanted.url) as cursor:
            cursor.path.mkdir()
            cursor.write(str(await sending.store.place()))
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(send, sending.store, wanted, cursor)
                for message in ("one", "two"):
                    await sending.violated(message)
                await receiver.until("one", "two")
                tasks.cancel_scope.cancel()
    assert "webhook.place_not_kept" in caplog.text


async def test_old_events_are_not_sent(sending: Sending, caplog: pytest.LogCaptureFixture) -> None:
    """A receiver that was down for days does not get all of them, nor what was imported. The log says so once."""
    with receiving() as receiver:
        wanted = await sending.begun(receiver, oldest_s=60)
        for _ in range(3):
            await sending.violated("old", ago_s=3600)
        await sending.violated("new")
        async with sending.to(wanted):
            await receiver.until("new")
    assert caplog.text.count("webhook.") == caplog.text.count("webhook.too_old") == 1


async def test_sending_continues_when_an_older_copy_takes_the_stores_place(
    sending: Sending, caplog: pytest.LogCaptureFixture
) -> None:
    """As after `.restore` in a SQLite shell: what is stored from then on arrives, also under a number that an event
    had which arrived before; the log says what happened.
    """
    older = copied(sending.place)
    with receiving() as receiver:
        wanted = await sending.begun(receiver)
        async with sending.to(wanted):
            for message in ("one", "two"):
                await sending.violated(message)
            await receiver.until("one", "two")
            restore(older, sending.place)
            while "webhook.store_replaced" not in caplog.text:
                await anyio.to_thread.run_sync(threading.Event().wait, 0.01)
            await sending.violated("three", session_id="ses_2")
            await sending.violated("four")
            await receiver.until("one", "two", "three", "four")


async def test_what_is_stored_as_the_log_says_that_the_store_was_replaced_arrives(sending: Sending) -> None:
    """At that very moment, by another process."""
    delivered: list[str] = []

    async def stores_two(store: Store) -> None:
        await Sending(store, sending.place).violated("two", session_id="ses_2")

    class Log:
        def error(self, name: str, **why: str) -> None:
            assert name == "webhook.store_replaced"
            with ThreadPoolExecutor(1) as pool:
                pool.submit(in_store, sending.place, stores_two).result()

        def warning(self, name: str, **why: str) -> None:
            """The store cannot be read while it is replaced."""

    class Receiving:
        async def deliver(self, event: ev.Event) -> DeliveryStatus:
            assert isinstance(event, ev.PolicyViolated)
            delivered.append(event.message)
            return "sent" if event.message == "one" else "gone"

    older = copied(sending.place)
    with cursor_of(sending.place, "http://localhost") as cursor:
        async with anyio.create_task_group() as tasks:
            sends = partial(send_events, sending.store, ["policy_violation"], cursor, lambda _: Receiving(), Log())
            tasks.start_soon(sends)
            while cursor.read() is None:
                await anyio.to_thread.run_sync(threading.Event().wait, 0.01)
            await sending.violated("one")
            while delivered != ["one"]:
                await anyio.to_thread.run_sync(threading.Event().wait, 0.01)
            restore(older, sending.place)

    assert delivered == ["one", "two"]


async def test_a_position_of_another_store_is_an_error_at_the_start_that_names_its_file(sending: Sending) -> None:
    """For an older copy, too. Without the file, it begins with new events."""
    older = copied(sending.place)
    with receiving() as receiver:
        wanted = await sending.begun(receiver)
        await sending.violated("one")
        async with sending.to(wanted):
            await receiver.until("one")
        other = sending.place.with_name("other.db")
        SQLiteStore(other)
        for place in (other, older):
            async with SQLiteStore(place) as store:
                with (
                    cursor_of(sending.place, wanted.url) as cursor,
                    pytest.raises(UsageError, match=f"`{cursor.path}` has a position that this store lacks"),
                ):
                    await begin(store, cursor)
                with cursor_of(place, wanted.url) as cursor:
                    await begin(store, cursor)
                    await begin(store, cursor)


async def test_a_receiver_that_unsubscribes_gets_no_more(sending: Sending) -> None:
    """With status 410. Events that it did not accept are kept for the next start."""
    with receiving(lambda n: 410 if n == 1 else 200) as receiver:
        wanted = await sending.begun(receiver)
        await sending.violated("one")
        with cursor_of(sending.place, wanted.url) as cursor:
            await send(sending.store, wanted, cursor)
        assert len(receiver.got) == 1
        async with sending.to(wanted):
            await receiver.until("one")


@pytest.mark.parametrize(("kind", "address", "whom"), [
    ("webhook", "https://ops.example/x", "ops.example"), ("notify", "slack://hunter2/hunter2", "slack://..."),
])  # fmt: skip
async def test_one_process_sends_at_a_time(tmp_path: Path, kind: str, address: str, whom: str) -> None:
    """Two would send everything twice. For a person's address, whose host may be a secret, only the kind is named."""
    with (
        cursor_of(tmp_path / "runs.db", address, kind),
        pytest.raises(UsageError, match=f"another process .* to `{whom}`"),
        cursor_of(tmp_path / "runs.db", address, kind),
    ):
        pass


@pytest.mark.skipif(not Path("/sys").is_dir(), reason="needs a file system in which nobody can make a file")
async def test_a_place_that_cannot_be_kept_is_a_failure_of_the_machine() -> None:
    """As any file that cannot be written."""
    cursor = cursor_of(Path("/sys/runs.db"), "https://ops.example/x")
    with pytest.raises(UsageError, match="the place of the webhook cannot be kept beside") as raised, cursor:
        pass

    assert code_of(raised.value) == FAILED


@pytest.mark.parametrize(("url", "secret", "types", "message"), [
    ("ops.example/hook", SECRET, (), "is not an address"),
    ("https://ana:pw@ops.example", SECRET, (), "is not an address"),
    ("https://[::1", SECRET, (), "is not an address"),
    ("https://ops.example:99999/hook", SECRET, (), "is not an address"),
    ("https://ana:short@ops.example/hook", SECRET, (), "is not an address"),
    ("http://ops.example/hook", SECRET, (), "not encrypted"),
    ("http://ops.example/hook/short", SECRET, (), "`http://ops.example` is not encrypted"),
    ("https://ops.example/hook", None, (), "needs a secret"),
    ("https://ops.example/hook", "short", (), "at least 16"),
    ("https://ops.example/hook", "whsec_not base64 at all", (), "not base64"),
    ("https://ops.example/hook", SECRET, ("run_finished",), "no event type `run_finished`"),
])  # fmt: skip
async def test_an_invalid_target_is_one_error(
    url: str, secret: str | None, types: tuple[str, ...], message: str
) -> None:
    """Without the secret, and without what follows the host, which may be one."""
    with pytest.raises(UsageError, match=message) as raised:
        target_of(url, secret, types)

    assert "short" not in str(raised.value)
