"""Circles among names that lead to one another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def circle(leads_to: Mapping[str, Iterable[str]]) -> tuple[str, ...]:
    """Names of which each leads to the next and the last to the first, which ends it; empty if there is no circle."""
    done: set[str] = set()
    for start in leads_to:
        path = {start: iter(leads_to[start])}
        while path:
            name = next(reversed(path))
            follower = next((each for each in path[name] if each not in done), None)
            if follower is None:
                done.add(name)
                del path[name]
            elif follower in path:
                names = list(path)
                return (*names[names.index(follower) :], follower)
            else:
                path[follower] = iter(leads_to[follower])
    return ()
