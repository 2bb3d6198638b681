"""The delivery of one event, with retries."""

import base64
import binascii
import fcntl
import hmac
import os
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from hashlib import sha256
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias
from urllib.parse import urlsplit

import anyio
import httpx
import msgspec
import tenacity

from proctor.policies.errors import os_words
from proctor.policies.events import EVENT_TYPES, Event, encode_event
from proctor.supervisor.errors import StoreError, UsageError
from proctor.supervisor.log import Outage, logger
from proctor.supervisor.ports.store import Store
from proctor.supervisor.watch.subscriptions import NOW, Subscription, Subscriptions

from ..kit.values import atomic_write

MEDIA = "application/cloudevents+json"
_encode = msgspec.json.Encoder(enc_hook=str).encode


def message_id(event: Event) -> str:
    """The id by which a receiver recognizes a repeated event: another event of that number, as there may be in a
    restored store, has another one.
    """
    return f"{event.session_id}.{event.seq}.{sha256(encode_event(event)).hexdigest()[:16]}"


def enveloped(event: Event, id: str, store_id: str) -> bytes:
    """An event as a CloudEvent, version 1.0, in its structured form; `subject` is the run."""
    envelope = {
        "specversion": "1.0",
        "id": id,
        "source": f"/proctor/{store_id}",
        "type": f"proctor.{event.type}",
        "subject": event.run_id,
        "time": event.at,
        "sessionid": event.session_id,
        "data": event,
        "datacontenttype": "application/json",
    }
    return _encode({name: value for name, value in envelope.items() if value not in ("", None)})


def signed(key: bytes, id: str, body: bytes, at: int) -> dict[str, str]:
    """The headers of a message sent at a time, in seconds since the epoch."""
    digest = hmac.digest(key, f"{id}.{at}.".encode() + body, "sha256")
    return {
        "content-type": MEDIA,
        "webhook-id": id,
        "webhook-timestamp": str(at),
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
    }


