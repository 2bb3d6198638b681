"""What `demo` does: shows its policies, runs its session live, says what to type next."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import yaml

from proctor.policies import Policy, load_policies

from ..exits import FAILED, FINE
from ..options import is_named, json_option, opened, program_as_typed, run_async, store_as_typed, store_option_with
from ..output import console

if TYPE_CHECKING:
    from proctor.supervisor import RunResult

    from ...agents.scripted.adapter import ScriptedAdapter

HERE = Path(__file__).parents[1] / "data" / "demo"
POLICIES = ("org.yaml", "team.yaml")
_WIDEST = 42
"""Up to this length of the command, its note fits beside it on a terminal's line."""
PAUSE_S = 0.25
"""Between two steps on a terminal, for reading along."""


@click.command()
@store_option_with("a new one in a temporary folder")
@json_option
def demo(store: str | None, as_json: bool) -> int:
    """Show a supervised run live: no key, no network, nothing to set up.

    A scripted agent runs under two policies: one call is allowed, one is denied, one waits for an approval that
    expires, and a token limit cancels the run. The next commands to try are printed.
    """
    if not is_named(store):
        store = str(Path(tempfile.mkdtemp(prefix="proctor-demo-")) / "runs.db")
    policies = [policy for name in POLICIES for policy in load_policies(HERE / name)]
    if not as_json:
        _show_policies()
    pause = PAUSE_S if sys.stdout.isatty() and not as_json else 0.0
    result = run_async(lambda: _supervised(_agent(pause), policies, store, as_json=as_json))
    if not as_json:
        _show_next(result, store)
    return FINE if result.status == "cancelled" else FAILED


def _agent(pause_s: float) -> ScriptedAdapter:
    """The scripted agent; its two functions stand for what a project would have."""
    from ...agents.scripted.adapter import ScriptedAdapter

    script: dict[str, Any] = yaml.safe_load((HERE / "session.yaml").read_text(encoding="utf-8"))
    if pause_s:
        script["steps"] = _paced(script["steps"], pause_s)
    return ScriptedAdapter(script, tools={"run_tests": _run_tests, "deploy": _deploy})


def _run_tests(suite: str) -> str:
    return f"{suite}: 41 passed"


def _deploy(target: str) -> str:
    return f"deployed to {target}"


def _paced(steps: list[dict[str, Any]], pause_s: float) -> list[dict[str, Any]]:
    paced: list[dict[str, Any]] = []
    for step in steps:
        branches = {key: _paced(step[key], pause_s) for key in step if key.startswith("if_")}
        paced += [{"silence": pause_s}, {**step, **branches}]
    return paced


async def _supervised(
    adapter: ScriptedAdapter, policies: list[Policy], store: str | None, *, as_json: bool
) -> RunResult:
    """The run; it is ended by a policy, as is meant. Raises what else it may raise."""
    from proctor.supervisor import PolicyViolationError, run_once

    from ..live import EventLines, Live, summary

    live = Live(EventLines(store=store), as_json=as_json)
    async with opened(store) as opened_store:
        prompt = "Tidy up the workspace and deploy it."
        try:
            result = await run_once(adapter, prompt, policies=policies, store=opened_store, publishers=[live])
        except PolicyViolationError as error:
            if error.partial is None:
                raise
            result = error.partial
    summary(result, live, as_json=as_json)
    return result


def _show_policies() -> None:
    out = console()
    for name in POLICIES:
        out.print(name, style="bold")
        for line in (HERE / name).read_text(encoding="utf-8").splitlines():
            out.print(f"  {line}", style="dim" if line.startswith("#") else "")
        out.print()


def _show_next(result: RunResult, store: str | None) -> None:
    refused = next((v.tool_call_id for v in result.policy.violations if v.action == "deny"), None)
    seqs = (event.seq for event in result.events if event.type == "tool_call_requested" and _id(event) == refused)
    where = store_as_typed(store)
    name, me = result.run_id[:12], program_as_typed()
    out = console()
    out.print("\nA policy cancelled the run, as intended. The run is stored. Next:", style="bold")
    commands = {
        f"{me} show {name}{where}": "every event, by number",
        f"{me} explain {name} {next(seqs, '')}{where}": "why the deletion was denied",
        f"{me} runs{where}": "what else is stored",
        f"{me} run --help": "supervise an agent of yours",
    }
    wide = max(map(len, commands))
    for command, what in commands.items():
        if wide > _WIDEST:
            out.print(f"  # {what}\n", style="dim", end="")
            out.print(f"  {command}", soft_wrap=True)  # whole, to be copied
        else:
            out.print(f"  {command:<{wide}}  ", end="")
            out.print(f"# {what}", style="dim")


def _id(event: Any) -> str:
    return str(event.tool_call_id)
