"""An event as a CloudEvent, and the signature that a receiver checks (Standard Webhooks).

The signature is an HMAC-SHA256, with the shared secret, over `ID.TIMESTAMP.BODY`. A receiver refuses a timestamp
that is more than five minutes off, so that a captured message cannot be replayed later.
"""

from __future__ import annotations

import base64
import hmac

import msgspec

from proctor.policies.stream.events import Event

MEDIA = "application/cloudevents+json"


_encode = msgspec.json.Encoder(enc_hook=str).encode


def message_id(event: Event) -> str:
    """The id by which a receiver recognises an event it already has."""
    return f"{event.session_id}.{event.seq}"


def enveloped(event: Event, store_id: str) -> bytes:
    """An event as a CloudEvent, version 1.0, in its structured form; `subject` is the run."""
    envelope = {
        "specversion": "1.0",
        "id": message_id(event),
        "source": f"/proctor/{store_id}",
        "type": f"proctor.{event.type}",
        "subject": event.run_id,
        "time": event.at,
        "sessionid": event.session_id,
        "data": event,
        "datacontenttype": "application/json",
    }
    return _encode({name: value for name, value in envelope.items() if value not in ("", None)})


def signed(key: bytes, id: str, body: bytes, at: int) -> dict[str, str]:
    """The headers of a message sent at a time, in seconds since the epoch."""
    digest = hmac.digest(key, f"{id}.{at}.".encode() + body, "sha256")
    return {
        "content-type": MEDIA,
        "webhook-id": id,
        "webhook-timestamp": str(at),
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
    }
