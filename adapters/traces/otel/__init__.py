"""OpenTelemetry GenAI traces."""

ROOMS = (
    "genai",  # OpenTelemetry GenAI traces
    "messages",  # the messages a GenAI span carries
    "spans",  # OpenTelemetry spans, in each of their JSON spellings
)
"""Top first: each imports only those below it."""
