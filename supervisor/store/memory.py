"""The in-memory Store: what a durable store promises, but for the time of one process and event loop."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from itertools import dropwhile, islice

import anyio
import anyio.lowlevel
import msgspec

from proctor.policies.stream.events import Event, SessionEvent

from ..errors import StoreError
from ..ports import ANY_RUN, LogEntry, Mail, Place, RunFilter, RunInfo, SessionInfo
from .codec import NEWS, from_record, status_after, to_record
from .selection import meets
from .tally import COUNTED, Tally, owners


class _Session:
    """One session's records: `data[n]` and `run_ids[n]` belong to seq n + 1."""

    __slots__ = ("data", "info", "run_ids", "seq_of")

    def __init__(self, session_id: str) -> None:
        self.info = SessionInfo(session_id=session_id)
        self.data: list[bytes] = []
        self.run_ids: list[str] = []
        self.seq_of: dict[str, int] = {}

    def note(self, event: Event) -> None:
        """Let the session's own line follow from an event."""
        info = self.info
        found = event.provider_session_id if isinstance(event, SessionEvent) else None
        if (event.provider and not info.provider) or (found and found != info.provider_session_id):
            self.info = msgspec.structs.replace(
                info,
                provider=info.provider or event.provider,
                provider_session_id=found or info.provider_session_id,
            )


def _places(kept: Sequence[object], after: int, newest_first: bool) -> Iterator[int]:
    """Where what comes after so many stands; what is kept meanwhile comes too, unless the newest come first."""
    if newest_first:
        yield from range(len(kept) - 1, max(after, 0) - 1, -1)
        return
    n = max(after, 0)
    while n < len(kept):
        yield n
        n += 1


