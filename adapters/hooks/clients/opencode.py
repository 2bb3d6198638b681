"""opencode: a plugin that starts a hook for each event, and the fields of what it says."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from proctor.policies.events.run_context import Tool, tool

from ...kit.client_tools import APPLY_PATCH, certain_changes_of
from ..messages import ClientSettings, HookAnswer, HookClient, HookInput, Kind, decoded, hook_input

EVENTS: Final[Mapping[str, Kind]] = {
    "chat.message": "prompt",
    "tool.execute.before": "call",
    "tool.execute.after": "completed",
    "session.idle": "stop",
    "session.deleted": "session_end",
}
TOOLS: Final[tuple[Tool, ...]] = (
    tool("bash", "bash", "command", "description", "timeout", "workdir"),
    tool("read", "read", "offset", "limit", path="$.filePath"),
    tool("write", "write", "content", path="$.filePath"),
    tool("edit", "edit", "oldString", "replaceAll", path="$.filePath", content="$.newString"),
    msgspec.structs.replace(APPLY_PATCH, takes=("changes", "patchText")),
    tool("glob", "glob", "pattern", "path"),
    tool("grep", "grep", "pattern", "path", "include"),
    tool("list", "glob", "path", "ignore"),
    tool("webfetch", "fetch", "url", "format", "timeout"),
    tool("websearch", "web_search", "query"),
    tool("task", "task", "prompt", "description", "subagent_type"),
    *(Tool(name=name) for name in ("todowrite", "todoread", "skill", "question", "plan_exit", "plan_enter", "lsp")),
)

_PLUGIN: Final = """// Written by `proctor hook install`; `proctor hook uninstall` removes it.
import { spawn } from "node:child_process"

const LINE = %s

function hook(event) {
  return new Promise((resolve, reject) => {
    const child = spawn("/bin/sh", ["-c", LINE], { stdio: ["pipe", "pipe", "ignore"] })
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

async function judged(event) {
  let answer
  try {
    answer = await hook(event)
  } catch (error) {
    throw new Error("This could not be checked against the policy, so it is refused.")
  }
  if (answer.deny) throw new Error(answer.deny)
}

export const Proctor = async ({ directory }) => ({
  "chat.message": async (input, output) => {
    const prompt = output.parts.filter((part) => part.type === "text").map((part) => part.text).join("\\n")
    await judged({ event: "chat.message", session: input.sessionID, directory, prompt })
  },
  "tool.execute.before": async (input, output) => {
    const { tool, sessionID: session, callID: call } = input
    await judged({ event: "tool.execute.before", session, directory, tool, call, args: output.args })
  },
  "tool.execute.after": async (input, output) => {
    const { tool, sessionID: session, callID: call, args } = input
    const result = { title: output.title, output: output.output }
    await hook({ event: "tool.execute.after", session, directory, tool, call, args, result }).catch(() => {})
  },
  event: async ({ event }) => {
    if (event.type !== "session.idle" && event.type !== "session.deleted") return
    const session = event.properties.sessionID ?? event.properties.info?.id
    await hook({ event: event.type, session, directory }).catch(() => {})
  },
})
"""

_NAMES: Final = {
    "session_id": "session",
    "cwd": "directory",
    "tool_name": "tool",
    "tool_use_id": "call",
    "tool_input": "args",
    "tool_response": "result",
}
"""The plugin's names of fields that `HookInput` names otherwise."""


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


def read(data: bytes) -> HookInput:
    """Parse a hook's input. Raises EventError for anything else."""
    message: _Input = decoded(data, _Input, OPENCODE.title)
    tool_input = message.tool_input
    if message.tool_name == "apply_patch" and isinstance(patch := tool_input.get("patchText"), str):
        tool_input = {**tool_input, "changes": certain_changes_of(patch)}
    return hook_input(OPENCODE, message, tool_input=tool_input)


def output(answer: HookAnswer, given: HookInput) -> dict[str, Any]:
    """The answer to the plugin: the reason to refuse, or nothing."""
    return {"deny": answer.reason or "denied"} if answer.verdict != "allow" else {}


_SWITCHES: Final = ('"plugin"', '"permission"')
"""Settings of a folder that can change what is decided, or who decides."""


def plugin(line: str) -> str:
    """The plugin, which starts this line for each event, and refuses whatever is not answered."""
    return _PLUGIN % json.dumps(line)


OPENCODE: Final = HookClient(
    name="opencode",
    title="opencode",
    by="opencode",
    tools=TOOLS,
    events=EVENTS,
    read=read,
    output=output,
    settings=ClientSettings(
        project=".opencode/plugin/proctor.js",
        user=".config/opencode/plugin/proctor.js",
        entry=lambda event, line: {"command": line},
        text=plugin,
        beside_ours=(
            (".opencode/plugin*/*.[jt]s", ""),
            *((f"{folder}opencode.json*", word) for folder in ("", ".opencode/") for word in _SWITCHES),
        ),
    ),
    hears="call",
    fails_open=(
        "another plugin, also a folder's, can change a call after the decision",
        "a folder's `permission` decides on calls that proctor leaves to opencode",
        "a plugin that can't be loaded is skipped",
    ),
)
