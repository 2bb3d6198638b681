"""A simulation as data: it is drawn from a seed, stored as JSON, and reduced if it fails."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

import msgspec

PEOPLES: Final = ("answer", "approval", "approvals", "runs", "send_command", "last_command", "run", "wait")
"""The operations used by people, who answer and send commands in processes of their own."""
OPERATIONS: Final = (
    *("append", "create_run", "claim_run", "register", "renew", "release", "place", "last_seq", "run", "blocks"),
    *("commands", "reserve", "settle", "lost_runs", "wait", "release_run"),
)
"""The store operations of supervisors, into which faults are put."""

PEOPLE: Final = -1
"""Instead of an owner: everyone who is not one."""


class Call(msgspec.Struct, frozen=True, tag="call"):
    """The agent proposes a call, and runs it for some seconds once it is allowed. Without `gated`, it does not ask.
    `starts`: the call starts a child run whose agent has these steps. `here`: on the same supervisor. `waits`: the
    call lasts until the child run has ended.
    """

    id: str
    tool: str
    seconds: float = 0.0
    fails: bool = False
    gated: bool = True
    starts: tuple[Step, ...] = ()
    here: bool = False
    waits: bool = True


class Together(msgspec.Struct, frozen=True, tag="together"):
    """The agent proposes several calls at once."""

    calls: tuple[Call, ...]


class Usage(msgspec.Struct, frozen=True, tag="usage"):
    """The agent reports tokens: an increment, or a total if `cumulative`."""

    tokens: int
    cumulative: bool = False


class Flood(msgspec.Struct, frozen=True, tag="flood"):
    """The agent reports this many messages without a pause."""

    messages: int


class Wait(msgspec.Struct, frozen=True, tag="wait"):
    """The agent does nothing for some seconds; with None, until it is cancelled."""

    seconds: float | None


class Result(msgspec.Struct, frozen=True, tag="result"):
    """The agent reports the end of a call, whether or not a call with that id exists."""

    id: str


class Says(msgspec.Struct, frozen=True, tag="says"):
    """The agent reports another event: one of `SAYINGS`."""

    what: str


class End(msgspec.Struct, frozen=True, tag="end"):
    """The agent ends: `crash` raises, `stop` reports nothing, `twice` reports two ends, `own` claims an approval
    first, and `failed` reports a failure.
    """

    how: str


Step: TypeAlias = Call | Together | Usage | Flood | Wait | Result | Says | End
SAYINGS: Final = ("turn", "words", "tool", "error", "recovered", "session", "violation", "budget", "pruned")
BUDGETS: Final = ("tokens", "places", "week")
SCOPES: Final = ("once", "run", "session")
"""The scopes of an approval, smallest first."""


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """An owner starts a run. `created`: it was created earlier. `deaf`: how many cancel steps the agent ignores.
    `others`: the steps of the other members of a fallback.
    """

    at: float
    owner: int
    run: str
    session: str
    steps: tuple[Step, ...]
    deaf: int = 0
    gate: str = "all"
    created: bool = False
    others: tuple[tuple[Step, ...], ...] = ()


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """An agent of a fallback, in every run of its owner. `resume`: it continues its own session, unless it `forgets`
    sessions. Each start takes this many `seconds`, and fails while it is `gone`.
    """

    gate: str = "all"
    resume: bool = False
    forgets: bool = False
    seconds: float = 0.0
    gone: tuple[float, float] = (0.0, 0.0)


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody cancels runs: one `handle`, or through the store one `run`, one `session`, or `all`. With `caller`,
    the task that starts a run is cancelled; with `owner`, a whole supervisor. With `freeze`, no run of a session, or
    none at all, starts for some seconds; with `prune`, every ended session is removed; with `drain`, a worker claims
    no more runs.
    `rounds`: how many times all ready tasks run first, since much happens at one moment.
    """

    at: float
    what: str
    value: str = ""
    rounds: int = 0
    seconds: float = 0.0


class Person(msgspec.Struct, frozen=True, kw_only=True):
    """Looks for approval requests at this interval and gives these answers in turn. With an `owner`, this is that
    supervisor's approver, who takes this many seconds. `hurry_s`: the person is interrupted after this many seconds.
    `scope`: the scope of an approval.
    """

    name: str
    every_s: float
    answers: tuple[bool, ...]
    owner: int | None = None
    hurry_s: float | None = None
    scope: str = "once"


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """The n-th operation of this name by an owner, or by people (`PEOPLE`), fails: `slow` before it is done, `late`
    after, `fails` instead, `unheard` after it was done.
    """

    owner: int
    operation: str
    nth: int
    kind: str
    seconds: float = 0.0


