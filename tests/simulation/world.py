"""Runs a plan: owners and their agents, people and failures; returns the violated invariants."""

import random
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from itertools import cycle
from typing import Any, Final

import anyio
import msgspec
import trio
from anyio.lowlevel import checkpoint

from proctor.adapters.fleet import worker as fleet_worker
from proctor.adapters.fleet.queue import RunSpec, enqueue
from proctor.adapters.fleet.worker import Worker
from proctor.policies import CompiledPolicy, Monitor, Policy, compile_policy, merge_policies, parse_policies
from proctor.policies.events import TERMINAL, RecordPruned
from proctor.supervisor import ApprovalRequest, KillSwitch, ProctorError, Supervisor, create_run
from proctor.supervisor.api.active_runs import RunHandle
from proctor.supervisor.control import approval_inbox
from proctor.supervisor.control.ownership import reap
from proctor.supervisor.errors import ApprovalError, StoreError
from proctor.supervisor.launch import plan as launch_plan
from proctor.supervisor.launch.plan import make_plan
from proctor.supervisor.machine.machine import RunMachine
from proctor.supervisor.ports.adapter import Adapter, Approver
from proctor.supervisor.ports.budget_ledger import window_at
from proctor.supervisor.ports.stored_types import NOT_OVER, ApprovalAnswer
from proctor.supervisor.run.actor import RunActor
from proctor.supervisor.run.provider_session import capabilities_of
from proctor.supervisor.run.recovery import LEASE_S
from proctor.supervisor.store.maintenance import prune

from . import plans
from .agent import QueuedAgent
from .boundary import STRETCH_S, Boundary
from .plans import Order, Person, Plan, Start, Stop
from .scheduler import OWNER, Freezer, StuckError, changed, run_seeded
from .stores import opened
from .subscribers import followers_of
from .team import Team
from .witness import A_WEEK, CALLS, PLACES, Witness, first_of, is_by_an_agent

SHARED: Final[dict[str, dict[str, Any]]] = {
    "tokens": {"name": "tokens", "max_total_tokens": 900},
    "places": {"name": "places", "max_running": PLACES},
    "week": {"name": "week", "max_tool_calls": A_WEEK, "window": "week", "action": "deny"},
}
RETRIES: Final = 2
HORIZON_S: Final = 300.0
"""Virtual seconds until everything in the plan has happened, and its failures are over."""
QUIET_S: Final = 60.0
"""Longer than any silence in a plan without faults."""
LOOK_S: Final = 5.0
MOST_ASKED: Final = 350
"""Store operations in a period of the boundary; polling without a pause exceeds this."""
MOST_ASKED_BY_PEOPLE: Final = 450
"""Two people who keep giving answers that they may not give come close to this."""
LONGEST_S: Final = 4_000.0
"""Virtual seconds after which something waits for ever."""
MONDAY: Final = 1_800_230_400.0
"""When a week of budgets starts."""


def simulate(plan: Plan) -> list[str]:
    """Run a plan; returns the violated invariants."""
    world = World(plan)
    try:
        nothing_left = (fleet_worker, "end_orphans", None)
        with world.restoring(), changed((launch_plan, "make_plan", _plan_once), nothing_left):
            run_seeded(world.run, plan.seed, backend=plan.backend)
    except BaseException as error:
        world.witness.found.append(f"{_innermost(error)!r}")
    return world.witness.found


def _innermost(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup | trio.TrioInternalError):
        error = error.exceptions[0] if isinstance(error, BaseExceptionGroup) else error.__cause__ or StuckError()
    return error


