"""The process that judges, as `daemon_client` starts it: `python -I -m proctor.adapters.hooks FOLDER OPTIONS...`."""

from __future__ import annotations

import sys
from pathlib import Path

from proctor.supervisor.errors import UsageError

from .daemon import serve
from .hook_judge import HookJudge, HookLine, read_context, read_hold, read_unmatched


def main(arguments: list[str]) -> None:
    """Answer hooks until nobody asks any more."""
    folder, *rest = arguments
    given = options(rest)
    line = HookLine(
        name=folder.rpartition("-")[2],
        policies=tuple(given["--policy"]),
        store=Path(given["--store"][-1]),
        store_id=given["--store-id"][-1],
        context=read_context(given["--context"][-1]),
        unmatched=read_unmatched(given["--unmatched"][-1]),
        hold_s=read_hold(given["--hold"][-1]),
    )
    serve(Path(folder), HookJudge(line))


def options(arguments: list[str]) -> dict[str, list[str]]:
    """Parse the command line that `settings.command` writes. Raises UsageError."""
    given: dict[str, list[str]] = {
        **{"--policy": [], "--store": [], "--store-id": []},
        **{
            "--context": ["{}"],
            "--home": [""],
            "--unmatched": [""],
            "--hold": ["0"],
        },  # `daemon_client` has seen to the home
    }
    if len(arguments) % 2 or not given.keys() >= set(arguments[::2]):
        raise UsageError("the hook's command line is not as `proctor hook install` writes it; install it again")
    for name, value in zip(arguments[::2], arguments[1::2], strict=True):
        given[name].append(value)
    for name, values in given.items():
        if not values:
            raise UsageError(f"the hook's command line has no `{name}`; install it again with `proctor hook install`")
    return given


if __name__ == "__main__":
    main(sys.argv[1:])
