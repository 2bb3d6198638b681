"""What every event of a session has."""

from __future__ import annotations

from datetime import datetime

import msgspec


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", gc=False):
    """One fact reported by or about a session. An adapter leaves all of these but `event_id` to the supervisor.

    Attributes:
        run_id: The run it belongs to.
        session_id: The session it belongs to.
        seq: Its number within the session, from 1, without gaps; the store gives it.
        at: When it happened, UTC.
        provider: The name of the adapter.
        event_id: An id that makes a repeated report recognisable: a second event with it is not stored.
        omitted_chars: How many characters of what the agent reported are left out: an event carries about 4 MiB. What
            is left is the beginning, of a value that is no text that of its JSON.
    """

    # gc=False: an event leads to plain JSON only, never back to itself, and a run keeps very many.
    run_id: str = ""
    session_id: str = ""
    seq: int = 0
    at: datetime | None = None
    provider: str = ""
    event_id: str = ""
    omitted_chars: int = 0

    @property
    def type(self) -> str:
        """The tag this event is written with."""
        return str(self.__struct_config__.tag)