class MemoryStore:
    """Keeps everything in this process. No method but `wait` suspends, so every append is one unit.

    Records are kept encoded: what is read is what a durable store would give, and nobody shares state
    with what was appended.
    """

    def __init__(self) -> None:
        self._sessions: dict[str, _Session] = {}
        self._runs: dict[str, RunInfo] = {}
        self._log: list[tuple[_Session, int]] = []
        self._id = uuid.uuid4().hex[:16]
        self._mail: list[Mail] = []
        self._version = 1
        self._waiting: list[anyio.Event] = []
        self._closed = False

    async def append(self, events: Sequence[Event]) -> list[Event]:
        """Store events as one unit; see `Store.append`."""
        self._check_open()
        result: list[Event] = []
        fresh: list[tuple[Event, bytes]] = []
        next_seq: dict[str, int] = {}
        new_ids: dict[tuple[str, str], Event] = {}
        for event in events:
            session_id, event_id = event.session_id, event.event_id
            stored = (self._stored(event) or new_ids.get((session_id, event_id))) if event_id else None
            if stored is None:
                seq = next_seq.get(session_id) or self._last_seq(session_id) + 1
                record = to_record(event, seq)
                stored = record[0]
                next_seq[session_id] = seq + 1
                fresh.append(record)
                if event_id:
                    new_ids[session_id, event_id] = stored
            result.append(stored)
        self._keep(fresh)
        if fresh:
            self._ring()
        return result

    async def read(
        self, session_id: str, *, after: int = 0, run_id: str | None = None, newest_first: bool = False
    ) -> AsyncIterator[Event]:
        """The stored events of a session with seq > after, in order; see `Store.read`."""
        self._check_open()
        session = self._sessions.get(session_id)
        if session is None:
            return
        for n in _places(session.data, after, newest_first):
            if run_id is None or session.run_ids[n] == run_id:
                yield from_record(session.data[n], session_id=session_id, seq=n + 1)

    async def log(
        self, *, after: int = 0, tenant: str | None = None, newest_first: bool = False
    ) -> AsyncIterator[LogEntry]:
        """The stored events of all sessions; see `Store.log`."""
        self._check_open()
        for n in _places(self._log, after, newest_first):
            entry = self._entry(n)
            if tenant in (None, entry.tenant):
                yield entry

    async def place(self) -> Place:
        """After the latest stored event."""
        self._check_open()
        return Place(store_id=self._id, position=len(self._log))

    async def last_seq(self, session_id: str) -> int:
        """The seq of a session's latest event, 0 when it has none."""
        self._check_open()
        return self._last_seq(session_id)

    async def create_run(self, run: RunInfo) -> None:
        """Register a run before it starts; see `Store.create_run`."""
        self._check_open()
        if not run.run_id or not run.session_id:
            raise StoreError("a run needs a run_id and a session_id", kind="bad_record")
        if run.run_id in self._runs:
            raise StoreError(f"run `{run.run_id}` exists already; choose another id", kind="run_exists")
        tenant, labels = owners(run.spec)
        self._runs[run.run_id] = msgspec.structs.replace(run, tenant=tenant, labels=labels)
        self._session(run.session_id)
        self._ring()

    async def run(self, run_id: str) -> RunInfo | None:
        """A run with its status as the stored events have it, or None."""
        self._check_open()
        return self._runs.get(run_id)

    async def runs(
        self,
        *,
        limit: int = 100,
        session_id: str | None = None,
        before: str | None = None,
        where: RunFilter = ANY_RUN,
    ) -> list[RunInfo]:
        """Newest first; see `Store.runs`."""
        self._check_open()
        newest_first: Iterator[RunInfo] = reversed(self._runs.values())
        if before is not None:
            newest_first = dropwhile(lambda run: run.run_id != before, newest_first)
            next(newest_first, None)
        found = (run for run in newest_first if session_id in (None, run.session_id) and meets(run, where))
        return list(islice(found, max(limit, 0)))

    async def session(self, session_id: str) -> SessionInfo | None:
        """A session, or None."""
        self._check_open()
        session = self._sessions.get(session_id)
        if session is None:
            return None
        return msgspec.structs.replace(session.info, last_seq=len(session.data))

    async def post(self, mail: Mail) -> int:
        """Leave a message for the owner of a run; returns its mail_id."""
        self._check_open()
        mail_id = len(self._mail) + 1
        self._mail.append(msgspec.structs.replace(mail, mail_id=mail_id))
        self._ring()
        return mail_id

    async def mail(self, *, after: int = 0) -> list[Mail]:
        """Messages with mail_id > after, in order."""
        self._check_open()
        return self._mail[max(after, 0) :]

    async def wait(self, token: int, timeout_s: float) -> int:
        """Return when something was stored since `token` or the time is up; see `Store.wait`."""
        self._check_open()
        if token != self._version:
            await anyio.lowlevel.checkpoint()
            return self._version
        changed = anyio.Event()
        self._waiting.append(changed)
        try:
            with anyio.move_on_after(timeout_s):
                await changed.wait()
        finally:
            if not changed.is_set():
                self._waiting.remove(changed)
        return self._version

    async def aclose(self) -> None:
        """Refuse everything from now on; whoever waits is released."""
        self._closed = True
        self._ring()

    async def __aenter__(self) -> MemoryStore:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError("the store is closed", kind="closed")

    def _session(self, session_id: str) -> _Session:
        session = self._sessions.get(session_id)
        if session is None:
            session = self._sessions[session_id] = _Session(session_id)
        return session

    def _last_seq(self, session_id: str) -> int:
        session = self._sessions.get(session_id)
        return len(session.data) if session is not None else 0

    def _stored(self, event: Event) -> Event | None:
        session = self._sessions.get(event.session_id)
        if session is None:
            return None
        seq = session.seq_of.get(event.event_id)
        if seq is None:
            return None
        return from_record(session.data[seq - 1], session_id=event.session_id, seq=seq)

    def _entry(self, n: int) -> LogEntry:
        session, seq = self._log[n]
        run = self._runs.get(session.run_ids[seq - 1])
        return LogEntry(
            position=n + 1,
            session_id=session.info.session_id,
            run_id=session.run_ids[seq - 1],
            seq=seq,
            tenant=None if run is None else run.tenant,
            data=session.data[seq - 1],
        )

    def _keep(self, fresh: Sequence[tuple[Event, bytes]]) -> None:
        run_id = session_id = provider = None
        tallies: dict[str, Tally] = {}
        for event, data in fresh:
            if (
                event.run_id is not run_id
                or event.session_id is not session_id
                or event.provider is not provider
                or type(event) in NEWS
            ):
                run_id, session_id, provider = event.run_id, event.session_id, event.provider
                session = self._noted(event)
            session.data.append(data)
            session.run_ids.append(run_id)
            self._log.append((session, event.seq))
            if event.event_id:
                session.seq_of[event.event_id] = event.seq
            if run_id and type(event) in COUNTED:
                tallies.setdefault(run_id, Tally()).take(event)
        for run_id, tally in tallies.items():
            self._runs[run_id] = tally.applied(self._runs[run_id])

    def _noted(self, event: Event) -> _Session:
        """The session of an event, after its line and that of its run have followed from it."""
        session = self._session(event.session_id)
        session.note(event)
        if event.run_id:
            self._note_run(event)
        return session

    def _note_run(self, event: Event) -> None:
        run = self._runs.get(event.run_id)
        if run is None:
            run = RunInfo(run_id=event.run_id, session_id=event.session_id, created_at=event.at)
        elif run.status not in ("created", "running"):
            return
        status = status_after(event)
        provider = run.provider or event.provider
        if status != run.status or provider != run.provider:
            run = msgspec.structs.replace(run, status=status, provider=provider)
        self._runs[event.run_id] = run

    def _ring(self) -> None:
        self._version += 1
        waiting, self._waiting = self._waiting, []
        for changed in waiting:
            changed.set()