DEFAULT_TYPES = ("tool_approval_requested", "policy_violation", "run_completed", "run_failed", "run_cancelled")
SHORTEST = 16
_PREFIX = "whsec_"
"""The prefix of a secret in base64, as in Standard Webhooks."""


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A receiver. Times are in seconds.

    A try takes at most `timeout_s`; the waits between tries double from `first_wait_s` to `longest_wait_s`. An event
    that the receiver rejects (3xx, 4xx) is tried `refusals` times, after other errors until it is `oldest_s` old.
    """

    url: str
    key: bytes
    types: frozenset[str] = frozenset(DEFAULT_TYPES)
    timeout_s: float = 10
    first_wait_s: float = 1
    longest_wait_s: float = 60
    refusals: int = 5
    oldest_s: float = 24 * 3600


def target_of(url: str, secret: str | None, types: Collection[str] = ()) -> Target:
    """A receiver from command-line values. Raises UsageError for wrong ones, and for secrets in clear text; it shows
    nothing of an address but its host.
    """
    try:
        parts, host = urlsplit(url), httpx.URL(url).host
        usable = parts.scheme in ("http", "https") and host and parts.port != 0 and not parts.netloc.count("@")
    except (ValueError, httpx.InvalidURL):
        usable = False
    if not usable:
        raise UsageError("what `--webhook` has is not an address; use https://HOST/PATH, without a name and password")
    if parts.scheme == "http" and not _is_loopback(host):
        raise UsageError(f"`http://{host}` is not encrypted; use https://, or an address on loopback")
    unknown = sorted(set(types) - set(EVENT_TYPES))
    if unknown:
        raise UsageError(f"there is no event type `{unknown[0]}`; the page Events lists them")
    return Target(url=url, key=_key(secret), types=frozenset(types or DEFAULT_TYPES))


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _key(secret: str | None) -> bytes:
    if not secret:
        raise UsageError("a webhook needs a secret in PROCTOR_WEBHOOK_SECRET, which its receiver knows")
    if len(secret) < SHORTEST:
        raise UsageError(f"the webhook's secret must have at least {SHORTEST} characters")
    if not secret.startswith(_PREFIX):
        return secret.encode()
    try:
        return base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except binascii.Error:
        raise UsageError("the webhook's secret begins with `whsec_`, but what follows is not base64") from None


DeliveryStatus: TypeAlias = Literal["sent", "skipped", "gone"]
_LATER = (408, 425, 429)
"""Rejections that ask to try again later."""
_GONE = 410


class _RetryError(Exception):
    """The event did not arrive; `refused`: the receiver rejected it."""

    def __init__(self, why: str, *, refused: bool = False) -> None:
        super().__init__(why)
        self.refused = refused


class _GoneError(Exception):
    """The receiver wants no more events at all."""


class Courier:
    """Delivers events to one receiver, one after another."""

    def __init__(self, target: Target, store_id: str, client: httpx.AsyncClient, log: Any) -> None:
        self._target = target
        self._store_id = store_id
        self._client = client
        self._log = log
        self._too_old = Outage(log, "webhook.too_old")
        self._refused = 0

    async def deliver(self, event: Event) -> DeliveryStatus:
        """Send an event until it arrives or its bound is reached; a skipped event is logged, of many that are too old
        the first.
        """
        target = self._target
        if self._age_s(event) > target.oldest_s:
            self._too_old.met(why=f"events older than {target.oldest_s:g} s are not sent")
            return "skipped"
        self._too_old.over()
        self._refused = 0
        id = message_id(event)
        body = enveloped(event, id, self._store_id)
        tries = tenacity.AsyncRetrying(
            sleep=anyio.sleep,
            wait=tenacity.wait_random_exponential(multiplier=target.first_wait_s, max=target.longest_wait_s),
            retry=tenacity.retry_if_exception_type(_RetryError),
            stop=lambda state: self._enough(state, event),
            before_sleep=lambda state: self._note_retry(state, id),
            reraise=True,
        )
        try:
            await tries(self._once, id, body)
        except _RetryError as error:
            self._log.error("webhook.skipped", event_id=id, type=event.type, why=str(error))
            return "skipped"
        except _GoneError:
            self._log.error("webhook.gone", why="the receiver answered 410: nothing more is sent to it")
            return "gone"
        return "sent"

    async def _once(self, id: str, body: bytes) -> None:
        target = self._target
        headers = signed(target.key, id, body, round(datetime.now(UTC).timestamp()))
        try:
            with anyio.fail_after(target.timeout_s):
                async with self._client.stream("POST", target.url, content=body, headers=headers) as response:
                    status = response.status_code  # what else is answered is not read
        except TimeoutError:
            raise _RetryError(f"no answer within {target.timeout_s:g} s") from None
        except httpx.HTTPError as error:
            raise _RetryError(f"{type(error).__name__}: {error}") from None
        if status == _GONE:
            raise _GoneError
        if not 200 <= status < 300:
            why = f"status {status}{', a redirect, which is not followed' if status < 400 else ''}"
            raise _RetryError(why, refused=status < 500 and status not in _LATER)

    def _enough(self, state: tenacity.RetryCallState, event: Event) -> bool:
        error = state.outcome.exception() if state.outcome else None
        if isinstance(error, _RetryError) and error.refused:
            self._refused += 1
            return self._refused >= self._target.refusals
        return self._age_s(event) > self._target.oldest_s

    def _note_retry(self, state: tenacity.RetryCallState, id: str) -> None:
        if state.attempt_number in (1, 10, 100):
            error = state.outcome.exception() if state.outcome else None
            self._log.warning("webhook.again", event_id=id, attempt=state.attempt_number, why=str(error))

    def _age_s(self, event: Event) -> float:
        return 0.0 if event.at is None else (datetime.now(UTC) - event.at).total_seconds()


class CursorFile:
    """A file with a position in the store's log, written atomically."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._written: str | None = None

    def read(self) -> str | None:
        """The position; None if nothing was sent yet."""
        try:
            return self._written or self.path.read_text(encoding="ascii").strip() or None
        except FileNotFoundError:
            return None
        except (OSError, UnicodeError) as error:
            raise UsageError(f"`{self.path}` cannot be read: {os_words(error)}") from None

    def write(self, cursor: str) -> None:
        """Store a position. Where that fails, this is logged: what follows it may be sent again after a restart."""
        self._written = cursor
        try:
            with atomic_write(self.path) as file:
                file.write(cursor.encode("ascii"))
        except OSError as error:
            logger().warning("webhook.place_not_kept", path=str(self.path), why=os_words(error))


