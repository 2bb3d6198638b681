"""The steps that a preflight may take. They are counted, as there is no clock here; a caller may end it sooner."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

MAX_STEPS = 4_000_000
"""How many steps one preflight takes in all: some seconds."""
CHECK_EVERY = 5_000
"""The number of steps after which the caller can stop the search."""


class OutOfWork(Exception):  # noqa: N818 - it ends a check, nothing is wrong
    """The steps are used up, or the caller wants no more."""


class Work:
    """The steps left of one preflight; none once `should_stop`, which is asked now and then, has said yes."""

    def __init__(self, steps: int = MAX_STEPS, should_stop: Callable[[], bool] | None = None) -> None:
        self._left = steps
        self._should_stop = should_stop
        self._until_check = CHECK_EVERY

    def spend(self, steps: int = 1) -> None:
        """Take some steps. Raises OutOfWork if there are none left."""
        self._left -= steps
        self._until_check -= steps
        if self._until_check < 0:
            self._until_check = CHECK_EVERY
            if self._should_stop is not None and self._should_stop():
                self._left, self._should_stop = -1, lambda: True
                raise OutOfWork
        if self._left < 0:
            raise OutOfWork

    @contextmanager
    def share(self, of: int) -> Iterator[None]:
        """One of so many even parts of what is left, so that one search leaves something for the others."""
        whole = max(self._left, 0)
        kept = whole - whole // of
        self._left -= kept
        try:
            yield
        finally:
            stopped = self._should_stop is not None and self._left < 0 and self._should_stop()
            self._left = -1 if stopped else max(self._left, 0) + kept
