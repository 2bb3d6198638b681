// Written by `proctor hook install`; `proctor hook uninstall` removes it.
import { spawn } from "node:child_process"

const COMMAND = PROCTOR_HOOK

function runHook(event) {
  return new Promise((resolve, reject) => {
    // A folder's `.env` would change how it starts.
    const env = { HOME: process.env.HOME }
    const child = spawn(COMMAND[0], COMMAND.slice(1), { stdio: ["pipe", "pipe", "ignore"], env })
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
const sessions = new Map()
const counted = new Map()
const unsent = new Map()
const commands = new Map()
const running = new Set()

export const Proctor = async ({ client, directory }) => {
  const observing = new Set()

  // A subagent has a session of its own, below the one that a person prompts.
  async function sessionOf(id) {
    if (!sessions.has(id)) {
      const { data } = await client.session.get({ path: { id } })
      sessions.set(id, data.parentID ? { session: (await sessionOf(data.parentID)).session, agent: id } : { session: id })
    }
    return sessions.get(id)
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
    const { session, agent } = await sessionOf(info.sessionID)
    unsent.set(session, [...(unsent.get(session) ?? []), { model: info.modelID, below: agent !== undefined, tokens }])
  }

  async function hook(id, event) {
    const { session, agent } = await sessionOf(id)
    const used = unsent.get(session) ?? []
    unsent.delete(session)
    try {
      return await runHook({ ...event, session, agent, directory, used })
    } catch (error) {
      unsent.set(session, [...used, ...(unsent.get(session) ?? [])])
      throw error
    }
  }

  async function gate(id, event) {
    await Promise.all(observing)
    const answer = await hook(id, event).catch(() => ({ deny: REFUSED }))
    if (answer.deny) throw new Error(answer.deny)
  }

  // `tool.execute.after` comes only where a tool has returned.
  async function failed({ type, tool, callID: call, sessionID, state }) {
    if (type !== "tool" || state.status !== "error" || !running.delete(call)) return
    const result = { output: state.error, exit: null }
    await hook(sessionID, { event: "tool.execute.after", tool, call, args: state.input, result })
  }

  async function observe({ type, properties }) {
    if (type === "message.part.updated") await failed(properties.part)
    if (type === "message.updated") await count(properties.info)
    if (type !== "session.idle" && type !== "session.deleted") return
    const id = properties.sessionID ?? properties.info?.id
    if (sessions.get(id)?.agent === undefined) await hook(id, { event: type })
  }

  return {
    // Its template becomes the prompt: the person has typed its name and what is behind it.
    "command.execute.before": async ({ command, arguments: typed, sessionID }) => {
      commands.set(sessionID, `/${command} ${typed}`)
    },
    "chat.message": async (input, output) => {
      const typed = output.parts.filter((part) => part.type === "text" && !part.synthetic).map((part) => part.text)
      const prompt = commands.get(input.sessionID) ?? typed.join("\n")
      commands.delete(input.sessionID)
      await gate(input.sessionID, { event: "chat.message", prompt })
    },
    "tool.execute.before": async ({ tool, sessionID, callID: call }, output) => {
      await gate(sessionID, { event: "tool.execute.before", tool, call, args: output.args })
      running.add(call)
    },
    "tool.execute.after": async ({ tool, sessionID, callID: call, args }, output) => {
      running.delete(call)
      const { title, output: text, metadata, content, structuredContent } = output
      const result = content ? { content, structuredContent } : { title, output: text, exit: metadata?.exit }
      await hook(sessionID, { event: "tool.execute.after", tool, call, args, result }).catch(() => {})
    },
    event: async ({ event }) => {
      const done = observe(event).catch(() => {}) // what it cannot report, or read, holds up no call
      observing.add(done)
      await done
      observing.delete(done)
    },
    // opencode waits for this before it ends, and for no event: `opencode run` ends as soon as its session is idle.
    dispose: () => Promise.all(observing),
  }
}
