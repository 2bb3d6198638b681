"""What a stack says tokens cost, so that no policy makes them cheaper than a locked one counts them."""

from __future__ import annotations

import msgspec

from ..policy import Policy, Price, members_of


class PriceTable(msgspec.Struct, frozen=True):
    """The prices of one locked policy; one that caps the cost counts what it does not name at public prices."""

    policy: str
    prices: dict[str, Price]
    caps_cost: bool


class PriceTables(msgspec.Struct, frozen=True):
    """What holds for a model: of the locked tables and the open one the dearest; else the public price.

    `open` is that of the policies that are not locked, a later price in the place of an earlier one. With
    `reject` the open table does not make up for a price that a locked cap lacks.
    """

    open: dict[str, Price]
    locked: tuple[PriceTable, ...] = ()
    reject: bool = False

    def __bool__(self) -> bool:
        return bool(self.open) or any(table.prices for table in self.locked)


def caps_cost(member: Policy) -> bool:
    """Whether a limit or a budget of it is about money."""
    return member.limits.max_cost_usd is not None or any(b.max_cost_usd is not None for b in member.budgets)


def price_tables(policy: Policy) -> PriceTables:
    """The tables of a policy or a stack."""
    unlocked: dict[str, Price] = {}
    locked = []
    for member in members_of(policy):
        if not member.locked:
            unlocked |= member.prices
        elif member.prices or caps_cost(member):
            locked.append(PriceTable(member.name, member.prices, caps_cost(member)))
    reject = any(member.locked and member.unpriced == "reject" for member in members_of(policy))
    return PriceTables(unlocked, tuple(locked), reject)
