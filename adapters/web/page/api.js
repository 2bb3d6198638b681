// Requests to the server. The token is kept for this tab; on a device that stays signed in, for every tab.

import { parsed } from "./format.js";

const KEPT = "proctor-token";

export class Refused extends Error {
  constructor(status, code, message) {
    super(message);
    Object.assign(this, { status, code });
  }
}

/** A part of an address, decoded; as it is if it cannot be decoded. */
export function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** Moves the token out of the address, where it must not stay; returns whether there is one now. */
export function adoptToken() {
  const found = /^#(token|phone)=(.+)$/.exec(location.hash);
  if (found) {
    setToken(decoded(found[2]), { stays: found[1] === "phone" });
    history.replaceState(null, "", "#/");
  }
  return token() !== null;
}

/** `stays`: keep it also for tabs that are opened later on this device, such as those of links in notifications. */
export function setToken(given, { stays = false } = {}) {
  sessionStorage.setItem(KEPT, given);
  if (stays) localStorage.setItem(KEPT, given);
}

export function forgetToken() {
  sessionStorage.removeItem(KEPT);
  localStorage.removeItem(KEPT);
}

const token = () => sessionStorage.getItem(KEPT) ?? localStorage.getItem(KEPT);

async function request(path, { method = "GET", body, headers = {}, signal } = {}) {
  const response = await fetch(path, {
    method,
    signal,
    body: body === undefined ? undefined : JSON.stringify(body),
    headers: {
      authorization: `Bearer ${token() ?? ""}`,
      ...(body === undefined ? {} : { "content-type": "application/json" }),
      ...headers,
    },
    credentials: "omit",
    redirect: "error",
  }).catch(() => {
    throw new Error("The server does not answer. Try again.");
  });
  if (response.status === 401) window.dispatchEvent(new Event("unauthorized"));
  if (!response.ok) {
    const refusal = await response.json().catch(() => ({}));
    throw new Refused(response.status, refusal.code ?? "error", refusal.message ?? response.statusText);
  }
  return response;
}

export async function get(path, options = {}) {
  return (await request(path, options)).json();
}

/** Like `get`, with large whole numbers unrounded: for values that are shown, not calculated with. */
export async function getExact(path) {
  return parsed(await (await request(path)).text());
}

export async function post(path, body) {
  return (await request(path, { method: "POST", body })).json();
}

/**
 * Server-sent events, one after another. A lost connection is made again, and continues after the last event.
 * `onState` is called with "live" and "lost".
 */
export async function* follow(path, { signal, onState = () => {} } = {}) {
  let last = null;
  for (let tries = 0; !signal.aborted; tries += 1) {
    try {
      const headers = last === null ? {} : { "last-event-id": last };
      const response = await request(path, { headers, signal });
      onState("live");
      for await (const message of messages(response.body)) {
        tries = 0;
        if (message.event === "end") return;
        if (message.id) last = message.id;
        yield message;
      }
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof Refused && error.status < 500) throw error;
    }
    if (signal.aborted) return;
    onState("lost");
    await pause(Math.min(8000, 300 * 2 ** tries), signal);
  }
}

async function* messages(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  try {
    while (true) {
      const { value, done } = await reader.read();
      if (done) return;
      const parts = (text + value).split("\n\n");
      text = parts.pop();
      for (const part of parts) {
        const message = messageOf(part);
        if (message) yield message;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

function messageOf(part) {
  const fields = {};
  for (const line of part.split("\n")) {
    const colon = line.indexOf(":");
    if (colon > 0) fields[line.slice(0, colon)] = line.slice(colon + 1).replace(/^ /, "");
  }
  return fields.data === undefined ? null : { id: fields.id, event: fields.event, data: parsed(fields.data) };
}

export function pause(ms, signal) {
  return new Promise((done) => {
    const end = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", end);
      done();
    };
    const timer = setTimeout(end, ms);
    signal?.addEventListener("abort", end);
  });
}