class World:
    """One simulation.

    Args:
        plan: what happens in it.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.witness = Witness(plan)
        self._step_of_clock = 0.0
        self._handles: dict[str, RunHandle] = {}
        self._callers: defaultdict[str, anyio.CancelScope] = defaultdict(anyio.CancelScope)
        """For each run's caller; one may be cancelled before it has started."""
        self._scopes: defaultdict[int, anyio.CancelScope] = defaultdict(anyio.CancelScope)
        """For each owner; cancelling it closes the supervisor."""
        self._ordered: set[str] = set()
        self._unfinished = len(plan.starts) + len(plan.orders)
        """The number of unfinished starts and commands."""
        self._policy = msgspec.json.encode((plan.budget, plan.budgets, plan.quick, [*plan.approval.items()]))
        self._policies = _policies(self._policy)
        self._teams = [Team(plan, self.witness, self._policies) for _ in range(plan.owners)]
        self._followers = followers_of(plan, self.witness.found)
        self._workers: dict[int, Worker] = {}
        self._freezes: set[Order] = set()
        """The active freezes."""

    @contextmanager
    def restoring(self) -> Iterator[None]:
        """Sometimes, a run's machine and its monitor are encoded and restored before an input."""
        feed, monitor, init = RunActor._feed, CompiledPolicy.monitor, RunMachine.__init__
        chance = random.Random(f"restored {self.plan.seed}")
        compiled: dict[int, tuple[object, CompiledPolicy]] = {}
        settings: dict[int, tuple[object, dict[str, Any]]] = {}

        def watched_monitor(policy: CompiledPolicy, *args: Any, **options: Any) -> Monitor:
            made = monitor(policy, *args, **options)
            compiled[id(made)] = made, policy
            return made

        def watched_init(machine: RunMachine, identity: Any, judge: Any, **options: Any) -> None:
            settings[id(machine)] = machine, {name: options[name] for name in options if name != "earlier_grants"}
            init(machine, identity, judge, **options)

        def restoring_feed(actor: RunActor, input: Any) -> None:
            machine = actor._machine
            if machine.begun and not machine.unwritten and actor.outcome is None and chance.random() < share:
                judge: Any = machine.monitor
                policy = compiled[id(judge)][1]
                again = policy.restore(judge.snapshot())
                compiled[id(again)] = again, policy
                restored = RunMachine.restore(machine.snapshot(), again, **settings[id(machine)][1])
                for name in RunMachine.__slots__:
                    setattr(machine, name, getattr(restored, name))
                actor._journal._outbox = machine.outbox
            feed(actor, input)

        share = self.plan.restored
        if not share:
            yield
            return
        with changed(
            (CompiledPolicy, "monitor", watched_monitor),
            (RunMachine, "__init__", watched_init),
            (RunActor, "_feed", restoring_feed),
        ):
            yield

    async def run(self, freezer: Freezer) -> None:
        """Run the plan to its end, and check what is left."""
        self._freezer = freezer
        self._finish = anyio.Event()
        plan = self.plan
        async with opened(plan.store, self.witness, self._wall_clock, plan.breaks, plan.owners) as stores:
            self._use(stores)
            await self._run()

    def _use(self, stores: list[Any]) -> None:
        chance = random.Random(f"boundary {self.plan.seed}")

        def reached(by: int, latency: float) -> Any:
            return Boundary(stores[by], [fault for fault in self.plan.faults if fault.owner == by], latency, chance)

        self._stores = stores
        self._store = stores[plans.PEOPLE]
        self._boundaries = [reached(n, self.plan.latency) for n in range(self.plan.owners)]
        self._peoples = reached(plans.PEOPLE, 0.0)

    async def _run(self) -> None:
        with anyio.fail_after(LONGEST_S):
            async with anyio.create_task_group() as everything:
                for n in range(self.plan.owners):
                    everything.start_soon(self._owner, n)
                async with anyio.create_task_group() as beside:
                    self._script(beside.start_soon)
                    await self._until_quiet()
                    beside.cancel_scope.cancel()
                await self._check_orders()
                for follower in self._followers:
                    if not self._freezer.is_frozen(follower.subscriber.owner):
                        await follower.check_timely(self._store)
                await self._end_all()
            await anyio.sleep(LEASE_S + 1)
            await reap(self._store)
        await self._check_the_end()

    async def _until_quiet(self) -> None:
        """Until everything in the plan has happened, or nothing was stored for longer than its longest silence."""
        plan = self.plan
        begins = [start.at for start in plan.starts] + [order.at for order in plan.orders]
        begins += [at for at, _ in plan.jumps]
        begun = quiet = max([0.0, *begins, *(stop.at + (stop.seconds or 0.0) for stop in plan.stops)])
        longest = QUIET_S + sum(fault.seconds for fault in plan.faults)
        stored = 0
        horizon = LONGEST_S / 2 if plan.over else HORIZON_S
        while anyio.current_time() < min(horizon, quiet + longest):
            if len(self.witness.events) > stored:
                stored, quiet = len(self.witness.events), max(begun, anyio.current_time())
            await anyio.sleep(LOOK_S)
            for team in self._teams:
                team.check()
            if not self._unfinished and anyio.current_time() > begun and not await self._runs_that_go_on():
                return
        if plan.over and not plan.stops:
            going_on = await self._runs_that_go_on() & {event.run_id for event in self.witness.events}
            if self._unfinished or going_on:
                waiting = f"{self._unfinished} starts and orders wait for ever"
                self.witness.found.append(f"{waiting}, and {sorted(going_on)} go on")

    async def _runs_that_go_on(self) -> set[str]:
        return {run.run_id for run in await self._store.runs() if run.status in NOT_OVER}

    @contextmanager
    def _course(self) -> Iterator[None]:
        """A start or a command, until it has finished in any way."""
        try:
            yield
        finally:
            self._unfinished -= 1

    def _script(self, start_soon: Callable[..., Any]) -> None:
        for start in self.plan.starts if self.plan.fleet else ():
            start_soon(self._enqueue, start)
        for order in self.plan.orders:
            start_soon(self._carry_out, order)
        for person in self.plan.people:
            if person.owner is None:
                start_soon(self._answers, person)
        for stop in self.plan.stops:
            start_soon(self._stop, stop)
        for at, seconds in self.plan.jumps:
            start_soon(self._jump, at, seconds)

    async def _end_all(self) -> None:
        """End whatever is still active: runs by a command to all, supervisors by closing them; killed
        ones continue.
        """
        for store in self._stores:
            store.mend()
        await KillSwitch(self._store).kill(by="cy", everything=True, block_starts=True, wait_s=200)
        killed = [stop.owner for stop in self.plan.stops if self._freezer.is_frozen(stop.owner)]
        for owner in killed:
            self._boundaries[owner].gone = True
            self._scopes[owner].cancel()
            self._freezer.thaw(owner)
        self._finish.set()

    async def _owner(self, number: int) -> None:
        OWNER.set(number)
        boundary, team = self._boundaries[number], self._teams[number]
        with self._scopes[number]:
            if self.plan.fleet:
                await self._work(number)
                return
            given: Any = {"approver": self._approver(number), **self.plan.record}
            async with (
                Supervisor(boundary, max_running=self.plan.max_running, **given) as supervisor,
                anyio.create_task_group() as tasks,
            ):
                team.supervisor = supervisor
                for start in self.plan.starts:
                    if start.owner == number:
                        tasks.start_soon(self._start, supervisor, start)
                for follower in self._followers:
                    if follower.subscriber.owner == number:
                        tasks.start_soon(follower.follow, supervisor.subscribe)
                if number == 0:
                    for session_id in self.plan.followers:
                        tasks.start_soon(self._follow, supervisor, session_id)
                await self._finish.wait()
                tasks.cancel_scope.cancel()
        team.check(left=True)

    async def _work(self, number: int) -> None:
        starts = {start.run: start for start in self.plan.starts}

        def agent(name: str, run: str) -> Adapter:
            return self._teams[number].agent(starts[run], QueuedAgent)

        self._workers[number] = worker = Worker(self._boundaries[number], max_running=3, adapters=agent)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(worker.run)
            await self._finish.wait()
            tasks.cancel_scope.cancel()

    async def _enqueue(self, start: Start) -> None:
        with self._course(), suppress(ProctorError):
            await anyio.sleep(start.at)
            given: Any = {"options": {"run": start.run}, "continuation": "replay", "take_overs": RETRIES}
            spec = RunSpec.of("agent", "go", policies=self._policies, **given)
            await enqueue(self._peoples, spec, run_id=start.run, session_id=start.session)

    def _approver(self, number: int) -> Approver | None:
        found = [person for person in self.plan.people if person.owner == number]
        if not found:
            return None
        answers = cycle(found[0].answers)

        async def approver(request: ApprovalRequest) -> ApprovalAnswer:
            await anyio.sleep(found[0].every_s)
            return _reply(found[0], next(answers), request)

        return approver

    async def _start(self, supervisor: Supervisor, start: Start) -> None:
        with self._course(), self._callers[start.run]:
            await self._started(supervisor, start)

    async def _started(self, supervisor: Supervisor, start: Start) -> None:
        await anyio.sleep(start.at)
        agent = self._teams[start.owner].agent(start)
        given: dict[str, Any] = {"policies": self._policies, "continuation": "replay"}
        frozen = set[Order]()
        try:
            if start.created:
                await create_run(self._store, "go", run_id=start.run, session_id=start.session)
                await anyio.sleep(0.5)
            frozen = {freeze for freeze in self._freezes if freeze.value in ("", start.session)}
            if start.created:
                handle = await supervisor.execute(agent, start.run, **given)
            else:
                handle = await supervisor.start(agent, "go", run_id=start.run, session_id=start.session, **given)
            self._handles[start.run] = handle
        except ProctorError:
            return
        if frozen & self._freezes:
            self.witness.found.append(f"run {start.run} was started while starts were frozen")
        with suppress(ProctorError):
            await handle.wait()
        await self._check_folded(start, handle)

    async def _check_folded(self, start: Start, handle: RunHandle) -> None:
        """The log of a run that its own owner has ended folds to the monitor's live state."""
        live = handle._actor.monitor
        assert isinstance(live, Monitor)
        troubled = {fault.owner for fault in self.plan.faults} | {stop.owner for stop in self.plan.stops}
        is_stored = start.run in self.witness.ended  # else a store that failed is still being retried
        if not is_stored or start.owner in troubled or start.session in self.witness.pruned:
            return  # it may have evaluated what was never stored, or is gone
        state = _state(live)
        folded = _compiled(self._policy).monitor()
        is_over = False
        async for event in self._store.read(start.session):
            if not is_over:
                folded.observe(event)
            is_over = is_over or (event.run_id == start.run and isinstance(event, TERMINAL))
        if _state(folded) != state:
            self.witness.found.append(f"the record of run {start.run} folds to another state than was live")

    async def _carry_out(self, order: Order) -> None:
        with self._course():
            await self._order(order)

    async def _order(self, order: Order) -> None:
        await anyio.sleep(order.at)
        for _ in range(order.rounds):
            await checkpoint()
        if order.what in ("caller", "owner"):
            scope = self._callers[order.value] if order.what == "caller" else self._scopes[int(order.value)]
            scope.cancel()
            return
        if order.what == "drain":
            self._workers[int(order.value)].drain()
            return
        if order.what == "freeze":
            await self._freeze(order)
            return
        if order.what == "prune":
            later = datetime.now(UTC) + timedelta(days=1)
            await self._again(partial(prune, self._store, older_than=timedelta(0), by="cy", now=later))
            return
        if order.what == "handle" and order.value in self._handles:
            owner = next(start.owner for start in self.plan.starts if start.run == order.value)
            if not self._freezer.is_frozen(owner):
                self._ordered.add(order.value)
                await self._handles[order.value].cancel(by="cy")
            return
        scopes: Any = {"all": {"everything": True}, "session": {"session_id": order.value}}
        named = scopes.get(order.what, {"run_id": order.value})
        going_on = await self._runs_that_go_on()
        with suppress(ProctorError):  # it does not exist yet
            outcomes = await KillSwitch(self._peoples).kill(by="cy", **named, wait_s=60)
            self._ordered |= {outcome.run_id for outcome in outcomes if outcome.run_id in going_on}
            self.witness.stopped |= {
                first_of(ended)
                for ended in (one.run_id for one in outcomes if one.ended)
                if not is_by_an_agent(ended)
            }

    async def _freeze(self, order: Order) -> None:
        scope: Any = {"session_id": order.value} if order.value else {"everything": True}
        switch = KillSwitch(self._store)
        await self._again(partial(switch.block_starts, by="cy", reason="look first", **scope))
        self._freezes.add(order)
        await anyio.sleep(order.seconds)
        self._freezes.remove(order)
        await self._again(partial(switch.lift, by="cy", **scope))

    async def _again(self, do: Callable[[], Awaitable[object]]) -> None:
        """Repeat it until the store does not fail."""
        while True:
            with suppress(StoreError):
                await do()
                return

    async def _answers(self, person: Person) -> None:
        answered = 0
        while True:
            await anyio.sleep(person.every_s)
            with suppress(StoreError), anyio.move_on_after(person.hurry_s):  # they try again
                for request in await approval_inbox.pending(self._peoples):
                    granted = person.answers[answered % len(person.answers)]
                    answered += 1
                    given = _reply(person, granted, request)
                    with suppress(ApprovalError):  # somebody was quicker, or its run has ended
                        await approval_inbox.answer(self._peoples, request.approval_id, given, wait_s=5)

    async def _stop(self, stop: Stop) -> None:
        await anyio.sleep(stop.at)
        if self._freezer.is_frozen(stop.owner):
            return
        self._freezer.freeze(stop.owner)
        if stop.seconds is not None:
            await anyio.sleep(stop.seconds)
            self._freezer.thaw(stop.owner)

    async def _jump(self, at: float, seconds: float) -> None:
        await anyio.sleep(at)
        self._step_of_clock += seconds

    async def _follow(self, supervisor: Supervisor, session_id: str) -> None:
        token = 0
        while not await self._store.last_seq(session_id):
            token = await self._store.wait(token, HORIZON_S)
        seen = 0
        with suppress(StoreError):  # it gets the error, and may follow again
            async with supervisor.subscribe(session_id=session_id) as events:
                async for event in events:
                    if event.seq <= seen or (event.seq > seen + 1 and not isinstance(event, RecordPruned)):
                        self.witness.found.append(f"{session_id}: a follower saw event {event.seq} after {seen}")
                    seen = event.seq

    def _wall_clock(self) -> float:
        now = MONDAY - self.plan.to_monday + self._step_of_clock + anyio.current_time()
        self.witness.weeks.add(window_at("week", int(now * 1000)).since)
        return now

    async def _check_orders(self) -> None:
        """Every run that was cancelled, and whose owner was active, has ended."""
        stopped = {stop.owner for stop in self.plan.stops}
        owner_of = {start.run: start.owner for start in self.plan.starts}
        started = self.witness.here.union(owner_of) & {event.run_id for event in self.witness.events}
        for run_id in sorted(self._ordered & started):
            run = await self._store.run(run_id)
            fit = not stopped if self.plan.fleet else owner_of[first_of(run_id)] not in stopped
            if run is not None and run.status in NOT_OVER and fit:
                self.witness.found.append(f"run {run_id} was ordered to end, and goes on: it is {run.status}")

    async def _check_the_end(self) -> None:
        """Every started run has ended, no request is pending, nobody has polled the store without end, and budgets
        equal the usage.
        """
        found = self.witness.found
        for follower in self._followers:
            await follower.catch_up(self._store)
        owners = [(f"owner {n}", each, MOST_ASKED) for n, each in enumerate(self._boundaries)]
        found += [
            f"{who} asked the store {each.busiest} times in {STRETCH_S:g} seconds"
            for who, each, most in (*owners, ("people", self._peoples, MOST_ASKED_BY_PEOPLE))
            if each.busiest > most
        ]
        lost_starts = {
            stop.owner for stop in self.plan.stops
        }  # after its lease ran out, it may be gone before it has cleaned up
        unstarted = {start.run for start in self.plan.starts if start.created or start.owner in lost_starts}
        if self.plan.fleet:
            unstarted = set()
        unstarted -= self.witness.ended.keys() | {event.run_id for event in self.witness.events}
        owner_of = {start.run: start.owner for start in self.plan.starts}
        runs = await self._store.runs()
        for run in runs:
            top = first_of(run.run_id)
            lost = top != run.run_id and run.status == "created" and owner_of[top] in lost_starts
            if run.run_id.endswith(f".{RETRIES + 2}"):
                found.append(f"run {run.run_id} is one retry too many")
            if run.status in NOT_OVER and run.run_id not in unstarted and not lost:
                found.append(f"run {run.run_id} never ended: it is {run.status}")
        found += [f"approval {one.request.approval_id} still waits" for one in await self._store.approvals()]
        in_session = Counter(run.session_id for run in runs)
        by_members = self.witness.here.union(owner_of) if self.plan.members else set[str]()
        for run in runs:
            if run.run_id in by_members and in_session[run.session_id] == 1 and not self.plan.faults:
                self.witness.check_usage(run.run_id, run.usage.total_tokens, completed=run.status == "completed")
        started = sum(self.witness.started.values())
        tokens = sum(run.usage.total_tokens for run in runs)
        spent: dict[str, float] = {"tool_calls": started, "total_tokens": tokens, "running": 0}
        for budget in await self._store.budgets():
            # calls that a store never acknowledged count anyway, and so do those of pruned sessions
            unsure = self.plan.faults or self.plan.stops or self.witness.pruned
            amount = most = spent[budget.counts]
            if budget.window:  # if the clock was set back, an ended week continues
                put_back = any(seconds < 0 for _, seconds in self.plan.jumps)
                windows = len(self.witness.weeks) if put_back else 1
                amount, most = 0, budget.max * windows + self.witness.unasked
            if budget.used < amount or (budget.used > most and not unsure) or budget.reserved:
                figures = f"{budget.used} used and {budget.reserved} reserved"
                found.append(f"budget {budget.budget} has {figures}, and {amount} {budget.counts} were used")


