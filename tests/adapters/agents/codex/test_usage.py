"""What a thread has used, out of the running totals that the client repeats."""

from __future__ import annotations

import pytest

from proctor.adapters.agents.codex.translation import UsageCount
from proctor.supervisor import EventError


def total(tokens: int) -> dict[str, int]:
    return {"inputTokens": tokens, "totalTokens": tokens}


def used(count: UsageCount, tokens: int) -> int | None:
    update = count.update(total(tokens), total(tokens), None)
    return None if update is None else update.input_tokens


def test_a_total_that_comes_once_more_after_a_newer_one_takes_nothing_back() -> None:
    """As messages of several threads may; what follows counts from the newest."""
    count = UsageCount(fresh=True)

    assert [used(count, tokens) for tokens in (200, 300, 200, 350)] == [200, 100, None, 50]


def test_a_total_from_before_the_run_that_comes_late_takes_nothing_back() -> None:
    """The thread was resumed with a newer one."""
    count = UsageCount(fresh=False)
    count.past(total(300))

    assert [used(count, tokens) for tokens in (200, 310)] == [None, 10]


def test_an_unreported_total_that_falls_is_refused() -> None:
    """What was used stays used."""
    count = UsageCount(fresh=True)
    used(count, 300)

    with pytest.raises(EventError, match="fell from 300 to 250"):
        used(count, 250)


def test_totals_that_come_in_another_order_count_once() -> None:
    """A newer one says by its own response which one it was added to, and that one its own."""
    count = UsageCount(fresh=True)

    updates = [count.update(total(whole), total(last), None) for whole, last in ((350, 50), (300, 100), (200, 200))]

    assert [update and update.input_tokens for update in updates] == [350, None, None]
