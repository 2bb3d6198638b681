"""Whose id a call has: whether a call under this id is a new one, one already known, or somebody else's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from ..stream.marks import is_mark_of
from .session import DENIED, RUNNING, CallInFlight, Session

CallIdentity: TypeAlias = Literal["new", "asked", "changed", "running", "over", "denied", "clash"]
"""What a call is to the calls of its run: `asked` for and undecided, `changed`: asked for with another input,
`running`, `over`, or `denied` before; `clash`: the id is another call's.
"""


def check_id(id: object) -> None:
    """Raises TypeError for a call's id that is not text."""
    if type(id) is not str:
        raise TypeError(f"a call's id is text, not a value of type `{type(id).__name__}`")


def identify(
    session: Session, calls: Mapping[str, CallInFlight], id: str, name: str, input: object, turn: int
) -> CallIdentity:
    """What the call of that id, tool and input is, if it is of response `turn` (the session's number; 0: unknown).

    Ids live within their run. A client that numbers the calls of each response anew gives ids that are new ones
    from the response on that the stream has begun. Raises one of UNREADABLE.
    """
    call = calls.get(id)
    if call is not None:
        same = call.is_again(name, input)
        if call.status in RUNNING:
            return "running" if same else "clash"
        if call.name != name:
            return "clash"
        return "asked" if same else "changed"
    mark = session.finished.get(id)
    if mark is None:
        mark = session.earlier.get(id)
        if mark is None or turn >= session.begun:
            return "new"
    if not is_mark_of(mark.removeprefix(DENIED), name, input):
        return "clash"
    return "denied" if mark.startswith(DENIED) else "over"
