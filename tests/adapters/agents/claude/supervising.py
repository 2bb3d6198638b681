"""A supervisor in its own process, with one run of the real client: `python supervising.py STORE SESSION RUN POLICY`,
in its working directory.

It prints the outcome of the run as a line of JSON, or why the run did not start.
"""

import json
import sys

import anyio

from proctor.adapters.agents.claude.adapter import ClaudeAdapter
from proctor.adapters.stores import SQLiteStore
from proctor.policies import parse_policies
from proctor.supervisor import Supervisor, UsageError


async def main(path: str, session_id: str, run_id: str, policy: str) -> None:
    adapter = ClaudeAdapter(
        {"setting_sources": [], "model": "claude-sonnet-4-5", "cwd": "."}, tools=("Bash", "Write")
    )
    async with SQLiteStore(path) as store, Supervisor(store) as supervisor:
        try:
            policies = parse_policies(policy)
            handle = await supervisor.start(adapter, "go", policies=policies, session_id=session_id, run_id=run_id)
        except UsageError as error:
            print(json.dumps({"refused": str(error)}), flush=True)
            return
        result = await handle.wait()
    print(json.dumps({"status": result.status, "output": result.output}), flush=True)


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4])
