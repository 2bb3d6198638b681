"""Approvals asked for at the prompt of a terminal."""

from __future__ import annotations

import sys

import anyio

from proctor.adapters.kit.values.login_name import login_name
from proctor.adapters.kit.values.printable import encoded, printable
from proctor.supervisor.ports.adapters import ApprovalAnswer, ApprovalRequest

from .asking import who_asks


class PromptApprover:
    """Shows a held call with its whole input and waits for y or n; one question at a time.

    It waits without blocking: an answer from elsewhere, or the end of the wait, takes the question away.
    """

    def __init__(self) -> None:
        self._turn = anyio.Lock()

    async def __call__(self, request: ApprovalRequest) -> ApprovalAnswer | None:
        async with self._turn:
            _show(request)
            try:
                return await _answered(request)
            except anyio.get_cancelled_exc_class():
                print()  # what comes next begins a line of its own
                raise


async def _answered(request: ApprovalRequest) -> ApprovalAnswer | None:
    while True:
        print("  run it? [y/n] ", end="", flush=True)
        await anyio.wait_readable(sys.stdin)
        line = sys.stdin.readline()
        if not line:  # the terminal is gone: somebody else may answer
            return None
        answer = line.strip().lower()
        if answer in ("y", "yes", "n", "no"):
            return ApprovalAnswer(granted=answer[0] == "y", by=login_name(), input_digest=request.input_digest)


def _show(request: ApprovalRequest) -> None:
    print(f"  {printable(request.call.name)} wants to run, and {printable(request.policy_name)} asks for a person")
    for key, value in request.call.input.items():
        print(f"    {printable(key)}: {encoded(value)}")
    for rule, why in who_asks(request):
        print(f"  asked by {rule}: {why}")
