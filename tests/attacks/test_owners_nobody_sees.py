"""A run whose owner's process is invisible stays active: only proof that the owner has ended shortens its lease;
Linux, as root.
"""

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from proctor.supervisor import Owner
from proctor.supervisor.ports.processes import as_owner, is_gone
from proctor.supervisor.testing.fakes import PATIENCE_S

PROGRAM = Path(__file__).with_name("looking_at_owners.py")
NOBODY, ROOT = "65534", "0"
HIDDEN = "mount -t proc -o hidepid=2 proc /proc"
SEEN = "mount -t proc proc /proc"
OF_OTHERS = "true"
"""`/proc` still belongs to the outer namespace."""

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0 or subprocess.run(["unshare", "-mpf", "true"]).returncode != 0,
    reason="another user and another /proc need Linux, root and `unshare`",
)


def found(proc: str, user: str) -> list[str]:
    """What a user sees of an owner's process, first running and then ended."""
    line = f"{proc} && exec {shlex.join([sys.executable, str(PROGRAM), user])}"
    ended = subprocess.run(
        ["unshare", "-mpf", "--kill-child", "sh", "-c", line], capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert ended.stderr == ""
    return ended.stdout.splitlines()


def test_an_owner_that_proc_hides_is_not_gone_until_it_has_ended() -> None:
    """Another user's process. The kernel reports that it exists, and later that it does not."""
    assert found(HIDDEN, NOBODY) == ["False False", "False True"]


def test_a_visible_owner_is_gone_once_it_has_ended() -> None:
    """Of another user, and of the same one."""
    assert found(SEEN, NOBODY) == ["True False", "False True"]
    assert found(HIDDEN, ROOT) == ["True False", "False True"]


def test_with_proc_of_another_pid_namespace_no_owner_is_gone() -> None:
    """The owner's start time is unknown, so a later process with its pid can't be distinguished."""
    assert [line.split()[1] for line in found(OF_OTHERS, ROOT)] == ["False", "False"]


@pytest.mark.parametrize("namespace", ["--pid", "--time"])
def test_an_owner_in_another_namespace_is_not_gone(namespace: str) -> None:
    """Its pid or its start time has another meaning there."""
    owner = as_owner(os.getpid(), "cli_")
    program = "from sys import argv; from proctor.supervisor.ports.processes import Owner, is_gone;"
    program += "print(is_gone(Owner(**eval(argv[1]))))"
    fields = {name: getattr(owner, name) for name in ("owner_id", "host", "machine", "pid", "started")}
    command = ["unshare", namespace, "-f", "--boottime=1000"] if namespace == "--time" else ["unshare", "-pf"]
    mounted = [] if namespace == "--time" else ["--mount-proc"]
    ended = subprocess.run(
        [*command, *mounted, sys.executable, "-c", program, repr(fields)], capture_output=True, text=True
    )

    assert (ended.stdout.strip(), ended.stderr) == ("False", "")


def test_a_process_with_a_reused_pid_is_not_the_owner() -> None:
    """Its start time differs. A pid that no process can have is gone."""
    own = as_owner(os.getpid(), "cli_")
    fields: dict[str, Any] = {"owner_id": "x", "host": own.host, "machine": own.machine}

    assert is_gone(Owner(**fields, pid=own.pid, started="1"))
    assert is_gone(Owner(**fields, pid=2**40, started="1"))
    assert not is_gone(Owner(**fields, pid=-1, started="1"))
