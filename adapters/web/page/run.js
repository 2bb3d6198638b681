// One run: what it is, its limits as bars, what waits, its timeline, the policies it is under.

import { follow, get, getExact, post } from "./api.js";
import { Card, showCards, tellOfOthers } from "./approvals.js";
import { Keyed, ask, fill, h, sentence, toast } from "./dom.js";
import { amount, beginning, duration, moment, number, usd } from "./format.js";
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
    Object.assign(this, { me, id, path: `/api/runs/${encodeURIComponent(id)}`, stop: new AbortController() });
    this.heading = h("h1", {}, "…");
    this.pill = h("span", { class: "pill" });
    this.cancel = h("button", { type: "button", class: "danger", hidden: true, "data-key": "x", on: { click: () => this.end() } }, "Cancel this run");
    this.facts = h("dl", { class: "facts" });
    this.limits = h("section", { class: "limits", "aria-label": "Limits" });
    this.bars = new Keyed(this.limits, (each) => `${each.policy} ${each.limit} ${each.scope}`, (each) => new Bar(each));
    this.waiting = h("section", { class: "approvals", "aria-label": "Waiting calls" });
    this.cards = new Keyed(this.waiting, (each) => each.approval_id, (each) => new Card(each, me));
    this.timeline = new Timeline(() => this.decisions());
    this.policies = h("section", { hidden: true });
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
    this.listen();
  }

  tabs() {
    const names = ["Timeline", "Policies in force"];
    this.tab = names.map((name, n) =>
      h("button", { type: "button", role: "tab", id: `tab-${n}`, "aria-selected": String(n === 0), on: { click: () => this.open(n) } }, name),
    );
    return h("div", { class: "tabs", role: "tablist", "aria-label": "Of this run" }, this.tab);
  }

  events() {
    const change = () =>
      this.timeline.filter({ kind: this.chips.querySelector(":checked").value, words: this.search.value.trim().toLowerCase() });
    this.search = h("input", { type: "search", id: "search", placeholder: "Search the timeline", "aria-label": "Search the timeline", on: { input: change } });
    const chips = KINDS.map(([value, name]) =>
      h("label", {}, h("input", { type: "radio", name: "kind", value, checked: value === "", on: { change } }), name),
    );
    this.chips = h("fieldset", { class: "chips" }, h("legend", { class: "unseen" }, "Kind"), chips);
    this.lines = h("section", { role: "tabpanel", "aria-labelledby": "tab-0" }, h("div", { class: "filters" }, this.search, this.chips), this.timeline.element);
    return this.lines;
  }

  open(n) {
    this.tab.forEach((tab, index) => tab.setAttribute("aria-selected", String(index === n)));
    this.lines.hidden = n !== 0;
    this.policies.hidden = n !== 1;
    if (n === 1) this.showPolicies();
  }

  async listen() {
    try {
      const { last_seq: last } = await get(this.path);
      this.timeline.left.hidden = last <= MOST_EVENTS;
      const path = `${this.path}/timeline/stream?after=${Math.max(0, last - MOST_EVENTS)}`;
      for await (const { data } of follow(path, { signal: this.stop.signal })) {
        this.told = null;
        this.timeline.add(data);
      }
    } catch (error) {
      if (error.status === 404) return this.missing();
      fill(this.heading, sentence(error.message));
      this.pill.hidden = true;
    }
  }

  /** A link may be older than what is kept. */
  missing() {
    this.title = "No such run";
    fill(this.element, h("h1", {}, "This run isn't in the store."));
  }

  async refresh() {
    try {
      this.run = await get(this.path);
    } catch (error) {
      if (error.status !== 404) throw error;
      return this.missing();
    }
    const run = this.run;
    this.title = beginning(run.prompt) || run.run_id;
    fill(this.heading, this.title);
    this.pill.className = `pill ${run.waiting ? "waits" : run.status}`;
    fill(this.pill, run.waiting ? "waiting" : run.status);
    this.cancel.hidden = !(this.me.roles.includes("stop") && ["created", "running", "lost"].includes(run.status));
    this.tick();
    await Promise.all([this.showLimits(), this.showWaiting()]);
  }

  tick() {
    const run = this.run;
    if (!run) return;
    const since = run.started_at ?? run.created_at;
    const took = run.duration_ms ?? (run.status === "running" && since ? Date.now() - new Date(since) : null);
    const labels = Object.entries(run.labels).map(([name, value]) => `${name}=${value}`);
    const facts = [
      ["Agent", run.provider],
      ["Began", moment(since)],
      ["Time", took === null ? "" : duration(took)],
      ["Tokens", number(run.usage.input_tokens + run.usage.output_tokens)],
      ["By subagents", run.usage.subagent_tokens > 0 && `${number(run.usage.subagent_tokens)} tokens`],
      ["Cost", run.usage.cost_usd > 0 && usd(run.usage.cost_usd)],
      ["Tenant", run.tenant],
      ["Labels", labels.join(", ")],
      ["Run", h("code", {}, run.run_id)],
      ["Session", h("code", {}, run.session_id)],
    ];
    const shown = facts.filter(([, value]) => value);
    fill(this.facts, shown.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
    for (const card of this.cards.shown.values()) card.tick();
  }

  async showLimits() {
    try {
      this.bars.show((await get(`${this.path}/limits`)).limits);
    } catch (error) {
      if (error.status >= 500) throw error;
    }
  }

  async showWaiting() {
    const { approvals } = await getExact("/api/approvals?limit=500");
    const own = approvals.filter((each) => each.run_id === this.run.run_id);
    tellOfOthers(showCards(this.cards, own));
    this.waiting.hidden = own.length === 0;
  }

  async decisions() {
    this.told ??= get(`${this.path}/decisions`).then((found) => found.decisions);
    return this.told;
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
    const chosen = await ask(
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
    else if (key === "a" || key === "d") this.waiting.querySelector(`[data-key="${key}"]`)?.focus();
    else if (key === "t" || key === "p") this.open(key === "t" ? 0 : 1);
    else return false;
    return true;
  }

  close() {
    clearInterval(this.timer);
    this.stop.abort();
  }
}

/** A limit, and how much of it is used. */
export class Bar {
  constructor(limit) {
    const name = `${limit.title}${limit.scope === "session" ? " of the session" : ""}`;
    this.used = h("span", { class: "used" });
    this.fill = h("i");
    this.bar = h("div", { class: "bar", role: "meter", "aria-label": name, "aria-valuemin": "0" }, this.fill);
    this.policy = h("span", { class: "soft small" });
    this.element = h("div", { class: "card limit" }, h("div", { class: "row" }, h("strong", {}, name), this.used), this.bar, this.policy);
  }

  show(limit) {
    const share = limit.max > 0 ? limit.used / limit.max : limit.used > 0 ? 1 : 0;
    const said = `${amount(limit.used, limit.unit)} of ${amount(limit.max, limit.unit)}`;
    fill(this.used, said);
    fill(this.policy, limit.policy);
    this.fill.style.setProperty("--share", Math.min(1, share));
    this.bar.className = `bar ${limit.exceeded || share > 1 ? "bad" : share >= (limit.warn_at ?? 0.8) ? "care" : ""}`;
    this.bar.setAttribute("aria-valuenow", String(limit.used));
    this.bar.setAttribute("aria-valuemax", String(limit.max));
    this.bar.setAttribute("aria-valuetext", said);
  }
}
