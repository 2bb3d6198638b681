"""In-memory twins of an Approver and a Publisher."""

from __future__ import annotations

from collections.abc import Callable

import anyio

from proctor.policies.stream.events import Event

from ..ports.adapters import ApprovalAnswer, ApprovalRequest


class FakeApprover:
    """Gives one answer to every request: yes, no, or (None) none; keeps what it was asked.

    `error` is raised instead. `on_request` is called with each request before it is answered.
    """

    def __init__(
        self,
        granted: bool | None,
        *,
        by: str = "ana",
        error: Exception | None = None,
        on_request: Callable[[ApprovalRequest], object] | None = None,
    ) -> None:
        self.requests: list[ApprovalRequest] = []
        self.first_asked = anyio.Event()
        self._granted = granted
        self._by = by
        self._error = error
        self._on_request = on_request

    async def __call__(self, request: ApprovalRequest) -> ApprovalAnswer | None:
        self.requests.append(request)
        self.first_asked.set()
        if self._on_request is not None:
            self._on_request(request)
        if self._error is not None:
            raise self._error
        if self._granted is None:
            return None
        return ApprovalAnswer(granted=self._granted, by=self._by, input_digest=request.input_digest)


class FakePublisher:
    """Keeps the events it is handed; raises at the n-th, where `fails_at` says so."""

    def __init__(self, *, fails_at: int | None = None) -> None:
        self.events: list[Event] = []
        self._fails_at = fails_at

    def __call__(self, event: Event) -> None:
        if self._fails_at is not None and len(self.events) + 1 >= self._fails_at:
            raise RuntimeError("the publisher failed")
        self.events.append(event)

    @property
    def types(self) -> list[str]:
        """The types of the events it got."""
        return [event.type for event in self.events]
