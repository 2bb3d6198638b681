"""Names that end the process of whoever looks them up, and a loop that ends it once it runs."""

from __future__ import annotations

import ctypes
import os
import signal
from typing import Any


async def late(gate: object, prompt: str) -> None:
    """When the run has begun."""
    os._exit(3)


def __getattr__(name: str) -> Any:
    if name == "segfault":
        ctypes.string_at(0)
    if name == "out_of_memory":
        os.kill(os.getpid(), signal.SIGKILL)  # as the kernel does
    raise AttributeError(name)