def scheme_of(address: str) -> str:
    """The kind of an address; what follows it may be a secret."""
    return address.partition("://")[0] if "://" in address else ""


@contextmanager
def cursor_of(store: Path, url: str, kind: str = "webhook") -> Iterator[CursorFile]:
    """The cursor of a receiver of a store. Raises UsageError while another process sends to it."""
    name = f"{store.name}.{kind}-{sha256(url.encode()).hexdigest()[:12]}"
    try:
        lock = os.open(store.with_name(f"{name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise UsageError(f"the place of the {kind} cannot be kept beside `{store}`: {os_words(error)}") from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            whom = urlsplit(url).netloc if kind == "webhook" else f"{scheme_of(url)}://..."
            raise UsageError(f"another process sends the events of `{store}` to `{whom}`") from None
        yield CursorFile(store.with_name(name))
    finally:
        os.close(lock)


KEPT_EVERY = 1_000
"""After this many skipped events, the position is stored as well."""
STORE_PAUSE_S = 1.0


async def begin(store: Store, cursor: CursorFile) -> None:
    """Store the end of the log as the position where none is stored: what comes from now on is sent.

    Raises UsageError for the position of another store, or one that an older copy lacks.
    """
    after = cursor.read()
    try:
        async with Subscriptions(store).subscribe(after=after or NOW) as events:
            cursor.write(str(events.cursor))
    except UsageError:
        raise UsageError(
            f"`{cursor.path}` has a position that this store lacks: it is another store's, or this is an older copy; "
            "remove it to send what comes from now on"
        ) from None


class Deliverer(Protocol):
    """Delivers one event after another."""

    async def deliver(self, event: Event) -> DeliveryStatus:
        """Send an event until it arrives or is given up."""
        ...


async def send(store: Store, target: Target, cursor: CursorFile) -> None:
    """Send events until cancelled, or until the receiver wants no more."""
    log = logger(webhook=urlsplit(target.url).netloc)
    async with httpx.AsyncClient(follow_redirects=False, timeout=None, trust_env=False) as client:
        await send_events(store, target.types, cursor, lambda store_id: Courier(target, store_id, client, log), log)


async def send_events(
    store: Store, types: Collection[str], cursor: CursorFile, deliverer: Callable[[str], Deliverer], log: Any
) -> None:
    """Deliver the events of these types, in order, from the cursor on, until cancelled or the receiver wants no more.

    Without a stored position, it begins with new events, as it does if an older copy takes the store's place: all
    that this has was sent. `deliverer` makes the deliverer for the store's id.
    """
    subscriptions = Subscriptions(store)
    outage = Outage(log, "webhook.store_unreadable")
    after, replaced = cursor.read(), ""
    while True:
        try:
            async with subscriptions.subscribe(after=after or NOW) as events:
                outage.over()
                if replaced:  # whoever reads this may rely on it that what is stored from now on arrives
                    log.error("webhook.store_replaced", why=replaced)
                    replaced = ""
                place = str(events.cursor)
                cursor.write(place)
                try:
                    return await _send(events, types, cursor, deliverer(place.rpartition(".")[0]))
                except StoreError as error:
                    if error.kind != "corrupt":
                        raise
                    log.error("webhook.unreadable", why=str(error))  # noqa: TRY400 - which event, not where here
                    cursor.write(str(events.cursor))  # it keeps none behind it from being sent
        except StoreError as error:
            if error.kind == "closed":
                return
            outage.met(why=str(error))
            await anyio.sleep(STORE_PAUSE_S)
        except UsageError as error:
            after, replaced = NOW, str(error)
            continue
        after = cursor.read()


async def _send(events: Subscription, types: Collection[str], cursor: CursorFile, deliverer: Deliverer) -> None:
    passed = 0
    async for event in events:
        if event.type in types:
            if await deliverer.deliver(event) == "gone":
                return
            passed = KEPT_EVERY
        passed += 1
        if passed >= KEPT_EVERY:
            cursor.write(str(events.cursor))
            passed = 0
