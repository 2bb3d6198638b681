"""Messages for the runs of this process from any process: an approval's answer, or a cancel."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import anyio

from ..errors import StoreError
from ..ports import ApprovalAnswer, Mail, Store
from ..run.isolation import contained

LONGEST_WAIT_S = 60.0
PAUSE_S = 0.02
"""The least time between two looks at a busy store."""
RETRY_S = 1.0


class CommandReader:
    """Reads a store's mail and delivers each message once, in order."""

    def __init__(self, store: Store, deliver: Callable[[Mail], None], log: Any) -> None:
        self._store = store
        self._deliver = deliver
        self._log = log
        self._after = 0
        self._token = 0
        self._closed = False

    async def run(self) -> None:
        """Deliver until cancelled or the store is closed; one that cannot be read is tried again."""
        while not self._closed:
            try:
                await contained(self._wait)
            except Exception as error:  # no run of this process is to end of it
                self._closed = isinstance(error, StoreError) and error.kind == "closed"
                if not self._closed:
                    self._log.warning("mailbox.unreadable", error=str(error))
                    await anyio.sleep(RETRY_S)
            await anyio.sleep(PAUSE_S)

    async def _wait(self) -> None:
        self._token = await self._store.wait(self._token, LONGEST_WAIT_S)
        await self.look()

    async def look(self) -> None:
        """Deliver what has come since the last look."""
        for mail in await self._store.mail(after=self._after):
            self._after = mail.mail_id
            try:
                self._deliver(mail)
            except Exception as error:  # whoever wrote it, no run of this process is to end of it
                self._log.error("mail.undeliverable", mail_id=mail.mail_id, error=str(error))


def answer_of(mail: Mail) -> ApprovalAnswer:
    """The approval's answer a message holds."""
    body = mail.body
    return ApprovalAnswer(
        granted=mail.kind == "approve",
        by=str(body.get("by") or "unknown"),
        reason=body.get("reason"),
        tell_model=body.get("tell_model"),
        input_digest=body.get("input_digest"),
    )


def is_for(mail: Mail, *, run_id: str, session_id: str, tenant: str | None, started_at: datetime) -> bool:
    """Whether a message concerns a run. One to many runs concerns those that had started when it was sent."""
    if mail.run_id:
        return mail.run_id == run_id
    if mail.at is not None and mail.at < started_at:
        return False
    wanted_session, wanted_tenant = mail.body.get("session_id"), mail.body.get("tenant")
    if wanted_session is not None and wanted_session != session_id:
        return False
    return wanted_tenant is None or wanted_tenant == tenant
