"""One hook as the client starts it: `python -m proctor.adapters.hook --policy FILE --store FILE < input`.

Whatever goes wrong ends with exit code 2, by which the client refuses: this process is ended by an alarm
before the client's own timeout, which would let the call run.
"""

from __future__ import annotations

import json
import signal
import sys

ALARM_S = 25
"""Seconds a hook may take in all; far below `settings.TIMEOUT_S`."""
if hasattr(signal, "alarm"):
    signal.alarm(ALARM_S)

REFUSED = "This could not be checked against the policy, so it is refused."


def main(arguments: list[str]) -> int:
    """Answer the hook on standard input; the exit code."""
    data = b""
    try:
        import argparse
        from pathlib import Path

        options = argparse.ArgumentParser(prog="proctor.adapters.hook", allow_abbrev=False)
        options.add_argument("--policy", action="append", required=True)
        options.add_argument("--store", required=True)
        options.add_argument("--context", default="{}")
        given = options.parse_args(arguments)
        data = sys.stdin.buffer.read()

        import msgspec

        from proctor.policies import RunContext

        from .answers import said
        from .hook import answered

        context = msgspec.json.decode(given.context, type=RunContext)
        answer, hook = answered(data, given.policy, Path(given.store), context)
        told = said(answer, hook)
    except Exception as error:
        return refuse(data, error)
    if told:
        print(json.dumps(told), flush=True)
    return 0


def refuse(data: bytes, error: Exception) -> int:
    """Refuse what cannot be judged: the model reads public words, the person the reason."""
    try:
        hook = json.loads(data)["hook_event_name"]
    except Exception:  # whatever the client sent, it is no hook: the exit code has to do
        hook = None
    if hook == "PreToolUse":
        decision = {"permissionDecision": "deny", "permissionDecisionReason": REFUSED}
        told = {"systemMessage": f"proctor: {error}", "hookSpecificOutput": {"hookEventName": hook, **decision}}
    elif hook == "UserPromptSubmit":
        told = {"decision": "block", "reason": f"proctor: {error}"}
    elif hook is not None:
        told = {"systemMessage": f"proctor: {error}"}
    else:
        print(REFUSED, file=sys.stderr)
        return 2
    print(json.dumps(told), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
