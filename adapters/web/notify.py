"""Requests for approval, sent to people through apprise: the call, the reason, and a link to its card on the page."""

import threading
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import anyio
import msgspec
import tenacity

from proctor.policies.events import Event, ToolApprovalRequested
from proctor.policies.values.foreign_code import isolated
from proctor.supervisor.errors import NotInstalledError, StoreError, UsageError
from proctor.supervisor.log import logger
from proctor.supervisor.ports.store import Store

from ..kit.display_text import escape_control_lines
from ..operations.identities import read_private
from ..operations.service import OperatorService
from ..operations.views import ApprovalView
from .webhook import CursorFile, DeliveryStatus, scheme_of, send_events

TYPES = frozenset(("tool_approval_requested",))
FIRST_WAIT_S = 1.0
LONGEST_WAIT_S = 60.0
SEND_S = 60.0
"""How long a message may take; then it is sent again."""
_SENDING = 4
"""How many messages to one address may be under way: one that has had its time keeps its thread."""
_MOST_LINES = 25
"""How many lines a message may have of the call, and as many of why it waits and whose it is."""
_LONGEST = 200
"""How many characters a line of it may have."""
_LONGEST_TASK = 100
"""How many of them the run's prompt may have, so that its other facts are there too."""


class Notify(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """People to notify of calls that wait.

    Attributes:
        to: Addresses as apprise writes them: `ntfys://ntfy.sh/TOPIC`, `mailto://...`, `slack://...`.
        page: The address under which people reach the page; by default that of `serve`.
    """

    to: tuple[str, ...]
    page: str | None = None


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The configuration file of `serve`."""

    notify: Notify


def read_config(file: str) -> Config:
    """A configuration file in YAML. Raises UsageError for one that is wrong or that others could read."""
    config = read_private(Path(file), Config, holds="addresses with their secrets")
    if not config.notify.to:
        raise UsageError(f"`{file}`: `notify.to` names nobody")
    return config


class Recipient:
    """One address that apprise knows, to which a message takes at most `send_s` seconds. Raises UsageError for one
    that it does not know.
    """

    def __init__(self, address: str, *, send_s: float = SEND_S) -> None:
        try:
            import apprise
        except ImportError:
            raise NotInstalledError("`notify` needs apprise", "notify") from None
        self.address = address
        self.kind = scheme_of(address)
        self._sender = apprise.Apprise()
        self._text = apprise.NotifyFormat.TEXT
        self._send_s = send_s
        self._free = threading.Semaphore(_SENDING)
        if not self._sender.add(address):
            raise UsageError(f"`notify.to` has an address that apprise does not know: `{self.kind}://...`")

    async def send(self, title: str, body: str) -> bool:
        """Send a message; False if it did not arrive in time, whatever a plug-in of apprise raises."""
        notify = partial(self._notify, title=title, body=body, body_format=self._text)
        try:
            with anyio.fail_after(self._send_s):
                return await anyio.to_thread.run_sync(notify, abandon_on_cancel=True)
        except Exception:
            return False

    def _notify(self, **message: Any) -> bool:
        """Send a message in this thread, unless too many are under way."""
        if not self._free.acquire(blocking=False):
            return False
        try:
            return bool(isolated(self._sender.notify, **message))
        finally:
            self._free.release()


class _NotSentError(Exception):
    """The message did not arrive."""


class _Notifier:
    """Notifies one recipient of each request until it arrives or needs no decision."""

    def __init__(self, recipient: Recipient, service: OperatorService, page: str) -> None:
        self._recipient = recipient
        self._service = service
        self._page = page
        self._log = logger(notify=recipient.kind)

    async def deliver(self, event: Event) -> DeliveryStatus:
        """Send a request; skip one that is closed before it arrives."""
        assert isinstance(event, ToolApprovalRequested)
        tries = tenacity.AsyncRetrying(
            sleep=anyio.sleep,
            wait=tenacity.wait_random_exponential(multiplier=FIRST_WAIT_S, max=LONGEST_WAIT_S),
            retry=tenacity.retry_if_exception_type(_NotSentError),
            before_sleep=self._note_retry,
        )
        status: DeliveryStatus = await tries(self._once, event)
        return status

    async def _once(self, event: ToolApprovalRequested) -> DeliveryStatus:
        try:
            approval = await self._service.approval(event.approval_id)
        except UsageError:
            return "skipped"
        except StoreError:
            raise _NotSentError from None
        if approval.approval_id != event.approval_id or not is_open(approval):  # it was pruned
            return "skipped"
        title, body = message(approval, self._page)
        if not await self._recipient.send(title, body):
            raise _NotSentError
        return "sent"

    def _note_retry(self, state: tenacity.RetryCallState) -> None:
        if state.attempt_number in (1, 10, 100):
            self._log.warning("notify.again", attempt=state.attempt_number, why="apprise could not deliver it")


def is_open(approval: ApprovalView) -> bool:
    """Whether an answer can still count."""
    in_time = approval.expires_at is None or approval.expires_at > datetime.now(UTC)
    return approval.state == "requested" and not (approval.ran or approval.lost) and in_time


def message(approval: ApprovalView, page: str) -> tuple[str, str]:
    """The title and the text of a notification, without secrets and control characters."""
    title = escape_control_lines(f"{approval.call.name} waits for a person")
    left_out = sum(edit.cut for edit in approval.shown.edits)
    shown = [*_bounded(_call_lines(approval), left_out), *_bounded(_reason_lines(approval))]
    where = ["Answer it in the agent's terminal."] if approval.asks_itself else []
    return title, "\n".join([*shown, *where, "", link(page, approval.approval_id)])


def link(page: str, approval_id: str) -> str:
    """The address of an approval's card."""
    return f"{page.rstrip('/')}/#/approvals/{quote(approval_id, safe='')}"


def _bounded(parts: Iterable[str], left_out: int = 0) -> Iterator[str]:
    """The first lines of these parts, and how many more there are with those that were left out before."""
    lines = [escape_control_lines(line) for part in parts for line in part.split("\n")]
    yield from (_beginning(line, _LONGEST) for line in lines[:_MOST_LINES])
    if more := max(len(lines) - _MOST_LINES, 0) + left_out:
        yield f"… {more} more lines on the page"


def _beginning(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _call_lines(approval: ApprovalView) -> Iterator[str]:
    shown = approval.shown
    for command in shown.commands:
        yield f"$ {command.line}"
    for edit in shown.edits:
        yield edit.path or "a file"
        yield from (f"{line.mark} {line.text}" for line in edit.lines)
        yield from _values(edit.rest)
    yield from _values(shown.rest)


def _reason_lines(approval: ApprovalView) -> Iterator[str]:
    for violation in approval.violations:
        yield f"Why: {violation.message}"
    if not approval.violations and approval.reason:
        yield f"Why: {approval.reason}"
    about = {"agent": approval.provider, "tenant": approval.tenant, "started by": approval.user}
    facts = ", ".join(f"{name} {value}" for name, value in about.items() if value)
    task = approval.prompt.partition("\n")[0] or approval.run_id
    yield f"Run: {_beginning(task, _LONGEST_TASK)}{f' ({facts})' if facts else ''}"
    if approval.expires_at is not None:
        yield f"Expires: {approval.expires_at:%Y-%m-%d %H:%M:%S} UTC"


def _values(values: dict[str, Any]) -> Iterator[str]:
    for name, value in values.items():
        yield f"{name}: {value if isinstance(value, str) else msgspec.json.encode(value, enc_hook=str).decode()}"


async def notify(store: Store, recipient: Recipient, page: str, cursor: CursorFile) -> None:
    """Notify a recipient of every request, once each, until cancelled."""
    notifier = _Notifier(recipient, OperatorService(store), page)
    await send_events(store, TYPES, cursor, lambda _: notifier, logger(notify=recipient.kind))
