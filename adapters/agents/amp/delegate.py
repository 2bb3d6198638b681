"""The program that Amp asks before a tool call, which passes the question on to the supervisor.

Run as `delegate.py FOLDER`, where FOLDER has the supervisor's `socket` and the `token` for it. The client gives the
tool's name in AGENT_TOOL_NAME and its input on standard input. The exit code is 0 if the call may run and 2 if not,
with the text for the model on standard error.

It imports the standard library only, as it starts for every call, in a folder that the agent can write to.
"""

import json
import os
import socket
import sys
from typing import Any

MAY_RUN = 0
MAY_NOT = 2
UNREACHABLE = "The supervisor of this run cannot be reached."


def main() -> int:
    """Pass on the question and the answer; on any error the call is denied."""
    try:
        # all of it, first: the client ends without a word when nobody reads what it says
        given = sys.stdin.buffer.read()
        answer = send(sys.argv[1], os.environ["AGENT_TOOL_NAME"], given)
        allowed, text = answer.get("allowed") is True, str(answer.get("tell_model") or "")
    except Exception:  # an exit code of 1 would have the client ask somebody else
        allowed, text = False, UNREACHABLE
    if not allowed:
        print(text, file=sys.stderr)
    return MAY_RUN if allowed else MAY_NOT


def send(folder: str, tool: str, given: bytes) -> dict[str, Any]:
    """The supervisor's answer for one call."""
    with open(os.path.join(folder, "token")) as file:
        token = file.read()
    question = {"token": token, "tool": tool, "input": json.loads(given or b"{}")}
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(os.path.join(folder, "socket"))
        connection.sendall(json.dumps(question).encode() + b"\n")
        with connection.makefile("rb") as replies:
            answer = json.loads(replies.readline())
    return answer if isinstance(answer, dict) else {}


if __name__ == "__main__":
    sys.exit(main())
