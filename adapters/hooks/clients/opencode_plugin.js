// Written by `proctor hook install`; `proctor hook uninstall` removes it.
import { spawn } from "node:child_process"

const WORDS = PROCTOR_HOOK

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
const commands = new Map()
const running = new Set()

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
    await Promise.all(telling)
    const answer = await hook(id, event).catch(() => ({ deny: REFUSED }))
    if (answer.deny) throw new Error(answer.deny)
  }

  // `tool.execute.after` comes only where a tool has returned.
  async function failed({ type, tool, callID: call, sessionID, state }) {
    if (type !== "tool" || state.status !== "error" || !running.delete(call)) return
    const result = { output: state.error, exit: null }
    await hook(sessionID, { event: "tool.execute.after", tool, call, args: state.input, result }).catch(() => {})
  }

  async function told({ type, properties }) {
    if (type === "message.part.updated") await failed(properties.part)
    if (type === "message.updated") await count(properties.info).catch(() => {})
    if (type !== "session.idle" && type !== "session.deleted") return
    const id = properties.sessionID ?? properties.info?.id
    if (places.get(id)?.agent === undefined) await hook(id, { event: type }).catch(() => {})
  }

  return {
    // Its template becomes the prompt: the person has typed its name and what is behind it.
    "command.execute.before": async ({ command, arguments: given, sessionID }) => {
      commands.set(sessionID, `/${command} ${given}`)
    },
    "chat.message": async (input, output) => {
      const typed = output.parts.filter((part) => part.type === "text" && !part.synthetic).map((part) => part.text)
      const prompt = commands.get(input.sessionID) ?? typed.join("\n")
      commands.delete(input.sessionID)
      await judged(input.sessionID, { event: "chat.message", prompt })
    },
    "tool.execute.before": async ({ tool, sessionID, callID: call }, output) => {
      await judged(sessionID, { event: "tool.execute.before", tool, call, args: output.args })
      running.add(call)
    },
    "tool.execute.after": async ({ tool, sessionID, callID: call, args }, output) => {
      running.delete(call)
      const { title, output: text, metadata, content, structuredContent } = output
      const result = content ? { content, structuredContent } : { title, output: text, exit: metadata?.exit }
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