class Subscriber(msgspec.Struct, frozen=True, kw_only=True):
    """Follows a session, a run, or (with neither) all events, through the supervisor of an owner. It leaves after a
    number of events or seconds, and comes back some seconds later.
    """

    owner: int
    what: str
    takes: int
    stays_s: float
    every_s: float


class Stop(msgspec.Struct, frozen=True, kw_only=True):
    """An owner is suspended for some seconds; with None, for ever."""

    at: float
    owner: int
    seconds: float | None


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One simulation.

    `budget` is the shared number of calls; `budgets` are other shared budgets; `approval` says who may approve, and
    in which scope; `quick` limits the duration of a run, in ms, if set; `record` limits the recorded events of one
    run; `latency` is the store's longest delay, in seconds; `followers` are followed sessions; `jumps` of the wall
    clock are (at, seconds); `to_monday` is how many seconds before the end of a week the simulation starts;
    `restored` is the share of a run's inputs before which its machine is encoded and restored. In a `fleet`, starts
    are queued, and each owner is a worker. The `store` is `memory`, `sqlite`, or `sqlite each`, a file that each
    owner opens; the transactions with the numbers in `breaks` fail. With `members`, every agent is the fallback of
    its owner, which skips a member for `rest_s` after two consecutive failures. `over`: every agent ends by itself.
    """

    seed: int
    owners: int = 1
    backend: str = "trio"
    budget: int = 1000
    quick: int | None = None
    latency: float = 0.0
    starts: tuple[Start, ...] = ()
    orders: tuple[Order, ...] = ()
    people: tuple[Person, ...] = ()
    faults: tuple[Fault, ...] = ()
    stops: tuple[Stop, ...] = ()
    followers: tuple[str, ...] = ()
    jumps: tuple[tuple[float, float], ...] = ()
    budgets: tuple[str, ...] = ()
    record: dict[str, int] = {}
    to_monday: float = 230_400.0
    restored: float = 0.0
    approval: dict[str, Any] = {}
    fleet: bool = False
    store: str = "memory"
    breaks: tuple[int, ...] = ()
    max_running: int = 3
    members: tuple[Member, ...] = ()
    rest_s: float = 10.0
    over: bool = False
    subscribers: tuple[Subscriber, ...] = ()


def drawn(seed: int) -> Plan:
    """The plan of a seed: of everything, of simultaneous starts, or of owners that die while calls run."""
    chance = random.Random(f"plan {seed}")
    theme = chance.choice(("all", "all", "starts", "deaths"))
    plan = _drawn(chance, seed, theme)
    if theme != "all":
        return plan
    return _with_people(random.Random(f"people {seed}"), _with_more(random.Random(f"more {seed}"), plan))


def _drawn(chance: random.Random, seed: int, theme: str) -> Plan:
    backend = "trio" if theme == "deaths" or chance.random() < 0.85 else "asyncio"
    owners = chance.choice((2,) if theme == "deaths" else (1, 1, 2, 3))
    sessions = [f"s{n}" for n in range(6 if theme == "starts" else chance.randint(1, 4))]
    starts = tuple(_start(chance, theme, n, owners, sessions) for n in range(chance.randint(2, 6)))
    stops = chance.choice((1, 2)) if theme == "deaths" else chance.choice((0, 0, 1, 2)) * (theme == "all")
    return Plan(
        seed=seed,
        owners=owners,
        backend=backend,
        budget=chance.choice((2, 3) if theme == "deaths" else (1, 3, 6, 1000)),
        quick=chance.choice((None, 20_000)) if theme == "all" else None,
        latency=0.2 if theme == "starts" else chance.choice((0.0, 0.01, 0.2)),
        starts=starts,
        orders=tuple(_orders(chance, theme, starts)),
        people=tuple(
            Person(name=name, every_s=chance.uniform(0.5, 8), answers=tuple(chance.random() < 0.7 for _ in range(3)))
            for name in ("ana", "ben")[: chance.randint(0, 2)]
        ),
        faults=tuple(_fault(chance, owners) for _ in range(chance.choice((0, 1, 2, 4)))) if theme == "all" else (),
        stops=tuple(_stop(chance, theme, owners) for _ in range(stops)) if backend == "trio" else (),
        followers=tuple(chance.sample(sessions, chance.randint(0, min(2, len(sessions))))),
        jumps=tuple((chance.uniform(0, 20), chance.uniform(-1e4, 1e4)) for _ in range(chance.choice((0, 0, 1)))),
    )


def _with_more(chance: random.Random, plan: Plan) -> Plan:
    """The plan with rare features, each with some probability."""

    def some(of: int) -> bool:
        return not chance.randrange(of)

    starts = tuple(_with_steps(chance, start) for start in plan.starts)
    callers = [Order(at=start.at + chance.choice((0.0, 0.0, 0.5, 3.0)), what="caller", value=start.run)
               for start in starts if some(8)]  # fmt: skip
    approver = Person(name="eva", every_s=chance.choice((0.0, 1.0, 40.0)), answers=(True, False, True), owner=0)
    bounds = {"max_messages": chance.choice((1, 20)), "max_events": chance.choice((2, 8, 15))}
    orders = [*plan.orders, *callers]
    if some(8):
        leaves = chance.choice((0.0, 0.5, 3.0, 10.0))
        orders.append(Order(at=leaves, what="owner", value=str(chance.randrange(plan.owners))))
    people = [
        msgspec.structs.replace(person, hurry_s=chance.choice((None, None, 0.0, 0.3))) for person in plan.people
    ]
    return msgspec.structs.replace(
        plan,
        starts=starts,
        orders=tuple(
            msgspec.structs.replace(each, rounds=chance.choice((0, chance.randrange(60)))) for each in orders
        ),
        people=(*people, approver) if some(4) else tuple(people),
        faults=(*plan.faults, *(_more_faults(chance, plan.owners) if plan.faults else ())),
        budgets=tuple(name for name in BUDGETS if some(3)),
        record={name: most for name, most in bounds.items() if some(5)},
        to_monday=chance.uniform(0, 30) if some(2) else plan.to_monday,
        restored=chance.choice((0.05, 0.5)) if some(4) else 0.0,
    )


def _with_people(chance: random.Random, plan: Plan) -> Plan:
    """The plan, sometimes with other approvals, freezes and pruned sessions."""
    orders = list(plan.orders)
    sessions = sorted({start.session for start in plan.starts})
    for what in ("freeze", "prune"):
        if not chance.randrange(4):
            at, seconds = round(chance.uniform(0, 14), 2), chance.choice((0.0, 2.0, 20.0))
            orders.append(Order(at=at, what=what, value=chance.choice(("", *sessions)), seconds=seconds))
    fleet = not chance.randrange(5)
    if fleet and not chance.randrange(4):
        drained = str(chance.randrange(plan.owners))
        orders.append(Order(at=round(chance.uniform(0, 20), 2), what="drain", value=drained))
    if fleet:  # if possible, of workers that die while runs are active
        stops = [
            Stop(at=round(chance.uniform(0.5, 20), 2), owner=chance.randrange(2), seconds=chance.choice((None, 45.0)))
            for _ in range(chance.choice((0, 1, 2)) if plan.backend == "trio" else 0)
        ]
        for stop in stops:  # a command at about the time when its runs are lost and retried
            named = chance.choice(plan.starts)
            what, value = chance.choice((("run", named.run), ("session", named.session), ("all", "")))
            orders.append(Order(at=round(stop.at + chance.uniform(20, 36), 2), what=what, value=value))
        stops = [*plan.stops, *stops]
        plan = msgspec.structs.replace(plan, owners=max(plan.owners, 2), stops=tuple(stops), record={})
    is_asking = not chance.randrange(3)
    approval: dict[str, Any] = {}
    if is_asking or chance.randrange(2):
        approval = {"scope": chance.choice(SCOPES), "on_timeout": chance.choice(("deny", "deny", "cancel"))}
        if not chance.randrange(3):
            approval["approvers"] = ["ana"]
    people = tuple(msgspec.structs.replace(person, scope=chance.choice(SCOPES)) for person in plan.people)
    if is_asking:  # consecutive runs of few sessions, whose calls wait for people who answer quickly
        plan = msgspec.structs.replace(plan, starts=tuple(_asking(chance, start) for start in plan.starts))
        people = tuple(
            Person(
                name=name,
                every_s=chance.choice((0.6, 2.0, 5.0)),
                answers=(True, True, chance.random() < 0.5),
                scope=chance.choice(SCOPES[1:]),
            )
            for name in ("ana", "ben")
        )
    return msgspec.structs.replace(
        plan,
        orders=tuple(orders),
        people=people,
        approval=approval,
        fleet=fleet,
        store="memory" if chance.randrange(12) else "sqlite",
        breaks=tuple(chance.randrange(2, 60) for _ in range(chance.choice((0, 1, 3)))),
    )


def _asking(chance: random.Random, start: Start) -> Start:
    def written(call: Call) -> Call:
        return msgspec.structs.replace(call, tool="write") if chance.random() < 0.7 else call

    steps: list[Step] = []
    for step in start.steps:
        match step:
            case Call():
                steps.append(written(step))
            case Together():
                steps.append(Together(tuple(map(written, step.calls))))
            case Wait(None):
                steps.append(Wait(1.0))
            case _:
                steps.append(step)
    return msgspec.structs.replace(
        start, at=start.at * 4, session=chance.choice(("s0", "s0", "s1")), steps=tuple(steps)
    )


def _more_faults(chance: random.Random, owners: int) -> Iterator[Fault]:
    for _ in range(chance.choice((0, 0, 1, 2))):
        owner = chance.randrange(-1, owners)
        operation = chance.choice(PEOPLES if owner == PEOPLE else ("release_run", "claim_run", "settle", "place"))
        kind, seconds = chance.choice(("slow", "late", "fails", "unheard")), chance.choice((1.0, 12.0, 50.0))
        yield Fault(owner=owner, operation=operation, nth=chance.randint(1, 2), kind=kind, seconds=seconds)


def _with_steps(chance: random.Random, start: Start) -> Start:
    """The start, sometimes with an agent that starts runs and reports other events."""
    steps = list(start.steps)
    for n in range(chance.choice((0, 0, 0, 1, 2))):
        step: Step = Says(chance.choice(SAYINGS))
        if chance.random() < 0.4:
            step = Call(id=f"s{n}", tool="read", starts=tuple(drawn_steps(chance, "all")))
        steps.insert(chance.randint(0, len(steps)), step)
    return msgspec.structs.replace(start, steps=tuple(steps))


def _start(chance: random.Random, theme: str, n: int, owners: int, sessions: list[str]) -> Start:
    gate = "all" if theme == "deaths" else chance.choice(("all", "all", "all", "some", "none"))
    steps = tuple(drawn_steps(chance, gate))
    if theme == "deaths":
        reads = [Call(id=f"d{k}", tool="read", seconds=chance.choice((0.0, 0.0, 50.0))) for k in range(3)]
        steps = (Wait(chance.choice((0.0, 33.0, 36.0) if n else (33.0, 36.0))), *reads, *steps)
    return Start(
        at=round(chance.uniform(0, 0.3 if theme != "all" else 12), 2) if n or theme == "all" else 0.0,
        owner=0 if theme == "deaths" and not n else chance.randrange(owners),
        run=f"r{n}",
        session=sessions[n % len(sessions)] if theme != "all" else chance.choice(sessions),
        steps=(*steps, Wait(None)) if theme == "starts" else steps,
        deaf=chance.choice((0, 0, 1, 2)),
        gate=gate,
        created=chance.random() < 0.3,
    )


def drawn_steps(chance: random.Random, gate: str) -> Iterator[Step]:
    """The steps of an agent with this gate."""
    for n in range(chance.randint(1, 6)):
        drawn = chance.random()
        if drawn < 0.45:
            yield _call(chance, n, gate)
        elif drawn < 0.55:
            yield Together(tuple(_call(chance, 100 + 10 * n + k, gate) for k in range(chance.randint(2, 3))))
        elif drawn < 0.67:
            yield Usage(chance.randint(1, 400), chance.random() < 0.3)
        elif drawn < 0.72:
            yield Flood(chance.choice((3, 50, 3, 50, 3, 50, 3, 50, 1500)))
        elif drawn < 0.87:
            yield Wait(chance.choice((0.1, 1.0, 10.0, None)))
        elif drawn < 0.93:
            yield Result(f"c{chance.randint(0, 5)}")
        else:
            yield End(chance.choice(("crash", "stop", "twice", "own")))
            return


def _call(chance: random.Random, n: int, gate: str) -> Call:
    gated = gate != "none" and (gate == "all" or chance.random() < 0.6)
    again = gated and chance.random() < 0.15  # a repeated ungated call counts once
    return Call(
        id=f"c{chance.randint(0, n) if again else n}" if gated else f"u{n}",
        tool=chance.choice(("read", "read", "read", "write", "rm", "deploy")),
        seconds=chance.choice((0.0, 0.0, 0.5, 5.0)),
        fails=chance.random() < 0.2,
        gated=gated,
    )


def _orders(chance: random.Random, theme: str, starts: tuple[Start, ...]) -> Iterator[Order]:
    for start in starts:
        at = round(start.at + chance.choice((0.0, 0.0, 0.1, 0.5, 3.0)), 2)
        drawn = chance.random() * (0.4 if theme == "starts" else 1)
        if drawn < 0.15:
            yield Order(at=at, what="handle", value=start.run)
        elif drawn < 0.3:
            yield Order(at=at, what="run", value=start.run)
        elif drawn < 0.36:
            yield Order(at=at, what="session", value=start.session)
        elif drawn < 0.4:
            yield Order(at=at, what="all")


def _fault(chance: random.Random, owners: int) -> Fault:
    operation = "append" if chance.random() < 0.6 else chance.choice(OPERATIONS)
    return Fault(
        owner=chance.randrange(owners),
        operation=operation,
        nth=chance.randint(1, 12 if operation == "append" else 4),
        kind=chance.choice(("slow", "late", "fails", "unheard")),
        seconds=chance.choice((0.01, 1.0, 7.0, 12.0, 50.0)),
    )


def _stop(chance: random.Random, theme: str, owners: int) -> Stop:
    return Stop(
        at=round(chance.uniform(0.5, 3) if theme == "deaths" else chance.uniform(0, 15), 2),
        owner=1 if theme == "deaths" else chance.randrange(owners),
        seconds=chance.choice((None,) if theme == "deaths" else (None, 1.0, 20.0, 45.0, 90.0)),
    )


def smaller(plan: Plan, fails: Callable[[Plan], bool]) -> Plan:
    """The plan without anything that its failure does not need."""
    again = True
    while again:
        again = False
        for less in _less(plan):
            if fails(less):
                plan, again = less, True
                break
    return plan


_PLAINEST: Final = msgspec.structs.asdict(Plan(seed=0))


def _less(plan: Plan) -> Iterator[Plan]:
    """The plan without one part, each in turn, the largest first."""
    for name in ("starts", "orders", "people", "faults", "stops", "followers", "jumps", "breaks", "subscribers"):
        things = getattr(plan, name)
        for n in range(len(things)):
            yield msgspec.structs.replace(plan, **{name: (*things[:n], *things[n + 1 :])})
    for n, start in enumerate(plan.starts):
        for k in range(len(start.steps)):
            fewer = msgspec.structs.replace(start, steps=(*start.steps[:k], *start.steps[k + 1 :]))
            yield msgspec.structs.replace(plan, starts=(*plan.starts[:n], fewer, *plan.starts[n + 1 :]))
    for n, start in enumerate(plan.starts):
        for less in _less_nested(start):
            yield msgspec.structs.replace(plan, starts=(*plan.starts[:n], less, *plan.starts[n + 1 :]))
    for name in ("budgets", "record", "quick", "restored", "latency", "approval", "fleet", "store", "members"):
        if getattr(plan, name) != _PLAINEST[name]:
            yield msgspec.structs.replace(plan, **{name: _PLAINEST[name]})
    for n, order in enumerate(plan.orders):
        if order.rounds:
            at_once = msgspec.structs.replace(order, rounds=0)
            yield msgspec.structs.replace(plan, orders=(*plan.orders[:n], at_once, *plan.orders[n + 1 :]))
    named = {start.owner for start in plan.starts} | {fault.owner for fault in plan.faults}
    named |= {stop.owner for stop in plan.stops} | {int(each.value) for each in plan.orders if each.what == "owner"}
    if plan.owners > 1 and max(named, default=0) < plan.owners - 1:
        yield msgspec.structs.replace(plan, owners=plan.owners - 1)


def _less_nested(start: Start) -> Iterator[Start]:
    """The start without one step of another fallback member, or of a child run."""
    for n, each in enumerate(start.others):
        for k in range(len(each)):
            fewer = (*start.others[:n], (*each[:k], *each[k + 1 :]), *start.others[n + 1 :])
            yield msgspec.structs.replace(start, others=fewer)
    for n, step in enumerate(start.steps):
        calls = step.calls if isinstance(step, Together) else (step,) if isinstance(step, Call) else ()
        fewer_calls = [tuple(calls[:k] + calls[k + 1 :]) for k in range(len(calls))] if len(calls) > 1 else []
        for k, call in enumerate(calls):
            for j in range(len(call.starts)):
                less = msgspec.structs.replace(call, starts=(*call.starts[:j], *call.starts[j + 1 :]))
                fewer_calls.append((*calls[:k], less, *calls[k + 1 :]))
        for kept in fewer_calls:
            as_step = kept[0] if len(kept) == 1 else Together(kept)
            yield msgspec.structs.replace(start, steps=(*start.steps[:n], as_step, *start.steps[n + 1 :]))
