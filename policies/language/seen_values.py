"""The values that tools returned, as conditions compare with them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from ..events.calls import UNREADABLE, fingerprint
from ..values.json_values import is_number, number_of, unkeepable
from .operators import flat

BOUND = 10_000
"""The most keys, ids or values that one rule remembers; beyond it the rule denies, as a model can make them up."""


class SeenValues(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The values that earlier successful calls returned for one reference."""

    texts: set[str] = set()
    numbers: set[int | float] = set()
    numeric_texts: set[int | float] = set()
    others: set[str] = set()
    full: bool = False

    @property
    def empty(self) -> bool:
        """Whether nothing was kept."""
        return not (self.texts or self.numbers or self.others)

    def add(self, values: Iterable[Any]) -> None:
        """Keep values, and each element of lists; beyond the bound, only that some were dropped."""
        for value in flat(list(values)):
            if len(self.texts) + len(self.numbers) + len(self.others) >= BOUND:
                self.full = True
                return
            if type(value) is str:
                self.texts.add(value)
                number = number_of(value, loose=True)
                if number is not None and not unkeepable(number):
                    self.numeric_texts.add(number)
            elif is_number(value) and not unkeepable(value):
                self.numbers.add(value)
            else:
                try:
                    self.others.add(fingerprint(value).decode())
                except UNREADABLE:
                    self.full = True  # past what can be kept, as past the bound

    def has(self, value: Any, loose: bool) -> bool:
        """Whether a value is among them; with `loose`, a number equals its text."""
        if type(value) is str:
            return value in self.texts or (loose and number_of(value, loose=True) in self.numbers)
        if is_number(value):
            return value in self.numbers or (loose and value in self.numeric_texts)
        return fingerprint(value).decode() in self.others

    def values(self) -> list[Any]:
        """All values, in no order."""
        return [*self.texts, *self.numbers, *(msgspec.json.decode(other) for other in self.others)]
