"""OpenTelemetry spans, in each of the JSON spellings exporters write them in."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec

_RESOURCES = ("resourceSpans", "resource_spans")
_SCOPES = ("scopeSpans", "scope_spans", "instrumentationLibrarySpans")
_STARTS = ("startTimeUnixNano", "start_time_unix_nano", "start_time", "startTime")
_ENDS = ("endTimeUnixNano", "end_time_unix_nano", "end_time", "endTime")
_TOO_LATE = int(datetime.max.replace(tzinfo=UTC).timestamp()) * 10**9
_VALUES = ("stringValue", "boolValue", "intValue", "doubleValue", "bytesValue")


class SpanError(ValueError):
    """A JSON value is no span; the message says why."""


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """One span; `start` and `end` are nanoseconds since the epoch, `error` is None unless it failed."""

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    start: int
    end: int
    attributes: dict[str, Any]
    events: tuple[tuple[str, dict[str, Any]], ...] = ()
    error: str | None = None

    def first(self, *names: str) -> Any:
        """The value of the first of these attributes that is there, else None."""
        return next((self.attributes[name] for name in names if name in self.attributes), None)


def at(nanoseconds: int) -> datetime | None:
    """A moment in UTC; 0 is none."""
    return datetime.fromtimestamp(nanoseconds / 1e9, UTC) if nanoseconds else None


def spans_in(document: Any) -> Iterator[Span]:
    """The spans of one JSON value: an export of many, a list, or one span. Raises SpanError, or what
    Python raises for a value that is laid out otherwise.
    """
    if isinstance(document, list):
        for part in document:
            yield from spans_in(part)
    elif not isinstance(document, dict):
        raise SpanError("neither an object nor a list")
    elif any(name in document for name in (*_RESOURCES, *_SCOPES, "spans")):
        for part in _either(document, *_RESOURCES, *_SCOPES, "spans") or ():
            yield from spans_in(part)
    else:
        yield _span(document)


def is_span(document: Any) -> bool:
    """Whether a JSON value looks like a span or an export of spans."""
    if isinstance(document, list):
        return bool(document) and is_span(document[0])
    if not isinstance(document, dict):
        return False
    return any(name in document for name in (*_RESOURCES, *_SCOPES)) or bool(_identity(document)[1])


def _span(document: dict[str, Any]) -> Span:
    trace_id, span_id = _identity(document)
    if not span_id:
        raise SpanError("it has no id")
    start = _nanoseconds(_either(document, *_STARTS))
    end = _nanoseconds(_either(document, *_ENDS))
    attributes = _attributes(document.get("attributes"))
    return Span(
        trace_id=trace_id,
        span_id=span_id,
        parent_id=str(_either(document, "parentSpanId", "parent_span_id", "parent_id") or ""),
        name=str(document.get("name", "")),
        start=start,
        end=max(end, start),
        attributes=attributes,
        events=tuple(
            (str(event.get("name", "")), _attributes(event.get("attributes")))
            for event in document.get("events") or ()
            if isinstance(event, dict)
        ),
        error=_error(document.get("status"), attributes),
    )


def _identity(document: dict[str, Any]) -> tuple[str, str]:
    context = document.get("context")
    own = context if isinstance(context, dict) else document
    return str(_either(own, "traceId", "trace_id") or ""), str(_either(own, "spanId", "span_id") or "")


def _either(document: dict[str, Any], *names: str) -> Any:
    return next((document[name] for name in names if document.get(name) is not None), None)


def _attributes(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    if not isinstance(value, list):
        return {}
    return {str(pair["key"]): _value(pair.get("value")) for pair in value if isinstance(pair, dict) and "key" in pair}


def _value(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    for name in _VALUES:
        if name in value:
            return int(value[name]) if name == "intValue" else value[name]
    if "arrayValue" in value:
        return [_value(item) for item in value["arrayValue"].get("values", ())]
    if "kvlistValue" in value:
        return _attributes(value["kvlistValue"].get("values", []))
    return None


def _nanoseconds(value: Any) -> int:
    if value is None:
        return 0
    if isinstance(value, str) and not value.isdigit():
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            raise SpanError(f"`{value}` is not a time") from None
        value = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1e9
    if not 0 <= (nanoseconds := int(value)) < _TOO_LATE:
        raise SpanError(f"`{value}` is not a time in nanoseconds")
    return nanoseconds


def _error(status: Any, attributes: dict[str, Any]) -> str | None:
    """What went wrong, in the words of the status or, without one, of `error.type`."""
    code, message = status, ""
    if isinstance(status, dict):
        code = _either(status, "code", "status_code", "statusCode")
        message = str(_either(status, "message", "description") or "")
    if str(code).rsplit(".", 1)[-1].upper() in ("2", "ERROR", "STATUS_CODE_ERROR"):
        return message or str(attributes.get("error.type", "error"))
    return str(attributes["error.type"]) if attributes.get("error.type") else None
