"""What `diff` found, on a terminal and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.text import Text

from proctor.adapters.kit.values.printable import printable

from ..diff import DiffAnswer, SessionChange
from ..whose import in_words

_LABELS = {
    "newly_refused": ("newly refused", "red"),
    "newly_allowed": ("newly allowed", "green"),
    "other_action": ("another action", "yellow"),
    "other_rules": ("other rules", ""),
}


class DiffTally:
    """Sums up changes as they come; `changed` keeps at most `keep` sessions that are judged differently."""

    def __init__(self, keep: int = 1000) -> None:
        self.sessions = 0
        self.differing = 0
        self.now_failing = 0
        self.now_passing = 0
        self.calls: Counter[str] = Counter()
        self.changed: list[SessionChange] = []
        self._keep = keep

    def add(self, change: SessionChange) -> None:
        """Take one session into account."""
        self.sessions += 1
        self.differing += change.differs
        self.now_failing += change.old_passed and not change.new_passed
        self.now_passing += change.new_passed and not change.old_passed
        self.calls.update(call.change for call in change.calls)
        if change.differs and len(self.changed) < self._keep:
            self.changed.append(change)


def diff_table(tally: DiffTally, *, calls_shown: int = 40) -> RenderableType:
    """The calls judged differently, at most `calls_shown`, and the sums."""
    return Group(*_parts(tally, calls_shown))


def _parts(tally: DiffTally, shown: int) -> Iterator[RenderableType]:
    if tally.calls:
        yield from _calls(tally, shown)
        more = tally.calls.total() - shown
        if more > 0:
            yield Text(f"... and {more} more")
        yield Text()
    for change, (label, style) in _LABELS.items():
        if tally.calls[change]:
            yield Text(f"{label}: {tally.calls[change]:,}", style)
    yield Text(
        f"sessions: {tally.sessions:,}, judged differently {tally.differing:,}, "
        f"now failing {tally.now_failing:,}, now passing {tally.now_passing:,}",
        "bold",
    )


def _calls(tally: DiffTally, shown: int) -> Iterator[Text]:
    """Each session with its calls below: no id is broken, however narrow the terminal."""
    left = shown
    for change in tally.changed:
        if left <= 0:
            return
        yield Text(f"{printable(change.session)}  {printable(in_words(change.whose))}".rstrip(), "bold")
        for call in change.calls[:left]:
            label, style = _LABELS[call.change]
            yield Text.assemble("  ", (f"{label:<14}", style), f"  {call.call}")
            yield Text(f"    was {_answer(call.old)}; would be {_answer(call.new)}")
        left -= len(change.calls)


def _answer(answer: DiffAnswer) -> str:
    rules = ", ".join(printable(rule) for rule in answer.rules)
    return f"{answer.action}: {rules}" if rules else answer.action
