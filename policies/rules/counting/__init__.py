"""Rules that count calls."""

ROOMS = (
    "circuit_breaker",  # `circuit_breaker`
    "loop",  # `loop` and `max_parallel`
    "count",  # `count` and its other spelling `max_calls`
)
