"""Decides on hooks one after another, and keeps their sessions in memory."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeAlias

import msgspec

from proctor.policies import PolicyError, RunContext
from proctor.policies.errors import EventError
from proctor.supervisor.errors import StoreError, UsageError
from proctor.supervisor.ports.processes import is_gone
from proctor.supervisor.ports.stored_types import ApprovalAnswer, Owner, StoredApproval

from .clients import CLIENTS
from .decisions import Opening, RuleFiles
from .hook import Hook
from .messages import MOST_HELD_S, REFUSABLE, REPORTS, UNMATCHED, HookAnswer, HookClient, HookInput, Unmatched
from .origin import Origin, check_origin
from .record import LEASE_S, LINE_NOTE, HookRecord, HookStore
from .session import HookedSession

_Held: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=MOST_HELD_S)]
REFUSED_BEFORE = "the client was denied before anything was decided"
_PROBED = "probe"
LOG_NOTE = "log"
"""The client's log of a session."""
AGENT_NOTE = "agent "
"""Begins the name of a note that a session has of each of its subagents, by their ids."""
_MOST_ROOTS = 10_000
"""Of how many subagents the session that they belong to is kept in memory; the store knows it too."""
MOST_LATE = 1000
"""How many reports wait to be recorded, the first ones: no call begins meanwhile, so the later ones say little."""
KEPT_S = 900.0
"""Seconds without a hook after which a session without a run is read from the store when it continues."""


class HookOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options on a hook's command line: the files, the store and its id ("" for the one that is there first), the
    context for `when`.

    `name` tells hooks apart that share a store. `unmatched` says what happens to a call that no policy
    mentions. `hold_s`: how many seconds a client that can't ask its person waits for an answer from elsewhere.
    """

    name: str
    policies: tuple[str, ...]
    store: Path
    store_id: str
    context: RunContext = RunContext()
    unmatched: Unmatched = UNMATCHED
    hold_s: int = 0

    def words(self, home: str | None) -> list[str]:
        """These options on a command line, for the daemon of that home; `read` reads them."""
        words = [word for policy in self.policies for word in ("--policy", policy)]
        words += ["--store", os.fspath(self.store)]
        if self.store_id:
            words += ["--store-id", self.store_id]
        if home is not None:
            words += ["--home", home]
        words += ["--unmatched", self.unmatched]
        if self.hold_s:
            words += ["--hold", str(self.hold_s)]
        context = msgspec.json.encode(self.context).decode()
        return [*words, *(("--context", context) if context != "{}" else ())]

    @classmethod
    def read(cls, name: str, arguments: Sequence[str]) -> HookOptions:
        """The options that `words` wrote. Raises UsageError."""
        given: dict[str, list[str]] = {option: [] for option in ("--policy", "--store")}
        given |= {"--store-id": [""], "--context": ["{}"], "--unmatched": [UNMATCHED], "--hold": ["0"]}
        given["--home"] = [""]  # `daemon_client` has seen to it
        try:
            for option, value in zip(arguments[::2], arguments[1::2], strict=True):
                given[option].append(value)
            if missing := [option for option, values in given.items() if not values]:
                raise LookupError(f"it has no `{missing[0]}`")
            return cls(
                name=name,
                policies=tuple(given["--policy"]),
                store=Path(given["--store"][-1]),
                store_id=given["--store-id"][-1],
                context=msgspec.json.decode(given["--context"][-1], type=RunContext),
                unmatched=msgspec.convert(given["--unmatched"][-1], Unmatched),
                hold_s=msgspec.convert(given["--hold"][-1], _Held, strict=False),
            )
        except (LookupError, ValueError, msgspec.MsgspecError, RecursionError) as error:
            raise UsageError(
                f"the hook's command line is not as `proctor hook install` writes it: {error}; install it again"
            ) from None


class _Watched(msgspec.Struct, eq=False):
    """The client of a session with an active run, its log and process, and when its lease was renewed."""

    client: HookClient
    log: str
    process: Owner
    renewed: float


class _Resumed(NamedTuple):
    """A session that a hook resumes: the client's events of it (`whole`), those of this line, and the time."""

    session: HookedSession
    whole: HookRecord
    record: HookRecord
    at: datetime


