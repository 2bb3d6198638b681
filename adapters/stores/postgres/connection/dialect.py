"""What PostgreSQL says in its own way. A lease runs by the server's clock, the one that all machines share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from proctor.supervisor.ports.orders import label_text

from ...tables.asking import Condition, Dialect


def one_label(name: str, value: object) -> str:
    """A label as one text, which no other label has."""
    return f"{len(name)}:{name}={label_text(value)}"


def _among(value: str, values: Sequence[Any]) -> Condition:
    return f"{value} = ANY(?)", list(values)


def _labelled(labels: Mapping[str, str]) -> Iterator[Condition]:
    if labels:
        yield "label_texts @> ?", [one_label(*label) for label in labels.items()]


POSTGRES = Dialect(
    until="(until IS NULL OR until <= clock_timestamp()) AS over",
    is_over=lambda over, where: over,
    lease_end="clock_timestamp() + make_interval(secs => ?)",
    lease=float,
    among=_among,
    begins=lambda text, with_what: (f"starts_with({text}, ?)", with_what),
    labelled=_labelled,
    last_instruction="SELECT coalesce(max(number), 0) FROM instructions",
    claim="budget, key, counts, period, most",
    until_value="extract(epoch FROM until)::text",
    lock=" FOR NO KEY UPDATE",
)


@cache
def with_places(sql: str) -> str:
    """A statement for every database, with its places as the driver has them."""
    return sql.replace("?", "%s")
