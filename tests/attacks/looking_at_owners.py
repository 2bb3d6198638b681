"""Run below `unshare`: an owner's process as another user sees it, while it lives and once it has ended.

`looking_at_owners.py USER` prints one line each: whether it may be seen, and whether it counts as gone.
"""

import os
import subprocess
import sys

from proctor.supervisor.ports.processes import as_owner, is_gone
from proctor.supervisor.ports.stored_types import Owner


def look(owner: Owner, user: int) -> None:
    """Say what this user finds."""
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
        look(owner, user)
        process.kill()
        process.wait()
    look(owner, user)
