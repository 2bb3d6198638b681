"""The answers to questions about whole sessions: a proof, a session, or how far the search came."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import msgspec


class SessionAnswer(msgspec.Struct, kw_only=True):
    """The fields that every answer has.

    Attributes:
        reason: One sentence: why it is so.
        session: The calls in order, each with `tool`, `input`, `decision` (`allow`, `warn`, `request_approval`,
            `deny`, `cancel`) and `outcome` (`completed`, `failed`, `denied`, `running`); where it matters also
            `output`, `approval` (`granted` or `declined`), `turn`, `run`, `ended_before_call` (the number of the call
            that it ended before), and `before`: what happened before the call. Empty in a proof.
        context: The run's context in that session, as far as a `when` or a path looks at it.
        explored: Figures: `classes` of calls, `states`, `depth` in calls, and `bounded`: what the search took for
            granted, one sentence each.
        certificates: What `analysis.certificate.check` verifies, one for each rule that a proof is about.
    """

    verdict: ClassVar[Literal["proved", "refuted", "unknown"]]

    reason: str
    session: list[dict[str, Any]] = []
    context: dict[str, Any] = {}
    explored: dict[str, Any] = {}
    certificates: list[Any] = []


class Proved(SessionAnswer):
    """No session shows otherwise."""

    verdict = "proved"


class Refuted(SessionAnswer):
    """The session breaks the property; it was replayed on the real monitors."""

    verdict = "refuted"


class Unknown(SessionAnswer):
    """Neither proved nor refuted; `reason` says why."""

    verdict = "unknown"
