"""opencode: a plugin that starts a hook for each event, and the fields of what it says."""

import json
import shlex
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from proctor.policies.events import TokenUsageUpdated

from ...kit.client_tools import HOOKED, certain_changes_of
from ...kit.usage_log import LoggedTokens
from ..messages import ClientSettings, HookAnswer, HookClient, HookInput, Kind, decoded, hook_input

EVENTS: Final[Mapping[str, Kind]] = {
    "chat.message": "prompt",
    "tool.execute.before": "call",
    "tool.execute.after": "completed",
    "session.idle": "stop",
    "session.deleted": "session_end",
}

_PLUGIN: Final = """// Written by `proctor hook install`; `proctor hook uninstall` removes it.
import { spawn } from "node:child_process"

const WORDS = %s

function started(event) {
  return new Promise((resolve, reject) => {
    // A folder's `.env` would change how it starts.
    const env = { HOME: process.env.HOME }
    const child = spawn(WORDS[0], WORDS.slice(1), { stdio: ["pipe", "pipe", "ignore"], env })
    let text = ""
    child.on("error", reject)
    child.stdin.on("error", reject)
    child.stdout.on("data", (part) => { text += part })
    child.on("close", (code) => {
      try {
        if (code !== 0) throw new Error(`exit ${code}`)
        resolve(text ? JSON.parse(text) : {})
      } catch (error) {
        reject(error)
      }
    })
    child.stdin.end(JSON.stringify(event))
  })
}

const REFUSED = "This could not be checked against the policy, so it is denied."
const places = new Map()
const counted = new Map()
const unsent = new Map()

export const Proctor = async ({ client, directory }) => {
  const telling = new Set()

  // A subagent has a session of its own, below the one that a person prompts.
  async function place(id) {
    if (!places.has(id)) {
      const { data } = await client.session.get({ path: { id } })
      places.set(id, data.parentID ? { session: (await place(data.parentID)).session, agent: id } : { session: id })
    }
    return places.get(id)
  }

  // What responses used goes with the next hook of the session.
  async function count(info) {
    if (info.role !== "assistant" || !info.tokens) return
    const { input, output, reasoning, cache } = info.tokens
    const now = [input, output + reasoning, cache.read, cache.write, reasoning]
    const before = counted.get(info.id) ?? now.map(() => 0)
    const tokens = now.map((count, n) => Math.max(0, count - before[n]))
    counted.set(info.id, now)
    if (!tokens.some(Boolean)) return
    const { session, agent } = await place(info.sessionID)
    unsent.set(session, [...(unsent.get(session) ?? []), { model: info.modelID, below: agent !== undefined, tokens }])
  }

  async function hook(id, event) {
    const { session, agent } = await place(id)
    const used = unsent.get(session) ?? []
    unsent.delete(session)
    try {
      return await started({ ...event, session, agent, directory, used })
    } catch (error) {
      unsent.set(session, [...used, ...(unsent.get(session) ?? [])])
      throw error
    }
  }

  async function judged(id, event) {
    const answer = await hook(id, event).catch(() => ({ deny: REFUSED }))
    if (answer.deny) throw new Error(answer.deny)
  }

  async function told({ type, properties }) {
    if (type === "message.updated") await count(properties.info).catch(() => {})
    if (type !== "session.idle" && type !== "session.deleted") return
    const id = properties.sessionID ?? properties.info?.id
    if (places.get(id)?.agent === undefined) await hook(id, { event: type }).catch(() => {})
  }

  return {
    "chat.message": async (input, output) => {
      const prompt = output.parts.filter((part) => part.type === "text").map((part) => part.text).join("\\n")
      await judged(input.sessionID, { event: "chat.message", prompt })
    },
    "tool.execute.before": async ({ tool, sessionID, callID: call }, output) => {
      await judged(sessionID, { event: "tool.execute.before", tool, call, args: output.args })
    },
    "tool.execute.after": async ({ tool, sessionID, callID: call, args }, output) => {
      const result = { title: output.title, output: output.output, exit: output.metadata?.exit }
      await hook(sessionID, { event: "tool.execute.after", tool, call, args, result }).catch(() => {})
    },
    event: async ({ event }) => {
      const done = told(event)
      telling.add(done)
      await done
      telling.delete(done)
    },
    // opencode waits for this before it ends, and for no event: `opencode run` ends as soon as its session is idle.
    dispose: () => Promise.all(telling),
  }
}
"""

_NAMES: Final = {
    "session_id": "session",
    "cwd": "directory",
    "tool_name": "tool",
    "tool_use_id": "call",
    "tool_input": "args",
    "tool_response": "result",
    "agent_id": "agent",
}
"""The plugin's names of fields that `HookInput` names otherwise."""


class _Used(msgspec.Struct, frozen=True):
    """What one response used since it was last said."""

    model: str
    below: bool
    tokens: LoggedTokens


class _Input(msgspec.Struct, frozen=True, kw_only=True, rename=_NAMES):
    """The plugin's message."""

    event: str
    session_id: str
    cwd: str = ""
    prompt: str = ""
    tool_name: str = ""
    tool_use_id: str = ""
    tool_input: dict[str, Any] = {}
    tool_response: Any = None
    agent_id: str | None = None
    used: tuple[_Used, ...] = ()


def read(data: bytes) -> HookInput:
    """Parse a hook's input. Raises EventError for anything else."""
    message: _Input = decoded(data, _Input, OPENCODE)
    tool_input = message.tool_input
    if message.tool_name == "apply_patch" and isinstance(patch := tool_input.get("patchText"), str):
        tool_input = {**tool_input, "changes": certain_changes_of(patch)}
    changed: dict[str, Any] = {"tool_input": tool_input, "used": tuple(map(_usage, message.used))}
    if isinstance(result := message.tool_response, dict) and result.get("exit", 0) != 0:  # null: interrupted
        changed |= {"kind": "failed", "error": result}
    return hook_input(OPENCODE, message, **changed)


def _usage(used: _Used) -> TokenUsageUpdated:
    by_subagents = used.tokens.all if used.below else 0
    return TokenUsageUpdated(model=used.model, **used.tokens.figures(), subagent_tokens=by_subagents)


def output(answer: HookAnswer, given: HookInput) -> dict[str, Any]:
    """The answer to the plugin: the reason to refuse, or nothing."""
    return {"deny": answer.reason or "denied"} if answer.verdict != "allow" else {}


_SWITCHES: Final = ('"plugin"', '"permission"')
"""Settings of a folder that can change what is decided, or who decides."""


def plugin(line: str) -> str:
    """The plugin, which starts this line for each event, and refuses whatever is not answered."""
    return _PLUGIN % json.dumps(shlex.split(line))


OPENCODE: Final = HookClient(
    name="opencode",
    title="opencode",
    by="opencode",
    tools=HOOKED["opencode"],
    events=EVENTS,
    read=read,
    output=output,
    settings=ClientSettings(
        project=".opencode/plugin/proctor.js",
        user=".config/opencode/plugin/proctor.js",
        entry=lambda event, line, environment: {"command": line},
        in_shell=False,
        text=plugin,
        beside_ours=(
            (".opencode/plugin*/*.[jt]s", ""),
            *((f"{folder}opencode.json*", word) for folder in ("", ".opencode/") for word in _SWITCHES),
        ),
    ),
    hears="call",
    tells_usage=True,
    fails_open=(
        "another plugin, also a folder's, can change a call after the decision",
        "a folder's `permission` decides on calls that proctor leaves to opencode",
        "a plugin that can't be loaded is skipped",
    ),
)
