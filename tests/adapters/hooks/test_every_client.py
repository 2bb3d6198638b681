"""Properties of every client's hooks, as written into its settings file."""

import json
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from proctor.adapters.hooks.clients import CLIENTS
from proctor.adapters.hooks.clients.opencode import plugin
from proctor.adapters.hooks.daemon_client import ALARM_S, LAST_S, REFUSED
from proctor.adapters.hooks.messages import HOOK_HELD_S, QUESTION_S, REFUSABLE, HookClient
from proctor.adapters.kit.client_tools import HOOKED

OWN_ALARM_S = ALARM_S + LAST_S
"""The seconds after which a hook exits by itself, unless it waits for a person."""
WAITS_AS_LONG_AS_IT_TAKES = ("opencode",)
IN_MILLISECONDS = ("gemini",)


def entries_of(client: HookClient, event: str) -> list[dict[str, Any]]:
    """The hooks of an event, in each form that the client's settings may have."""
    own = client.settings
    forms = [own.entry(event, "hook", {})]
    if own.http_entry is not None:
        forms.append(own.http_entry(event, "http://127.0.0.1:1/", "Bearer x"))
    return [hook for form in forms for hook in form.get("hooks", [form])]


def timeouts_of(client: HookClient, event: str) -> list[float]:
    """The client's timeout, in seconds, for each of them."""
    unit = 1000 if client.name in IN_MILLISECONDS else 1
    return [
        next(hook[key] for key in ("timeout", "timeoutSec") if key in hook) / unit
        for hook in entries_of(client, event)
    ]


@pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)
def test_no_client_times_out_on_a_hook_that_could_still_deny(client: HookClient) -> None:
    """After its timeout, a client lets the call run, so the hook must exit before."""
    events = [event for event, kind in client.events.items() if kind in REFUSABLE]
    if client.name in WAITS_AS_LONG_AS_IT_TAKES:
        assert not any("timeout" in key for event in events for hook in entries_of(client, event) for key in hook)
        return
    waited = {event: min(timeouts_of(client, event)) for event in events}

    assert events
    assert {event: seconds for event, seconds in waited.items() if seconds <= OWN_ALARM_S} == {}


@pytest.mark.parametrize("client", [c for c in CLIENTS.values() if c.hears], ids=lambda client: client.name)
def test_no_client_times_out_on_a_hook_that_waits_for_a_person(client: HookClient) -> None:
    """One that waits instead of the client's question, or beside it."""
    if client.name in WAITS_AS_LONG_AS_IT_TAKES:
        return
    events = [event for event, kind in client.events.items() if kind == client.hears]
    longest = HOOK_HELD_S + LAST_S if client.hears == "call" else QUESTION_S

    assert events
    assert [event for event in events if min(timeouts_of(client, event)) < longest] == []


def test_the_plugin_denies_with_the_hooks_text() -> None:
    """It replaces a hook that does not answer, and has no timeout of its own."""
    text = plugin("hook")

    assert f"const REFUSED = {json.dumps(REFUSED)}" in text
    assert "setTimeout" not in text
    assert "AbortSignal" not in text


CALL = """
const { Proctor } = await import(process.argv[1])
const client = { session: { get: async () => ({ data: {} }) } }
const hooks = await Proctor({ client, directory: "/" })
await hooks.event({ event: { type: "message.part.updated", properties: {} } }).catch(() => {})
const call = { tool: "bash", sessionID: "s", callID: "c" }
await hooks["tool.execute.before"](call, { args: {} }).catch((error) => console.log(error.message))
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="apt-get install nodejs")
def test_an_event_of_another_form_does_not_decide_on_the_calls_after_it(tmp_path: Path) -> None:
    """The hook still does, of whichever version opencode is."""
    file = tmp_path / "proctor.mjs"
    file.write_text(plugin(shlex.join(["/bin/sh", "-c", """cat >/dev/null; echo '{"deny": "no shell here"}'"""])))
    node = ["node", "--input-type=module", "--eval", CALL, str(file)]
    found = subprocess.run(node, capture_output=True, text=True, timeout=60, check=True)

    assert found.stdout == "no shell here\n"


def test_every_client_with_hooks_has_its_tools_and_its_name_on_the_command_line() -> None:
    """`--agent` offers those with tools, in this order."""
    assert list(CLIENTS) == list(HOOKED)
    assert all(client.tools is HOOKED[name] for name, client in CLIENTS.items())
