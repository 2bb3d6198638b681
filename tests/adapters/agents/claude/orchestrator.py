"""An approving process: `python orchestrator.py STORE CURSOR`.

It follows the store from its saved cursor, and prints each approval request as a line of JSON. The next line of its
input is the answer: the fields of an ApprovalAnswer. It prints the result, and asks again if the answer was for
another input.
"""

import json
import sys
from typing import Any

import anyio
from anyio import to_thread

from proctor.adapters.stores import SQLiteStore
from proctor.policies.events import ToolApprovalRequested
from proctor.supervisor import ApprovalAnswer, ApprovalError, Store, Supervisor, answer


def say(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)


async def asked_and_answered(store: Store, event: ToolApprovalRequested) -> None:
    """Print a request, and pass on answers until it is closed."""
    while True:
        say(id=event.approval_id, tool=event.tool_name, input=event.tool_input, digest=event.input_digest)
        if not (line := await to_thread.run_sync(sys.stdin.readline)):
            raise SystemExit
        try:
            given = await answer(store, event.approval_id, ApprovalAnswer(**json.loads(line)))
        except ApprovalError as error:
            say(refused=error.kind, why=str(error))
            if error.kind != "other_input":
                return
        else:
            say(state=given.state, recorded=given.recorded)
            return


async def main(path: str, kept: str) -> None:
    cursor = anyio.Path(kept)
    after = await cursor.read_text() if await cursor.exists() else "start"
    async with SQLiteStore(path) as store, Supervisor(store) as watching, watching.subscribe(after=after) as events:
        async for event in events:
            if isinstance(event, ToolApprovalRequested):
                await asked_and_answered(store, event)
            await cursor.write_text(str(events.cursor))


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.argv[2])
