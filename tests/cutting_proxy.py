"""A proxy between a client and a PostgreSQL server that cuts the connection where a test says."""

import shutil
import socket
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import Self

SOCKET = ".s.PGSQL.5432"
_CHUNK = 65536


class CuttingProxy:
    """Accepts connections on a socket in its own folder, and forwards them to the one in the server's folder.

    Every piece of bytes, in either direction, is counted. `cut_at(n)` cuts all connections before piece n from now on
    is forwarded, or after it.
    """

    def __init__(self, server: Path) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="proctor-cut-", dir="/tmp"))
        self._server = server
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self._left: int | None = None
        self._after = False
        self._mutes = False
        self.cuts = 0
        self.connections = 0
        self.refuses = False
        self._mute = False
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.folder / SOCKET))
        self._listener.listen(50)
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def url(self, of: str) -> str:
        """The server's URL through this proxy."""
        return of.replace(str(self._server), str(self.folder))

    def lead_to(self, server: Path) -> None:
        """Cut all connections; new ones are forwarded to that server."""
        self._server = server
        self.cut()

    def cut_at(self, piece: int, *, after: bool = False) -> None:
        """Cut all connections at that piece, before it is forwarded or `after`; new ones are accepted."""
        with self._lock:
            self._left, self._after, self._mutes = piece, after, False

    def cut(self) -> None:
        """Cut all connections now."""
        with self._lock:
            self._cut()

    def mute_at(self, piece: int) -> None:
        """Forward that piece and nothing after it."""
        with self._lock:
            self._left, self._after, self._mutes = piece, True, True

    def mute(self, *, on: bool = True) -> None:
        """Forward nothing any more without closing: neither side is notified."""
        self._mute = on

    def close(self) -> None:
        """Close everything."""
        self.refuses = True
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()  # what it has accepted by now is cut too
        self.cut()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            try:
                if self.refuses:
                    raise ConnectionRefusedError
                server.connect(str(self._server / SOCKET))
            except OSError:
                client.close()
                server.close()
                continue
            with self._lock:
                self._open += [client, server]
                self.connections += 1
            for one, other in ((client, server), (server, client)):
                threading.Thread(target=self._forward, args=(one, other), daemon=True).start()

    def _forward(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while piece := one.recv(_CHUNK):
                if self._mute:
                    continue
                now, after = self._counted()
                if now and not after:
                    self.cut()
                    return
                other.sendall(piece)
                if now and self._mutes:
                    self.mute()
                elif now:
                    self.cut()
                    return
        with suppress(OSError):
            other.shutdown(socket.SHUT_RDWR)

    def _counted(self) -> tuple[bool, bool]:
        with self._lock:
            if self._left is None:
                return False, False
            self._left -= 1
            if self._left > 0:
                return False, False
            self._left = None
            return True, self._after

    def _cut(self) -> None:
        self.cuts += bool(self._open)
        for each in self._open:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        self._open = []
