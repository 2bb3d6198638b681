"""Whatever a file holds, reading it gives sessions or one clear error."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.adapters.traces import FORMATS, TraceError, read_sessions

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
NAMES = """
    action agentId arguments at attributes call_id context content events function gen_ai.input.messages
    gen_ai.operation.name gen_ai.tool.name id info input is_error item message name output parentSpanId parts
    payload resourceSpans role scopeSpans seq sessionId session_id spanId spans startTimeUnixNano status text
    timestamp toolUseResult tool_call_id tool_calls tool_name tool_use_id traceId turn type usage uuid
"""
TYPES = """
    assistant user message tool_call tool_result tool_use function_call function_call_output session_meta
    response_item event_msg token_count item_completed UserMessage chat execute_tool invoke_agent
"""
WORDS = st.sampled_from(TYPES.split())
KEYS = st.sampled_from(NAMES.split())
VALUES = st.recursive(
    SCALARS | WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=6),
    max_leaves=25,
)
RECORDS = st.dictionaries(KEYS, VALUES, max_size=8)


@pytest.mark.parametrize("format", FORMATS)
@settings(max_examples=40)
@given(records=st.lists(RECORDS | VALUES, min_size=1, max_size=4))
def test_records_of_any_shape_are_read_or_refused_with_their_place(format: str, records: list[Any]) -> None:
    """Never another exception: what was written by others is not trusted."""
    content = b"\n".join(json.dumps(record).encode() for record in records)

    read_or_refused(content, format)


@pytest.mark.parametrize("format", [*FORMATS, None])
@settings(max_examples=40)
@given(content=st.binary(min_size=1, max_size=200))
def test_bytes_of_any_kind_are_read_or_refused_with_their_place(format: str | None, content: bytes) -> None:
    """Also those that begin like a gzip file."""
    for prefix in (b"", b"\x1f\x8b", b"\x1f\x8b\x08\x00"):
        read_or_refused(prefix + content, format)


def read_or_refused(content: bytes, format: str | None) -> None:
    """Read everything; a TraceError that names the place is fine."""
    try:
        for session in read_sessions(["-"], format=format, stdin=io.BytesIO(content)):
            assert isinstance(session.id, str)
    except TraceError as error:
        assert error.place.startswith("<stdin>")  # noqa: PT017 - both outcomes are right
