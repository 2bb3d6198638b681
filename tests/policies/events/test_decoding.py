"""Error messages for events that can't be decoded."""

from typing import Any

import pytest

from proctor.policies import EventError, decode_event


@pytest.mark.parametrize(("text", "message"), [
    ('{"type": "tool_call_started", "tool_call_id": 3}', "expected text, got a whole number at `$.tool_call_id`"),
    ('{"type": "tool_call_started", "tool_input": [1]}', "expected an object, got a list at `$.tool_input`"),
    ('{"type": "run_started", "at": "yesterday"}', "not a time such as `2026-11-20T10:00:00Z` at `$.at`"),
    ('{"type": "run_started", "at": 7}', "expected a time or null, got a whole number at `$.at`"),
    ('{"type": "run_started"', "not an event: not JSON: it ends too early, or has half a character"),
    ('{"type": "new", "x": "\\ud83d"}', "not an event: not JSON: it ends too early, or has half a character"),
    ('{"type": "run_started"}}', "not an event: not JSON: trailing characters at byte 24"),
    ("{}", "not an event: `type` is missing"),
    ("[]", "not an event: expected an object, got a list"),
    (b'{"type": "\xff"}', "not an event: not "),
    (None, "not an event: "),
    ("[" * 100_000, "not an event: "),
])  # fmt: skip
def test_the_error_for_an_event_that_cannot_be_decoded_says_why(text: Any, message: str) -> None:
    """The message has no names of Python types."""
    with pytest.raises(EventError) as caught:
        decode_event(text)

    assert message in str(caught.value)
