"""The step of `schema.MIGRATIONS` that gives events one order and runs the columns that lists show.

A released step never changes; a later one alters what it made.
"""

from __future__ import annotations

_COUNTS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens")
_TOTALS = (*_COUNTS, "cost_usd")
_OPEN = "run_id = new.run_id AND ended_seq IS NULL"
_ENDS = "('run_completed', 'run_failed', 'run_cancelled')"
_MS = "CAST(round((julianday(created_at) - 2440587.5) * 86400000) AS INTEGER)"


def _from_context(blob: str, path: str) -> str:
    """Assignments of what the run's context says, where it was not known before."""
    json, tenant, labels = f"CAST({blob} AS TEXT)", f"'$.{path}.tenant'", f"'$.{path}.labels'"
    return (
        f"tenant = coalesce(tenant, CASE WHEN json_type({json}, {tenant}) = 'text'"
        f" THEN json_extract({json}, {tenant}) END),"
        f" labels = coalesce(labels, CASE WHEN json_type({json}, {labels}) = 'object'"
        f" THEN nullif(json_extract({json}, {labels}), '{{}}') END)"
    )


def _figure(name: str, path: str) -> str:
    """A figure of the event as the number it is, whatever somebody wrote there; NULL without it."""
    return f"CAST(json_extract(CAST(new.data AS TEXT), '$.{path}') AS {'REAL' if name == 'cost_usd' else 'INTEGER'})"


def _reported(name: str) -> str:
    """One total after a report of usage: a delta is added, a cumulative figure stands for all before it."""
    figure = f"coalesce({_figure(name, name)}, 0)"
    cumulative = "json_extract(CAST(new.data AS TEXT), '$.scope') = 'cumulative'"
    return f"{name} = CASE WHEN {cumulative} THEN max({name}, {figure}) ELSE {name} + {figure} END"


def _settled(name: str) -> str:
    """One total as the run's end states it; without that, as it was reported."""
    return f"{name} = coalesce({_figure(name, f'usage.{name}')}, {name})"


_COLUMNS: tuple[str, ...] = (
    *(f"{name} TEXT" for name in ("tenant", "labels")),
    *(f"{name} INTEGER" for name in ("created_ms", "started_ms", "ended_ms", "started_seq", "ended_seq")),
    *(f"{name} INTEGER NOT NULL DEFAULT 0" for name in ("calls", "violations", *_COUNTS)),
    "cost_usd REAL NOT NULL DEFAULT 0",
)
_COUNTING: dict[str, str] = {
    "run_starts": f"""AFTER INSERT ON events WHEN new.type = 'run_started' BEGIN
        UPDATE runs SET started_ms = new.at, started_seq = new.seq, {_from_context("new.data", "metadata.context")}
        WHERE run_id = new.run_id AND started_seq IS NULL; END""",
    "run_ends": f"""AFTER INSERT ON events WHEN new.type IN {_ENDS} BEGIN
        UPDATE runs SET ended_ms = new.at, ended_seq = new.seq, {", ".join(map(_settled, _TOTALS))}
        WHERE {_OPEN}; END""",
    "run_uses": f"""AFTER INSERT ON events WHEN new.type = 'token_usage_updated' BEGIN
        UPDATE runs SET {", ".join(map(_reported, _TOTALS))} WHERE {_OPEN}; END""",
    "run_acts": """AFTER INSERT ON events WHEN new.type IN ('tool_call_started', 'policy_violation') BEGIN
        UPDATE runs SET calls = calls + (new.type = 'tool_call_started'),
            violations = violations + (new.type = 'policy_violation')
        WHERE run_id = new.run_id; END""",
}
"""Triggers that count the events of before on their way into their new table."""

ORDERED_EVENTS_AND_RUN_LINES: tuple[str, ...] = (
    *(f"ALTER TABLE runs ADD COLUMN {column}" for column in _COLUMNS),
    "CREATE INDEX runs_by_status ON runs(status)",
    "CREATE INDEX runs_by_tenant ON runs(tenant) WHERE tenant IS NOT NULL",
    f"UPDATE runs SET {_from_context('spec', 'context')}, created_ms = {_MS}",
    "ALTER TABLE events RENAME TO events_without_order",
    "DROP INDEX events_by_id",
    """CREATE TABLE events (
        position INTEGER PRIMARY KEY AUTOINCREMENT,
        session_key INTEGER NOT NULL REFERENCES sessions(key),
        seq INTEGER NOT NULL,
        run_id TEXT NOT NULL,
        event_id TEXT,
        type TEXT NOT NULL,
        at INTEGER,
        data BLOB NOT NULL,
        UNIQUE (session_key, seq))""",
    "CREATE UNIQUE INDEX events_by_id ON events(session_key, event_id) WHERE event_id IS NOT NULL",
    *(f"CREATE TRIGGER {name} {what}" for name, what in _COUNTING.items()),
    """INSERT INTO events (session_key, seq, run_id, event_id, type, at, data)
        SELECT session_key, seq, run_id, event_id, type, at, data FROM events_without_order ORDER BY rowid""",
    *(f"DROP TRIGGER {name}" for name in _COUNTING),
    "DROP TABLE events_without_order",
    "CREATE TABLE store (store_id TEXT NOT NULL)",
    "INSERT INTO store VALUES (lower(hex(randomblob(8))))",
)
"""`position` counts over the whole store in the order of commits, and is never given twice, whatever is pruned."""
