"""Plans with fallbacks, and with agents that start runs on their own, fully used supervisor."""

import random
from collections.abc import Iterable, Iterator
from itertools import count

from msgspec.structs import replace

from .plans import (
    Call,
    End,
    Flood,
    Member,
    Order,
    Plan,
    Says,
    Start,
    Step,
    Subscriber,
    Together,
    Usage,
    Wait,
    drawn,
    drawn_steps,
)


def drawn_team(seed: int) -> Plan:
    """The plan of `drawn` for this seed, with other agents."""
    chance = random.Random(f"team {seed}")
    plan = drawn(seed)
    members = tuple(_members(chance)) if chance.random() < 0.7 else ()
    nests = not members or chance.random() < 0.6
    over = chance.random() < 0.6
    starts = [_with_others(chance, start, members) for start in plan.starts]
    orders = list(plan.orders)
    if nests and not plan.fleet:
        starts = [replace(start, steps=tuple(_nesting(chance, start.steps, 0))) for start in starts]
        starts = [replace(start, session=chance.choice((start.session, start.run))) for start in starts]
        orders += [order for start in starts for order in _orders(chance, start)]
    if over:
        starts = [
            replace(start, steps=_ending(start.steps), others=tuple(map(_ending, start.others))) for start in starts
        ]
    return replace(
        plan,
        starts=tuple(starts),
        orders=tuple(orders),
        members=members,
        rest_s=chance.choice((0.0, 3.0, 30.0)),
        max_running=chance.choice((1, 1, 2, 3)) if nests else 3,
        over=over,
        store="sqlite each" if chance.random() < 0.08 else plan.store,
        subscribers=tuple(_subscribers(chance, plan)) if chance.random() < 0.5 else (),
    )


def _subscribers(chance: random.Random, plan: Plan) -> Iterator[Subscriber]:
    for _ in range(chance.randint(1, 4)):
        start = chance.choice(plan.starts)
        yield Subscriber(
            owner=chance.randrange(plan.owners),
            what=chance.choice(("", start.session, start.run)),
            takes=chance.choice((1, 3, 1000)),
            stays_s=chance.choice((0.3, 5.0, 1000.0)),
            every_s=chance.choice((0.1, 0.5, 40.0)),
        )


def _members(chance: random.Random) -> Iterator[Member]:
    for _ in range(chance.choice((2, 2, 3))):
        since = chance.uniform(0, 20) if chance.random() < 0.3 else 0.0
        yield Member(
            gate=chance.choice(("all", "all", "all", "some", "none")),
            resume=chance.random() < 0.3,
            forgets=chance.random() < 0.5,
            seconds=chance.choice((0.0, 0.0, 0.0, 2.0)),
            gone=(since, since + 10) if since else (0.0, 0.0),
        )


def _with_others(chance: random.Random, start: Start, members: tuple[Member, ...]) -> Start:
    """The start with steps for each member; most fail early, except the last."""
    if not members:
        return start
    each = [_once(start.steps), *(_once(drawn_steps(chance, member.gate)) for member in members[1:])]
    for n, member in enumerate(members[:-1]):
        if chance.random() < 0.75:
            each[n] = tuple(_failing(chance, member.gate))
    return replace(start, steps=each[0], others=tuple(each[1:]))


def _once(given: Iterable[Step]) -> tuple[Step, ...]:
    """The steps without repeated calls: of a member without a gate, both would count as one."""
    numbers = count()

    def own(call: Call) -> Call:
        return replace(call, id=f"{call.id[0]}{next(numbers)}")

    return tuple(
        Together(tuple(map(own, step.calls)))
        if isinstance(step, Together)
        else own(step)
        if isinstance(step, Call)
        else step
        for step in given
    )


def _failing(chance: random.Random, gate: str) -> Iterator[Step]:
    for n in range(chance.choice((0, 1, 1, 2, 3))):
        drawn = chance.random()
        if drawn < 0.3:
            yield Usage(chance.randint(1, 400), chance.random() < 0.5)
        elif drawn < 0.45:
            yield Says(chance.choice(("turn", "words", "session", "error")))
        elif drawn < 0.55:
            yield Flood(3)
        elif drawn < 0.7:
            yield Wait(chance.choice((0.1, 3.0, 10.0)))
        else:
            gated = gate != "none" and (gate == "all" or chance.random() < 0.6)
            tool = chance.choice(("rm", "rm", "write", "deploy", "read"))
            yield Call(id=f"c{n}" if gated else f"u{n}", tool=tool, gated=gated, seconds=chance.choice((0.0, 3.0)))
    yield End(chance.choice(("crash", "crash", "stop", "failed")))


def _nesting(chance: random.Random, given: tuple[Step, ...], depth: int) -> Iterator[Step]:
    """The steps, with calls in between that start runs here: one, or several at once."""
    starts = chance.choice((0, 1, 1, 2)) if depth < 3 else 0
    at = [chance.randint(0, len(given)) for _ in range(starts)]
    for n in range(len(given) + 1):
        for k, place in enumerate(at):
            if place == n:
                calls = [_starting(chance, f"n{k}{letter}", depth) for letter in "abc"[: chance.choice((1, 1, 2, 3))]]
                yield calls[0] if len(calls) == 1 else Together(tuple(calls))
        yield from given[n : n + 1]


def _starting(chance: random.Random, id: str, depth: int) -> Call:
    below = _once(drawn_steps(chance, "all"))[: chance.randint(0, 3)]
    if chance.random() < 0.4:
        below = tuple(_nesting(chance, below, depth + 1 + chance.randint(0, 1)))
    return Call(id=id, tool="read", starts=below, here=chance.random() < 0.9, waits=chance.random() < 0.75)


def _orders(chance: random.Random, start: Start) -> Iterator[Order]:
    """Cancel a run that an agent starts, at about the time when it may be active."""
    for step in start.steps:
        for call in step.calls if isinstance(step, Together) else (step,):
            if isinstance(call, Call) and call.starts and chance.random() < 0.2:
                yield Order(at=round(start.at + chance.uniform(0, 8), 2), what="run", value=f"{start.run}.{call.id}")


def _ending(given: tuple[Step, ...]) -> tuple[Step, ...]:
    """The steps, without any that waits until it is cancelled."""
    return tuple(map(_with_an_end, given))


def _with_an_end(step: Step) -> Step:
    match step:
        case Wait(None):
            return Wait(5.0)
        case Call():
            return replace(step, starts=_ending(step.starts))
        case Together():
            return Together(tuple(replace(call, starts=_ending(call.starts)) for call in step.calls))
    return step
