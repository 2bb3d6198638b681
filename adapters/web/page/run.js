// One run: its facts, limits, waiting calls, timeline and policies.

import { Refused, follow, get, getExact, post } from "./api.js";
import { Card, focusAnswer, showCards, reportOthers } from "./approvals.js";
import { Keyed, fill, h, openDialog, toast } from "./dom.js";
import { beginning, duration, moment, number, usd } from "./format.js";
import { Bar, chips, labelsOf, showStatus, terms } from "./parts.js";
import { Timeline } from "./timeline.js";

const MOST_EVENTS = 5000;
const KINDS = [
  ["", "Everything"],
  ["call", "Calls"],
  ["refused", "Denied, asked"],
  ["message", "Messages"],
];

export class Run {
  title = "Run";

  constructor(me, id) {
    Object.assign(this, { me, id, path: `/api/runs/${encodeURIComponent(id)}`, seen: 0, sought: -1, closed: new AbortController() });
    this.heading = h("h1", {}, "…");
    this.pill = h("span", { class: "pill" });
    this.cancel = h("button", { type: "button", class: "danger", hidden: true, "data-key": "x", on: { click: () => this.end() } }, "Cancel this run");
    this.facts = h("dl", { class: "facts" });
    this.took = h("span");
    this.limits = h("section", { class: "limits", "aria-label": "Limits" });
    this.bars = new Keyed(this.limits, (each) => `${each.policy} ${each.limit} ${each.scope}`, (each) => new Bar(each));
    this.waiting = h("section", { class: "approvals", "aria-label": "Waiting calls" });
    this.cards = new Keyed(this.waiting, (each) => each.approval_id, (each) => new Card(each, me));
    this.timeline = new Timeline(() => this.decisions());
    this.policies = h("section", { role: "tabpanel", id: "panel-1", "aria-labelledby": "tab-1", hidden: true });
    this.element = h(
      "div",
      {},
      h("div", { class: "about" }, h("div", { class: "row" }, h("div", {}, this.pill, this.heading), this.cancel), this.facts),
      this.limits,
      this.waiting,
      this.tabs(),
      this.events(),
      this.policies,
    );
    this.timer = setInterval(() => this.tick(), 1000);
  }

  tabs() {
    const names = ["Timeline", "Policies in force"];
    this.tab = names.map((name, n) =>
      h("button", { type: "button", role: "tab", id: `tab-${n}`, "aria-controls": `panel-${n}`, on: { click: () => this.open(n) } }, name),
    );
    this.select(0);
    return h("div", { class: "tabs", role: "tablist", "aria-label": "Of this run", on: { keydown: (event) => this.moveTab(event) } }, this.tab);
  }

  events() {
    const find = (event) => this.timeline.filter({ words: event.target.value.trim().toLowerCase() });
    const search = h("input", { type: "search", id: "search", placeholder: "Search the timeline", "aria-label": "Search the timeline", on: { input: find } });
    const kinds = chips("kind", "Kind", KINDS, (kind) => this.timeline.filter({ kind }));
    const filters = h("div", { class: "filters" }, search, kinds);
    this.lines = h("section", { role: "tabpanel", id: "panel-0", "aria-labelledby": "tab-0" }, filters, this.timeline.element);
    return this.lines;
  }

  select(n) {
    this.tab.forEach((tab, index) => {
      tab.setAttribute("aria-selected", String(index === n));
      tab.tabIndex = index === n ? 0 : -1;
    });
  }

  moveTab(event) {
    if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
    const other = 1 - this.tab.indexOf(event.target);
    this.open(other);
    this.tab[other].focus();
  }

  open(n) {
    this.select(n);
    this.lines.hidden = n !== 0;
    this.policies.hidden = n !== 1;
    if (n === 1) this.showPolicies();
  }

  /** Follows the events behind those that are shown, until the run's end or its owner's; of those up to `last`, it shows only the latest. */
  async listen(last) {
    const after = Math.max(this.seen, last - MOST_EVENTS);
    if (after > this.seen) this.timeline.left.hidden = false;
    Object.assign(this, { listening: true, sought: last });
    try {
      for await (const { id, data } of follow(`${this.path}/timeline/stream?after=${after}`, { signal: this.closed.signal })) {
        this.seen = Number(id);
        this.explained = null;
        this.timeline.add(data);
      }
    } catch (error) {
      if (error.status === 404) return this.missing();
      toast(error.message, { bad: true });
    } finally {
      this.listening = false;
    }
  }

  /** Says that there is no such run: a link may be older than what the store keeps. */
  missing() {
    this.title = "No such run";
    fill(this.element, h("h1", {}, "This run isn't in the store."));
  }

