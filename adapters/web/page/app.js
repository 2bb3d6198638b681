// Chooses the view, and keeps it up to date with the store.

import { Refused, adoptToken, decoded, follow, forgetToken, get, pause, setToken } from "./api.js";
import { Approvals } from "./approvals.js";
import { announce, dismiss, fill, h, openDialog, sentence, toast } from "./dom.js";
import { Run } from "./run.js";
import { Runs } from "./runs.js";
import { KillSwitch } from "./kill_switch.js";

const LEAST_PAUSE_MS = 200;
const SHARE_OF_TIME = 4;
const RETRY_MS = 2000;
const TIME_PASSES_MS = 15000;
const main = document.getElementById("main");
const link = document.getElementById("link");
const badge = document.getElementById("waiting");
let me = null;
let view = null;
let killSwitch = null;
let waiting = 0;
let following = new AbortController();

function open() {
  const [, name, id] = /^#\/(?:(run|approvals)\/?)?(.*)$/.exec(location.hash) ?? [];
  view?.close();
  if (name === "run" && id) view = new Run(me, decoded(id));
  else if (name === "approvals") view = new Approvals(me, id && decoded(id));
  else view = new Runs(me, refresh);
  fill(main, view.element);
  const current = view instanceof Approvals ? "approvals" : "runs";
  for (const each of document.querySelectorAll("[data-view]")) {
    if (each.dataset.view === current) each.setAttribute("aria-current", "page");
    else each.removeAttribute("aria-current");
  }
  window.scrollTo(0, 0);
  return refresh();
}

async function refresh() {
  try {
    await Promise.all([view.refresh(), countWaiting(), killSwitch.refresh()]);
    document.title = `${waiting ? `(${waiting}) ` : ""}${view.title} · proctor`;
  } catch (error) {
    if (error instanceof Refused && me) toast(error.message, { bad: true });
  }
}

async function countWaiting() {
  const { total } = await get("/api/approvals?limit=1");
  badge.hidden = total === 0;
  badge.textContent = String(total);
  badge.setAttribute("aria-label", `${total} waiting`);
  if (total > waiting) announce(total === 1 ? "A call waits for a person" : `${total} calls wait for a person`);
  waiting = total;
}

function showLink(state) {
  link.className = `link ${state}`;
  link.textContent = state && (state === "live" ? "live" : "reconnecting…");
}

/** Loads everything again when something was stored, but not more often than people can see. */
async function keepUp() {
  following.abort(); // the stream of whoever was signed in here before
  const { signal } = (following = new AbortController());
  for await (const _ of follow("/api/changes", { signal, onState: showLink })) {
    const began = performance.now();
    await refresh();
    await pause(Math.max(LEAST_PAUSE_MS, SHARE_OF_TIME * (performance.now() - began)));
  }
}

const KEYS = [
  ["1 / 2", "Runs / Approvals"],
  ["/", "Search"],
  ["j / k", "Next / previous waiting call"],
  ["a", "To the Approve button of the call, then Enter"],
  ["d", "To the words for the model, then Ctrl+Enter denies"],
  ["t / p", "Timeline / policies of a run"],
  ["x", "To the button that cancels the run"],
  ["s", "Stop runs"],
  ["?", "These keys"],
];

function help() {
  const list = h("dl", { class: "keys" }, KEYS.map(([key, what]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, what)]));
  return openDialog("Keys", list, h("div", { class: "row end" }, dismiss("Close")));
}

const GLOBAL = {
  1: () => (location.hash = "#/"),
  2: () => (location.hash = "#/approvals"),
  "/": () => document.getElementById("search")?.focus(),
  s: () => document.getElementById("stop").hidden || killSwitch.stop(),
  "?": help,
};

function pressed(event) {
  const typing = event.target.closest("input:not([type=radio]), textarea, select, dialog");
  if (event.key === "Escape" && typing && !event.target.closest("dialog")) event.target.blur();
  if (typing || event.ctrlKey || event.metaKey || event.altKey || !me) return;
  if (GLOBAL[event.key]) GLOBAL[event.key]();
  else if (!view?.key?.(event.key)) return;
  event.preventDefault();
}

function signIn(why) {
  me = null;
  view?.close();
  following.abort();
  forgetToken();
  showLink("");
  for (const id of ["waiting", "stop", "banner"]) document.getElementById(id).hidden = true;
  const stays = h("input", { type: "checkbox" });
  const token = h("input", { type: "password", id: "token", autocomplete: "off", required: true, "aria-describedby": "token-why" });
  const given = (event) => {
    event.preventDefault();
    setToken(token.value.trim(), { stays: stays.checked });
    start();
  };
  fill(
    main,
    h(
      "form",
      { class: "card sign-in", on: { submit: given } },
      h("h1", {}, "Sign in"),
      h("p", { class: "soft", id: "token-why" }, sentence(why ?? "`proctor serve` prints a link with a token. Otherwise ask your administrator.")),
      h("label", {}, "Token", token),
      h("label", { class: "row check" }, stays, "Stay signed in on this device"),
      h("div", { class: "row end" }, h("button", { class: "main" }, "Sign in")),
    ),
  );
  token.focus();
}

async function start() {
  for (me = null; me === null; ) {
    try {
      me = await get("/api/me");
    } catch (error) {
      if (error.status < 500) return signIn(error.status === 401 ? "This token isn't valid." : error.message);
      showLink("lost");
      await pause(RETRY_MS);
    }
  }
  killSwitch = new KillSwitch(me);
  await open();
  keepUp().catch((error) => me && signIn(error.message));
}

// What changes although nothing is stored: a run's owner is gone, a budget's window is over.
setInterval(() => me && !document.hidden && refresh(), TIME_PASSES_MS);
window.addEventListener("unauthorized", () => me && signIn("Your token is no longer valid."));
document.getElementById("help").addEventListener("click", help);
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address names the view
  main.focus();
});
document.addEventListener("keydown", pressed);
window.addEventListener("hashchange", () => {
  if (/^#(token|phone)=/.test(location.hash)) {
    adoptToken();
    start();
  } else if (me) {
    open();
    if (document.activeElement === document.body) main.focus({ preventScroll: true }); // the element with the focus is gone
  }
});
if (adoptToken()) start();
else signIn();
