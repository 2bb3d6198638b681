"""Runs queued in the store: created, with everything that a worker needs in their spec."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import anyio
import msgspec

from proctor.policies.events.run_context import RunContext
from proctor.policies.policy import Policy
from proctor.policies.rules.python_check import Check
from proctor.policies.values.json_values import json_words
from proctor.supervisor.arguments import NO_POLICY, Continuation, policies_given
from proctor.supervisor.errors import UsageError
from proctor.supervisor.launch.history import as_child_run
from proctor.supervisor.launch.launch import run_info
from proctor.supervisor.launch.plan import written
from proctor.supervisor.ports.store import Store, all_runs, closing, wait_again
from proctor.supervisor.ports.stored_types import Block, RunFilter, RunInfo, block_of
from proctor.supervisor.store.invariants import AGAIN, BEGUN_ELSEWHERE, FLEET
from proctor.supervisor.store.records import owners

from ..agents.catalog import ADAPTERS

GO_ON = "You were interrupted. Go on with the task from where you stopped."


class RunSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A run as data, for any worker. Create one with `RunSpec.of`.

    Attributes:
        adapter: The agent's name, as on the command line.
        prompt: The prompt.
        options: The adapter's options. They are stored, so put secrets into the worker's environment.
        policies: The policies as JSON, merged left to right.
        context: The run's context.
        continuation: How to continue the session: `auto`, `native`, `replay`, `none`; see `run_once`.
        metadata: Anything to record with the run.
        take_overs: How often the run is retried if its worker dies; then it stays failed. Agents that cannot continue
            (`shell`, `replay`), and runs without `continuation`, are not retried.
        go_on: The prompt of a retry, if the agent had begun.
    """

    adapter: str
    prompt: str
    options: dict[str, Any] = {}
    policies: tuple[dict[str, Any], ...] = ()
    context: RunContext | None = None
    continuation: Continuation = "auto"
    metadata: dict[str, Any] = {}
    take_overs: int = 3
    go_on: str = GO_ON

    @staticmethod
    def of(adapter: str, prompt: str, *, policies: Sequence[Policy], **more: Any) -> RunSpec:
        """The spec of a run under these policies; `more` are its other fields.

        Args:
            adapter: the agent, by name.
            prompt: the agent's task.
            policies: the policies, merged left to right; `()` for no policy.
            more: other fields of the spec.

        Raises:
            UsageError: there is no policy, a policy has a check in Python, which is not data, or a field is invalid.
            PolicyError: `policies` is not a list of policies.
        """
        given = policies_given(policies if policies != [] else None, None) or (NO_POLICY,)
        for policy in given:
            for rule in policy.rules:
                if isinstance(rule, Check):
                    raise UsageError(f"policy `{policy.name}` has a check in Python, which no other process can run")
        try:
            plain = {"adapter": adapter, "prompt": prompt, "policies": written(given), **more}
            return msgspec.convert(msgspec.to_builtins(plain), RunSpec)
        except (msgspec.ValidationError, TypeError) as error:
            raise UsageError(f"this is not a run that workers can execute: {json_words(error)}") from None


_CREATED: Final = RunFilter(status=frozenset(("created",)))
_RUNNING: Final = RunFilter(status=frozenset(("running",)))
FEW: Final = 50
SHARE: Final = 10
"""Reading the queue takes at most one in this many parts of anybody's time, however long the queue is."""


async def enqueue(
    store: Store,
    spec: RunSpec,
    *,
    run_id: str | None = None,
    session_id: str | None = None,
    capacity: QueueCapacity | None = None,
) -> RunInfo:
    """Queue a run for a store's workers, once there is capacity; returns it as stored. Raises as `Fleet.start`."""
    if not isinstance(spec, RunSpec):
        raise UsageError(f"a run is put down as a `RunSpec`, not as `{type(spec).__name__}`")
    if not spec.policies:
        raise UsageError("no policy was given; `RunSpec.of(..., policies=[...])` makes a spec")
    info = run_info(
        spec.prompt,
        run_id=run_id,
        session_id=session_id,
        provider=spec.adapter,
        context=spec.context,
        metadata=spec.metadata or None,
    )
    info = await as_child_run(info, store)
    described: dict[str, Any] = {**info.spec, FLEET: msgspec.to_builtins(spec)}
    if spec.take_overs and _is_resumable(spec):
        described[AGAIN] = {"times": spec.take_overs, "prompt": spec.go_on}
    tenant, labels = owners(described)
    info = msgspec.structs.replace(info, spec=described, tenant=tenant, labels=labels)
    if capacity is not None:
        await capacity.acquire(info)
    return await store.create_run(msgspec.structs.replace(info, created_at=datetime.now(UTC)))


