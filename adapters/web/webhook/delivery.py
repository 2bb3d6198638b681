"""The delivery of one event, with retries."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias

import anyio
import httpx
import tenacity

from proctor.policies.stream.events import Event

from .envelope import enveloped, message_id, signed
from .target import Target

Outcome: TypeAlias = Literal["sent", "skipped", "gone"]
_LATER = (408, 425, 429)
"""Refusals that mean: not now."""
_GONE = 410


class _AgainError(Exception):
    """It did not arrive; `refused`: the receiver rejected it."""

    def __init__(self, why: str, *, refused: bool = False) -> None:
        super().__init__(why)
        self.refused = refused


class _GoneError(Exception):
    """The receiver wants no more events at all."""


class Courier:
    """Delivers events to one receiver, one after another."""

    def __init__(self, target: Target, store_id: str, client: httpx.AsyncClient, log: Any) -> None:
        self._target = target
        self._store_id = store_id
        self._client = client
        self._log = log

    async def deliver(self, event: Event) -> Outcome:
        """Send an event until it arrives or its bound is reached; a skipped event is logged."""
        target = self._target
        body = enveloped(event, self._store_id)
        tries = tenacity.AsyncRetrying(
            sleep=anyio.sleep,
            wait=tenacity.wait_random_exponential(multiplier=target.first_wait_s, max=target.longest_wait_s),
            retry=tenacity.retry_if_exception_type(_AgainError),
            stop=lambda state: self._enough(state, event),
            before_sleep=lambda state: self._note_retry(state, event),
            reraise=True,
        )
        try:
            await tries(self._once, event, body)
        except _AgainError as error:
            self._log.error("webhook.skipped", event_id=message_id(event), type=event.type, why=str(error))
            return "skipped"
        except _GoneError:
            self._log.error("webhook.gone", why="the receiver answered 410: nothing more is sent to it")
            return "gone"
        return "sent"

    async def _once(self, event: Event, body: bytes) -> None:
        target, id = self._target, message_id(event)
        if self._age_s(event) > target.oldest_s:
            raise _AgainError("it is older than the receiver's limit")
        headers = signed(target.key, id, body, round(datetime.now(UTC).timestamp()))
        try:
            with anyio.fail_after(target.timeout_s):
                async with self._client.stream("POST", target.url, content=body, headers=headers) as response:
                    status = response.status_code  # what else is answered is not read
        except TimeoutError:
            raise _AgainError(f"no answer within {target.timeout_s:g} s") from None
        except httpx.HTTPError as error:
            raise _AgainError(f"{type(error).__name__}: {error}") from None
        if status == _GONE:
            raise _GoneError
        if not 200 <= status < 300:
            raise _AgainError(f"status {status}", refused=400 <= status < 500 and status not in _LATER)

    def _enough(self, state: tenacity.RetryCallState, event: Event) -> bool:
        error = state.outcome.exception() if state.outcome else None
        if isinstance(error, _AgainError) and error.refused:
            return state.attempt_number >= self._target.refusals
        return self._age_s(event) > self._target.oldest_s

    def _note_retry(self, state: tenacity.RetryCallState, event: Event) -> None:
        if state.attempt_number in (1, 10, 100):
            error = state.outcome.exception() if state.outcome else None
            self._log.warning(
                "webhook.again", event_id=message_id(event), attempt=state.attempt_number, why=str(error)
            )

    def _age_s(self, event: Event) -> float:
        return 0.0 if event.at is None else (datetime.now(UTC) - event.at).total_seconds()
