"""The Amp client, driven through its stream of JSON, its calls held by its own permission rules."""

ROOMS = ("adapter", "delegate", "translation")
"""Top first: each imports only those below it."""
