"""Which policies are known to be sound, so that none is checked twice."""

from __future__ import annotations

from weakref import WeakValueDictionary

from ..policy import Policy

_SOUND: WeakValueDictionary[int, Policy] = WeakValueDictionary()


def mark_sound(policy: Policy) -> None:
    """Remember, for as long as it lives, that this very record was checked and is sound."""
    _SOUND[id(policy)] = policy


def is_sound(policy: Policy) -> bool:
    """Whether this very record was checked; a copy of it was not."""
    return _SOUND.get(id(policy)) is policy
