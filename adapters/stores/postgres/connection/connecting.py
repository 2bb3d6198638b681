"""Connections to a store's database, and the name by which it is shown, without what is secret in its URL."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from proctor.supervisor.errors import UsageError

from ...tables.asking import PAGE_BYTES, PAGE_ROWS
from .dialect import POSTGRES, with_places
from .texts import keep_any_text

_DEFAULTS: dict[str, Any] = {
    "connect_timeout": 10,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
"""So that a connection of which nothing is heard any more is given up within seconds; the URL may say otherwise."""
_SETTINGS = (
    "SET search_path = {schema}, pg_temp",
    "SET TimeZone = 'UTC'",
    "SET jit = off",
    "SET idle_in_transaction_session_timeout = '5s'",  # whoever is stopped in mid-transaction lets go of its locks
    "SET lock_timeout = '5s'",  # and whoever waits for one stopped in mid-message, which no time-out sees, ends it
    "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'",
)
_LONGEST_NAME = 63


_PAGE = f"""SELECT {{columns}} FROM (SELECT *, sum(octet_length(data)) OVER (ORDER BY {{by}} {{order}})
        - octet_length(data) AS bytes_before
        FROM (SELECT {{columns}} FROM {{source}} ORDER BY {{by}} {{order}} LIMIT {PAGE_ROWS}) AS page) AS page
    WHERE bytes_before < {PAGE_BYTES} ORDER BY {{by}} {{order}}"""


class Connection(psycopg.Connection[Any]):
    """A connection on which the server's answer is waited for so long; then it is closed, as nobody knows what is on
    its way.
    """

    dialect = POSTGRES
    answer_s: float | None = None

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        """The rows that a statement gives, none for one that gives none."""
        found = self.execute(with_places(sql), values, binary=True)
        return found.fetchall() if found.description else []

    def page(self, columns: str, source: str, values: Sequence[Any], *, by: str, newest_first: bool) -> list[Any]:
        """The first rows by a column, `data` among their columns, as many as make a page."""
        order = "DESC" if newest_first else "ASC"
        return self.rows(_PAGE.format(columns=columns, source=source, by=by, order=order), values)

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        """Wait for an answer. Raises OperationalError when there is none in time."""
        most_s = self.answer_s if timeout is None else timeout
        begun = time.monotonic()
        try:
            return super().wait(gen, interval, most_s)
        except psycopg.OperationalError as error:
            if error.sqlstate is not None:
                raise
            self.close()  # a pipeline that was not answered cannot be left, and would say only that
            if most_s is None or time.monotonic() - begun < most_s:
                raise
            raise psycopg.OperationalError(f"no answer within {most_s:g} s") from error


class Address:
    """Where a store is: a database, a schema in it, who connects.

    Args:
        url: `postgresql://USER@HOST:PORT/DATABASE?...`, as libpq has it.
        schema: the schema of the store's tables.

    Raises:
        UsageError: it is no such URL, or the schema's name is none.
    """

    def __init__(self, url: str, schema: str) -> None:
        if not schema or "\0" in schema or len(schema.encode("utf-8", "replace")) > _LONGEST_NAME:
            raise UsageError(f"`schema` is a name of at most {_LONGEST_NAME} bytes")
        try:
            given = conninfo_to_dict(url)
            self._conninfo = make_conninfo(url, **{name: n for name, n in _DEFAULTS.items() if name not in given})
        except psycopg.Error:  # its words repeat the URL, with the password in it
            raise UsageError("the store's URL cannot be read; use `postgresql://USER@HOST/DATABASE`") from None
        self.schema = schema
        self.name = _shown(given)

    def connect(self, application: str = "proctor", *, answer_s: float | None = None) -> Connection:
        """A connection in autocommit, for one thread at a time; without an answer for `answer_s` seconds it is lost.

        Raises psycopg.Error.
        """
        connection = Connection.connect(
            self._conninfo, autocommit=True, prepare_threshold=None, application_name=application
        )
        connection.answer_s = answer_s
        try:
            keep_any_text(connection)
            schema = sql.Identifier(self.schema)
            with connection.pipeline():
                for setting in _SETTINGS:
                    connection.execute(sql.SQL(setting).format(schema=schema) if "{" in setting else setting)
        except BaseException:
            connection.close()
            raise
        return connection


def _shown(given: Mapping[str, Any]) -> str:
    """A URL of what is known, without passwords."""
    host, port, user = (str(given.get(name) or "") for name in ("host", "port", "user"))
    who = f"{user}@" if user else ""
    if host.startswith("/"):
        return f"postgresql://{who}/{given.get('dbname') or ''}?host={host}"
    return f"postgresql://{who}{host}{f':{port}' if port else ''}/{given.get('dbname') or ''}"


def cut(connection: psycopg.Connection[Any]) -> None:
    """Have whoever waits for the server on this connection wait no longer; from any thread."""
    with suppress(Exception), socket.socket(fileno=os.dup(connection.fileno())) as copy:
        copy.shutdown(socket.SHUT_RDWR)
