"""The server that is governed: a command of this machine, or a URL."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit, urlunsplit

import anyio
from mcp import Client, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from proctor.supervisor.errors import ProviderError, ProviderUnavailableError

from ..kit.process_tree import marked_environment
from .messages import Incoming, Outgoing

PROBE_S = 30.0
_MOST_PAGES = 100


class Upstream(Protocol):
    """Where a server is."""

    @property
    def label(self) -> str:
        """The server's name in messages; nothing secret."""
        ...

    def connect(self, mark: str) -> AbstractAsyncContextManager[tuple[Incoming, Outgoing]]:
        """A connection; leaving it ends the server's process, if it is one. Raises ProviderError."""
        ...


class CommandUpstream:
    """A server that is started for each connection and spoken to on its pipes.

    Args:
        command: the program and its arguments.
        cwd: where it works; this process's folder if not given.
    """

    def __init__(self, command: Sequence[str], *, cwd: str | os.PathLike[str] | None = None) -> None:
        self._command = list(command)
        self._cwd = None if cwd is None else os.fspath(cwd)

    @property
    def label(self) -> str:
        return Path(self._command[0]).name

    @asynccontextmanager
    async def connect(self, mark: str) -> AsyncIterator[tuple[Incoming, Outgoing]]:
        program, *arguments = self._command
        parameters = StdioServerParameters(
            command=program, args=arguments, env=marked_environment(mark), cwd=self._cwd
        )
        opened = stdio_client(parameters, errlog=sys.__stderr__ or sys.stderr)
        try:
            streams = await opened.__aenter__()
        except (OSError, ValueError) as error:
            why = (getattr(error, "strerror", None) or str(error)).lower()
            raise ProviderUnavailableError(f"the MCP server `{program}` cannot be started: {why}") from error
        async with _entered(opened):
            yield streams


class UrlUpstream:
    """A server reached over streamable HTTP."""

    def __init__(self, url: str) -> None:
        self._url = url

    @property
    def label(self) -> str:
        """The address as it may be recorded: without what it says of whoever asks."""
        parts = urlsplit(self._url)
        return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))

    @asynccontextmanager
    async def connect(self, mark: str) -> AsyncIterator[tuple[Incoming, Outgoing]]:
        async with streamable_http_client(self._url) as streams:
            yield streams


@asynccontextmanager
async def _entered(opened: Any) -> AsyncIterator[None]:
    """Leave a context that was entered by hand, so that what entering it raised could be told apart."""
    try:
        yield
    except BaseException as error:
        if not await opened.__aexit__(type(error), error, error.__traceback__):
            raise
    else:
        await opened.__aexit__(None, None, None)


async def offered_tools(upstream: Upstream, mark: str) -> list[dict[str, Any]]:
    """The tools of a server, asked over a connection of its own. Raises ProviderError."""
    tools: list[dict[str, Any]] = []
    with anyio.move_on_after(PROBE_S) as asking:
        transport: Any = upstream.connect(mark)
        async with Client(transport, mode="legacy") as client:
            cursor: str | None = None
            for _ in range(_MOST_PAGES):
                page = await client.list_tools(cursor=cursor)
                tools += [tool.model_dump(by_alias=True, mode="json") for tool in page.tools]
                cursor = page.next_cursor
                if not cursor:
                    break
    if asking.cancelled_caught:
        raise ProviderError(f"`{upstream.label}` did not list its tools within {PROBE_S:g} seconds")
    return tools