class HookDecider:
    """Answers every hook of one command line.

    # INVARIANT: a session in memory is what the store has of it: it is dropped where anything goes wrong, and read
    # again where anybody else has written.
    """

    def __init__(self, options: HookOptions, clock: Callable[[], float] = time.monotonic) -> None:
        self._options = options
        self._rules = {name: RuleFiles(options.policies, options.context, one.tools) for name, one in CLIENTS.items()}
        self._store = HookStore(options.store, options.store_id)
        self._clock = clock
        self._sessions: dict[str, tuple[HookedSession, float]] = {}
        self._roots: dict[str, str] = {}
        self._late: dict[str, list[tuple[HookInput, Owner | None, Origin | None]]] = {}
        self._clients: dict[str, _Watched] = {}
        self._watches_earlier_runs = False
        self._seen: dict[int, Owner] = {}
        paths = (*options.policies, str(options.store))
        self._opening = Opening(options.unmatched, paths)

    def answer_hook(
        self,
        data: bytes,
        owner: Owner | None = None,
        origin: Origin | None = None,
        agent: str = "claude",
        reply: Future[Any] | None = None,
    ) -> tuple[HookAnswer, HookInput]:
        """Answer one hook of an agent's client, and record it; gives the answer, and what the hook said.

        `owner` is the client's process, where that is known.

        With an origin, the hook is answered only if it comes from the session's own client (see `check_origin`).

        `reply` is cancelled once the client has been refused; what it would have decided is not recorded then. It is
        running once that is recorded.

        Raises EventError, PolicyError, StoreError: then nothing is recorded, and whoever asked must be refused. What
        only reports is recorded before anything else is decided in its session.
        """
        hook_input = self._in_root(CLIENTS[agent].read(data))
        reply = reply if hook_input.kind in REFUSABLE else None
        if reply is not None and reply.cancelled():
            raise EventError(REFUSED_BEFORE)
        try:
            self._catch_up(hook_input.session_id)
            return self._answer(hook_input, owner, origin, reply), hook_input
        except (PolicyError, StoreError):
            if hook_input.kind in REPORTS and sum(map(len, self._late.values())) < MOST_LATE:
                self._late.setdefault(hook_input.session_id, []).append((hook_input, owner, origin))
            raise

    def _in_root(self, given: HookInput) -> HookInput:
        """A hook of a subagent with a session of its own as one of the session that a person prompts."""
        if not (parent := given.parent_id):
            return given
        if len(self._roots) >= _MOST_ROOTS:
            self._roots.clear()
        if parent not in self._roots:
            with self._store.record(parent) as record:
                found = record.notes_of_all(AGENT_NOTE + parent)
            self._roots[parent] = found[0][0] if found else parent
        root = self._roots[given.session_id] = self._roots[parent]
        return msgspec.structs.replace(given, session_id=root, agent_id=given.session_id)

    def _catch_up(self, session_id: str) -> None:
        """Record what happened in a session and could not be recorded at the time; nothing is decided before that."""
        late = self._late.get(session_id, [])
        while late:
            with suppress(EventError):
                self._answer(*late[0])
            del late[0]
        self._late.pop(session_id, None)

    def _answer(
        self, hook_input: HookInput, owner: Owner | None, origin: Origin | None, reply: Future[Any] | None = None
    ) -> HookAnswer:
        with self._resumed(hook_input, owner, origin) as resumed:
            session, whole = resumed.session, resumed.whole
            if hook_input.kind in ("prompt", "session_end"):
                self._end_calls(resumed, hook_input.transcript_path, is_whole=True)
            answer = self._hook(hook_input, resumed).answer()
            if hook_input.parent_id and whole.note(note := AGENT_NOTE + str(hook_input.agent_id)) is None:
                whole.keep(note, b"")
            if session.has_run and whole.note(LOG_NOTE) != (log := hook_input.transcript_path.encode()):
                whole.keep(LOG_NOTE, log)
            if reply is not None and not reply.set_running_or_notify_cancel():
                raise EventError(REFUSED_BEFORE)
        self._watch(hook_input, resumed.record.owner if session.has_run else None)
        return answer

    def _hook(self, given: HookInput, resumed: _Resumed) -> Hook:
        return Hook(given, resumed.session, resumed.record, resumed.at, self._opening)

    def resolve_held(
        self, hook_input: HookInput, approval_id: str, origin: Origin | None = None, *, gone: bool = False
    ) -> HookAnswer | None:
        """The answer to a hook that waits for this approval; None while nobody has answered.

        `gone`: nobody waits for it any more. A client that tells of it in its log goes by its own person's answer,
        which is read there or shown by the call's end; any other was refused.

        Raises as `answer_hook`.
        """
        approval, at = self._store.approval(approval_id), datetime.now(UTC)
        if approval is None:
            raise EventError("the approval that the call waits for is gone")
        expires_at = approval.request.expires_at
        if approval.state == "requested" and (expires_at is None or at < expires_at):
            own = self._answer_of_person(hook_input, approval) if gone else None
            if own is None:
                return None
            approval = msgspec.structs.replace(approval, answer=own)
        owner = origin.client if origin is not None else None
        with self._resumed(hook_input, owner) as resumed:
            if accepted := resumed.record.accepted_answer(approval_id):  # since the look at it
                approval = msgspec.structs.replace(approval, answer=accepted)
            return self._hook(hook_input, resumed).resolve_held(approval)

    @staticmethod
    def _answer_of_person(hook_input: HookInput, approval: StoredApproval) -> ApprovalAnswer | None:
        """The answer of the client's own person, as the client's log has it; None before that."""
        client, call_id = hook_input.client, approval.request.call.id
        if client.ended is None:
            return ApprovalAnswer(granted=False, by=client.by)
        granted = client.ended(hook_input.transcript_path, [call_id], False).get(call_id)
        return None if granted is None else ApprovalAnswer(granted=granted, by=client.by)

    def probe(self, agent: str) -> dict[str, Any]:
        """The policies of an agent's hooks, after reading them once. Raises PolicyError, StoreError."""
        rules = self._rules[agent].current()
        with self._store.record(_PROBED):
            return {"policy": rules.policy.name, "unmatched": self._options.unmatched}

    @property
    def clients(self) -> list[int]:
        """The processes of the clients with recent hooks."""
        return list(self._seen)

    @property
    def watches(self) -> bool:
        """Whether it watches a client."""
        self._seen = {pid: client for pid, client in self._seen.items() if not is_gone(client)}
        return bool(self._clients or self._seen)

    def check(self) -> None:
        """End the runs of clients that have died; renew the leases of the others, and record which of their calls are
        over though no hook has told. Raises StoreError.
        """
        if not self._watches_earlier_runs:
            self._watch_earlier_runs()
        for session_id, watched in list(self._clients.items()):
            self._clients[session_id] = self._clients.pop(session_id)  # the others come first if this one fails
            given = HookInput(client=watched.client, kind=None, event="", session_id=session_id)
            if is_gone(watched.process):
                with self._resumed(given):
                    pass
                del self._clients[session_id]
                continue
            self._catch_up(session_id)
            if self._clock() - watched.renewed > LEASE_S / 3:
                with self._store.record(session_id) as record:
                    record.renew(watched.process.epoch)
                watched.renewed = self._clock()
            self._read_ended(watched.log, given)

    def _watch_earlier_runs(self) -> None:
        """Watch the runs that an earlier process has evaluated."""
        name = self._options.name
        with self._store.record(_PROBED) as record:
            logs, lines = dict(record.notes_of_all(LOG_NOTE)), dict(record.notes_of_all(LINE_NOTE))
            for run in record.running():
                id = run.session_id if run.session_id in lines else run.session_id.removesuffix(f".{name}")
                mine = id in lines and (lines[id] == name.encode()) is (id == run.session_id)
                if mine and run.owner is not None and run.owner.is_client and run.provider in CLIENTS:
                    watched = _Watched(CLIENTS[run.provider], logs.get(id, b"").decode(), run.owner, self._clock())
                    self._clients.setdefault(id, watched)
        self._watches_earlier_runs = True

    def _read_ended(self, log: str, given: HookInput) -> None:
        """Who answers at once ends the question's hook, perhaps before that came here; who interrupts, all hooks."""
        if given.client.ended is None:
            return
        if given.session_id not in self._sessions:
            with self._resumed(given):
                pass
        calls = self._sessions[given.session_id][0].open_calls
        if calls and given.client.ended(log, calls, False):
            with self._resumed(given) as resumed:
                self._end_calls(resumed, log, is_whole=False)

    def _end_calls(self, resumed: _Resumed, log: str, *, is_whole: bool) -> None:
        """Record about the session's open calls what only the client's log has."""
        session = resumed.session
        if session.client.ended is not None and (calls := session.open_calls):
            given = HookInput(client=session.client, kind=None, event="", session_id=session.client_id)
            for call_id, ran in session.client.ended(log, calls, is_whole).items():
                self._hook(given, resumed).ended(call_id, ran=ran)

    def _watch(self, hook_input: HookInput, owner: Owner | None) -> None:
        """Watch an active run whose owner is a client; None: the session has no active run."""
        session_id = hook_input.session_id
        watched = self._clients.get(session_id)
        if owner is None or not owner.is_client:
            self._clients.pop(session_id, None)
        elif watched is None or watched.process.epoch != owner.epoch:
            self._clients[session_id] = _Watched(hook_input.client, hook_input.transcript_path, owner, self._clock())
        else:
            watched.log = hook_input.transcript_path

    @contextmanager
    def _resumed(
        self, given: HookInput, owner: Owner | None = None, origin: Origin | None = None
    ) -> Iterator[_Resumed]:
        """A hook's session; its run is ended where its client has died. It is kept in memory once all that is done
        with it here is recorded.
        """
        kept = self._sessions.pop(given.session_id, None)
        at = datetime.now(UTC)
        with self._store.record(given.session_id, origin.client if origin is not None else owner) as whole:
            if origin is not None:
                check_origin(origin, whole, over=given.kind == "session_end")
                self._seen[origin.client.pid] = origin.client
            record = whole.of(self._options.name)
            session = self._session(given, record, kept and kept[0])
            session.resume(record, at)
            yield _Resumed(session, whole, record, at)
        self._keep(given, session)

    def close(self) -> None:
        """Record what could not be recorded before, if that is possible now; close the store."""
        for session_id in list(self._late):
            with suppress(PolicyError, StoreError):
                self._catch_up(session_id)
        self._store.close()

    def _session(self, given: HookInput, record: HookRecord, kept: HookedSession | None) -> HookedSession:
        client, seq = given.client, record.seq
        rules = self._rules[client.name].current()
        if kept is not None and seq < kept.machine.seq:
            raise StoreError(
                "the store has lost events of this session, so what was used is not known", kind="corrupt"
            )
        if kept is None or kept.rules is not rules or seq != kept.machine.seq:  # no two clients share their rules
            ids, options = (given.session_id, record.session_id), (self._options.unmatched, self._options.hold_s)
            return HookedSession(client, *ids, rules, record.past(), given.cwd, *options)
        return kept

    def _keep(self, hook_input: HookInput, latest: HookedSession) -> None:
        now = self._clock()
        for id in [id for id, (_, last) in self._sessions.items() if now - last > KEPT_S and id not in self._clients]:
            del self._sessions[id]
        if hook_input.kind != "session_end":
            self._sessions[hook_input.session_id] = latest, now
