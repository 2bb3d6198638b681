"""Runs below `unshare`: what another user sees of an owner's process, while it runs and once it has ended.

`looking_at_owners.py USER` prints one line each: whether the process is visible, and whether it counts as gone.
"""

import os
import subprocess
import sys

from proctor.supervisor.ports.processes import as_owner, is_gone
from proctor.supervisor.ports.stored_types import Owner


def report(owner: Owner, user: int) -> None:
    """Print what this user sees."""
    if child := os.fork():
        os.waitpid(child, 0)
        return
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    print(os.path.exists(f"/proc/{owner.pid}/stat"), is_gone(owner), flush=True)
    os._exit(0)


if __name__ == "__main__":
    user = int(sys.argv[1])
    with subprocess.Popen(["sleep", "72001"]) as process:
        owner = as_owner(process.pid, "own_")
        report(owner, user)
        process.kill()
        process.wait()
    report(owner, user)
