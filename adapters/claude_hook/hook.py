"""One hook, from the client's input to its answer."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from proctor.policies import RunContext, compile_policy, load_policies, merge_policies
from proctor.supervisor.errors import UsageError

from . import record
from .answers import Answer
from .asked import read_asked
from .deciding import Deciding
from .keeping import PROVIDER
from .session import Session


def read_context(text: str) -> RunContext:
    """What rules ask for in `when`, as the command line has it. Raises UsageError."""
    try:
        return msgspec.json.decode(text, type=RunContext)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise UsageError(f"the hook's `--context` cannot be read: {error}; install it anew") from None


def answered(data: bytes, files: Sequence[str], store: Path, context: RunContext) -> tuple[Answer, str]:
    """Judge one hook and record it; gives the answer and the hook's name.

    Raises EventError, PolicyError, StoreError: then nothing is recorded, and whoever asked must be refused.
    """
    asked = read_asked(data)
    policy = merge_policies([policy for file in files for policy in load_policies(file)])
    known = msgspec.structs.replace(context, provider=PROVIDER, session_id=asked.session_id)
    compiled = compile_policy(policy)
    with record.opened(store, asked.session_id) as kept:
        session = Session(compiled, known, kept.past())
        deciding = Deciding(asked, session, kept, datetime.now(UTC), policy)
        answer = deciding.answer()
    return answer, asked.hook_event_name