def spec_of(run: RunInfo) -> RunSpec | None:
    """The spec of a stored run; None if it was not queued for workers. Raises UsageError for an unreadable one."""
    if FLEET not in run.spec:
        return None
    try:
        return msgspec.convert(run.spec[FLEET], RunSpec)
    except msgspec.ValidationError as error:
        raise UsageError(f"run `{run.run_id}` was queued by another version: {json_words(error)}") from None


def is_free(run: RunInfo, mine: int = 0) -> bool:
    """Whether it waits for a worker, or for the one whose epoch is `mine`."""
    if run.status != "created" or FLEET not in run.spec or BEGUN_ELSEWHERE in run.spec:
        return False
    return run.owner is None or run.owner.gone or run.owner.epoch == mine


def is_blocked(run: RunInfo, blocks: Sequence[Block]) -> bool:
    whose = {"tenant": run.tenant, "labels": run.labels}
    return block_of(blocks, run_id=run.run_id, session_id=run.session_id, **whose) is not None


class Waiting(NamedTuple):
    """A run that waits for a worker."""

    run_id: str
    session_id: str
    attempts: int


async def waiting(store: Store, *, most: int, mine: int = 0) -> list[Waiting]:
    """The runs that a worker may claim now, oldest first, at most `most`: of each session that nobody has the first,
    without those whose start is blocked; of one with a run that the worker with the epoch `mine` has claimed, that
    run. Raises StoreError.
    """
    if not (few := await store.runs(limit=FEW + 1, where=_CREATED)):
        return []
    blocks = await store.blocks()
    if len(few) > FEW:
        taken = {run.session_id async for run in all_runs(store, where=_RUNNING)}
    else:  # the sessions of few are looked up, however many runs go on
        sessions = {run.session_id for run in few}
        taken = {id for id in sessions if await store.runs(limit=1, session_id=id, where=_RUNNING)}
    first: dict[str, Waiting] = {}  # by session, newest first
    async with closing(_created(store, few)) as runs:
        async for run in runs:
            session_id = run.session_id
            if session_id in taken:
                continue
            if run.owner is not None and not run.owner.gone:
                taken.add(session_id)
                first.pop(session_id, None)
            elif is_blocked(run, blocks):
                continue
            if is_free(run, mine):
                first.pop(session_id, None)
                first[session_id] = Waiting(run.run_id, session_id, run.attempts)
            if len(first) > 2 * most:  # as a few will be of sessions that turn out to be claimed
                del first[next(iter(first))]
    return list(first.values())[: -most - 1 : -1]


async def _created(store: Store, first: Sequence[RunInfo]) -> AsyncGenerator[RunInfo, None]:
    """The runs that wait, newest first; `first` are the first of them, read already."""
    if len(first) <= FEW:
        for run in first:
            yield run
        return
    async with closing(all_runs(store, where=_CREATED)) as runs:
        async for run in runs:
            yield run


async def _count(store: Store, *, most: int, blocked: bool) -> int:
    count, blocks = 0, await store.blocks()
    async with closing(all_runs(store, where=_CREATED)) as runs:
        async for run in runs:
            count += is_free(run) and is_blocked(run, blocks) is blocked
            if count == most:
                break
    return count


class QueueCapacity:
    """Limits the length of the queue: callers wait while `most` runs are queued. Runs whose start is blocked are a
    queue of their own, so that they hold up no others.

    The queue is counted again when the free slots of the last count are used up, so that several processes together
    may exceed the limit by these.
    """

    def __init__(self, store: Store, most: int) -> None:
        self._store = store
        self._most = most
        self._left = {False: 0, True: 0}
        self._counting = {False: anyio.Lock(), True: anyio.Lock()}

    async def acquire(self, run: RunInfo) -> None:
        """Wait for a free slot. Raises StoreError."""
        blocked = is_blocked(run, await self._store.blocks())
        async with self._counting[blocked]:
            token = 0
            while self._left[blocked] < 1:
                began = anyio.current_time()
                count = await _count(self._store, most=self._most, blocked=blocked)
                self._left[blocked] = self._most - count
                if self._left[blocked] < 1:
                    await anyio.sleep(SHARE * (anyio.current_time() - began))
                    token = await wait_again(self._store, token)
            self._left[blocked] -= 1


def _is_resumable(spec: RunSpec) -> bool:
    """Whether an interrupted run can be continued."""
    agent = ADAPTERS.get(spec.adapter)
    return spec.continuation != "none" and (agent is None or agent.resumable)