def _reply(person: Person, granted: bool, request: ApprovalRequest) -> ApprovalAnswer:
    about: Any = {"by": person.name, "input_digest": request.input_digest, "scope": person.scope}
    return ApprovalAnswer(granted=granted, **about)


def _state(monitor: Monitor) -> dict[str, Any]:
    """The monitor's state of a session, without the run's context and the current time."""
    monitor.warnings()
    state: dict[str, Any] = msgspec.json.decode(monitor.snapshot())
    del state["context"]
    state["session"]["limits"].pop("now", None)
    return state


@cache
def _policies(described: bytes) -> list[Policy]:
    budget, shared, quick, approval = msgspec.json.decode(described)
    policy: dict[str, Any] = {
        "name": "team",
        "approval": {"timeout_s": 30, **dict(approval)},
        "limits": {"max_tool_calls": {"max": CALLS, "action": "deny"}, "max_total_tokens": 1_000},
        "budgets": [
            {"name": "calls", "max_tool_calls": budget, "action": "deny"},
            *(SHARED[name] for name in shared),
        ],
        "rules": [
            {"type": "blocklist", "tools": ["write"], "action": "request_approval"},
            {"type": "blocklist", "tools": ["rm"], "action": "deny"},
            {"type": "before", "first": "read", "then": "deploy", "action": "deny"},
        ],
    }
    if quick is not None:
        policy["limits"]["max_duration_ms"] = quick
    return parse_policies(policy)


@cache
def _compiled(described: bytes) -> CompiledPolicy:
    return compile_policy(merge_policies(_policies(described)))


_plans: Final[dict[Any, Any]] = {}


async def _plan_once(adapter: Any, policies: tuple[Policy, ...], hooks: Any, *, answerable: bool = True) -> Any:
    """One plan for all simulations: a policy is merged, checked and compiled once for agents with the same
    capabilities.
    """
    key = (*map(id, policies), capabilities_of(adapter), answerable)
    if key not in _plans:
        _plans[key] = await make_plan(adapter, policies, hooks, answerable=answerable)
    return _plans[key]
