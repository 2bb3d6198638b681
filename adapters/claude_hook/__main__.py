"""One hook as the client starts it: `python -m proctor.adapters.claude_hook --policy FILE --store FILE < input`.

Whatever goes wrong ends with exit code 2, by which the client refuses: this process is ended by an alarm
before the client's own timeout, which would let the call run.
"""

from __future__ import annotations

import gc
import json
import signal
import sys

ALARM_S = 25
"""Seconds a hook may take in all; far below `settings.TIMEOUT_S`."""
if hasattr(signal, "alarm"):
    signal.alarm(ALARM_S)
gc.disable()  # this process is over before there is garbage to look for

REFUSED = "This could not be checked against the policy, so it is refused."


def main(arguments: list[str]) -> int:
    """Answer the hook on standard input; the exit code."""
    data = b""
    try:
        data = sys.stdin.buffer.read()
        given = options(arguments)
        from pathlib import Path

        from .answers import said
        from .hook import answered, read_context

        context = read_context(given["--context"][-1])
        answer, hook = answered(data, given["--policy"], Path(given["--store"][-1]), context)
        told = said(answer, hook)
    except Exception as error:
        return refuse(data, error)
    if told:
        print(json.dumps(told), flush=True)
    return 0


def options(arguments: list[str]) -> dict[str, list[str]]:
    """What the command line says, as `settings.command` writes it; importing a parser would take longer."""
    given: dict[str, list[str]] = {"--policy": [], "--store": [], "--context": ["{}"]}
    if len(arguments) % 2 or not given.keys() >= set(arguments[::2]):
        raise ValueError("the hook's command line is not as `proctor hook install` writes it; install it anew")
    for name, value in zip(arguments[::2], arguments[1::2], strict=True):
        given[name].append(value)
    for name, values in given.items():
        if not values:
            raise ValueError(f"the hook's command line has no `{name}`; install it anew with `proctor hook install`")
    return given


def refuse(data: bytes, error: Exception) -> int:
    """Refuse what cannot be judged: the model reads public words, the person the reason."""
    try:
        hook = json.loads(data)["hook_event_name"]
    except Exception:
        hook = None
    if hook == "PreToolUse":
        decision = {"permissionDecision": "deny", "permissionDecisionReason": REFUSED}
        told = {"systemMessage": f"proctor: {error}", "hookSpecificOutput": {"hookEventName": hook, **decision}}
    elif hook == "UserPromptSubmit":
        told = {"decision": "block", "reason": f"proctor: {error}"}
    elif isinstance(hook, str):
        told = {"systemMessage": f"proctor: {error}"}
    else:  # whatever the client sent, it is no hook: the exit code has to do
        print(REFUSED, file=sys.stderr)
        return 2
    print(json.dumps(told), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