  async refresh() {
    const turn = (this.turn = {});
    let found;
    try {
      found = await Promise.all([get(this.path), this.limitsNow(), getExact(`${this.path}/approvals`)]);
    } catch (error) {
      if (error.status !== 404) throw error;
      return this.missing();
    }
    if (turn !== this.turn) return;
    const [run, limits, { approvals }] = found;
    if (!this.listening && run.last_seq > Math.max(this.seen, this.sought)) this.listen(run.last_seq);
    if (JSON.stringify(run) !== JSON.stringify(this.run)) fill(this.facts, this.terms(run));
    this.run = run;
    this.title = beginning(run.prompt) || run.run_id;
    fill(this.heading, this.title);
    showStatus(this.pill, run);
    this.cancel.hidden = !this.me.roles.includes("stop") || run.ended_seq > 0;
    this.bars.show(limits);
    reportOthers(showCards(this.cards, approvals));
    this.waiting.hidden = this.waiting.children.length === 0;
    this.tick();
  }

  terms(run) {
    return terms([
      ["Agent", run.provider],
      ["Began", moment(run.started_at ?? run.created_at)],
      ["Time", timeOf(run) === null ? "" : this.took],
      ["Tokens", number(run.usage.input_tokens + run.usage.output_tokens)],
      ["By subagents", run.usage.subagent_tokens > 0 && `${number(run.usage.subagent_tokens)} tokens`],
      ["Cost", run.usage.cost_usd > 0 && usd(run.usage.cost_usd)],
      ["Tenant", run.tenant],
      ["Labels", labelsOf(run).join(", ")],
      ["Run", h("code", {}, run.run_id)],
      ["Session", h("code", {}, run.session_id)],
    ]);
  }

  tick() {
    if (!this.run) return;
    fill(this.took, duration(timeOf(this.run) ?? 0));
    for (const card of this.cards.shown.values()) card.tick();
  }

  /** The limits; none if the run has not started. */
  async limitsNow() {
    try {
      return (await get(`${this.path}/limits`)).limits;
    } catch (error) {
      if (error instanceof Refused && error.status < 500) return [];
      throw error;
    }
  }

  /** The decisions, fetched once for the events that are here; again after a failure. */
  decisions() {
    const asked = (this.explained ??= get(`${this.path}/decisions`).then((found) => found.decisions));
    asked.catch(() => {
      if (this.explained === asked) this.explained = null;
    });
    return asked;
  }

  async showPolicies() {
    try {
      const found = await get(`${this.path}/policies`);
      const url = URL.createObjectURL(new Blob([found.svg], { type: "image/svg+xml" }));
      const picture = h("img", { alt: `The rules of ${found.stack} as a graph`, on: { load: () => URL.revokeObjectURL(url) } });
      picture.src = url;
      fill(
        this.policies,
        h("div", { class: "graph", tabindex: "0", role: "group", "aria-label": "Graph of the policies" }, picture),
        found.policies.map((each) =>
          h("details", { open: true }, h("summary", {}, `${each.name}${each.locked ? ", locked" : ""}`), h("pre", { class: "block" }, each.text)),
        ),
      );
    } catch (error) {
      fill(this.policies, h("p", { class: "nothing card" }, error.message));
    }
  }

  async end() {
    const reason = h("input", { id: "reason", maxlength: "2000", autocomplete: "off" });
    const chosen = await openDialog(
      "Cancel this run?",
      h("p", {}, "The agent is told to stop, and is killed if it does not. What it did stays recorded."),
      h("label", {}, "Why (recorded)", reason),
      h("div", { class: "row end" }, h("button", { value: "" }, "Keep it running"), h("button", { value: "end", class: "danger" }, "Cancel the run")),
    );
    if (chosen !== "end") return;
    try {
      await post(`${this.path}/cancel`, { reason: reason.value.trim() });
      toast("The agent is told to stop");
    } catch (error) {
      toast(error.message, { bad: true });
    }
  }

  key(key) {
    if (key === "x" && !this.cancel.hidden) this.cancel.focus();
    else if (key === "t" || key === "p") this.open(key === "t" ? 0 : 1);
    else return focusAnswer(this.cards, key, 0);
    return true;
  }

  close() {
    clearInterval(this.timer);
    this.closed.abort();
  }
}

/** How many milliseconds a run took, or has taken until now; null if it has not started. */
function timeOf(run) {
  const since = run.started_at ?? run.created_at;
  return run.duration_ms ?? (run.status === "running" && since ? Date.now() - new Date(since) : null);
}
