"""`within`: whether a path is inside a directory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..values.equality import is_number, scalars_in, text_of
from ..values.places import inside, place_of
from .facts import Facts
from .operators import Reading


def is_within(directory: str, reading: Reading) -> Callable[[Any, Facts], bool]:
    """The test of one value: of a list or object in a call's input, each text in it is a path."""

    def is_inside(value: Any, facts: Facts) -> bool | None:
        if reading.loose and is_number(value):
            value = text_of(value)
        if type(value) is not str:
            return None
        around = facts.directories[:2]
        return inside(place_of(value, *around), place_of(directory, *around))

    def holds(value: Any, facts: Facts) -> bool:
        found = [is_inside(each, facts) for each in (scalars_in(value) if reading.loose else (value,))]
        if reading.permits:
            return bool(found) and all(found)
        return any(each is not False for each in found)

    return holds
