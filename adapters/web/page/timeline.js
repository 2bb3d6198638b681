// A run's timeline: each call is one card, from its request to its outcome, with the reasons; the rest is lines.

import { fill, h, sentence } from "./dom.js";
import { clock, day, json, oneLine } from "./format.js";

/** Characters of a call's input beside its name; "Input" has all of it. */
const MOST_ARGS = 1000;

const MOST_ROWS = 2000;

export class Timeline {
  constructor(explain) {
    this.explain = explain;
    this.calls = new Map();
    this.list = h("ol", { class: "line" });
    this.left = h("p", { class: "soft small", hidden: true }, "Earlier events are left out here; `proctor show` has all of them.");
    this.element = h("div", {}, this.left, this.list);
    this.wanted = { kind: "", words: "" };
  }

  add(item) {
    const id = item.tool_call_id;
    if (!id) return this.filterRow(this.append(item, line(item)));
    const before = this.calls.get(id)?.call;
    if (!before || (before.over && item.kind === "request")) {
      if (before) before.until = item.seq; // its id is another call's now
      const call = new Call(item, this.explain);
      const row = this.append(item, call.element);
      row.dataset.call = id;
      this.calls.set(id, { call, row });
    }
    const { call, row } = this.calls.get(id);
    call.show(item);
    this.filterRow(row);
  }

  /** Returns the new row. If there are too many, the first is removed, and a later event of its call starts another. */
  append(item, element) {
    const date = day(item.at);
    if (date && date !== this.day) this.list.append(h("li", { class: "day" }, h("h2", {}, date)));
    this.day = date || this.day;
    const row = h("li", {}, h("time", { datetime: item.at ?? "" }, clock(item.at)), h("div", { class: "plain-row" }, element));
    this.list.append(row);
    if (this.list.children.length > MOST_ROWS) {
      const first = this.list.firstElementChild;
      first.remove();
      if (this.calls.get(first.dataset.call)?.row === first) this.calls.delete(first.dataset.call);
      this.left.hidden = false;
    }
    return row;
  }

  filter(changed) {
    Object.assign(this.wanted, changed);
    for (const row of this.list.children) this.filterRow(row);
  }

  filterRow(row) {
    const { kind, words } = this.wanted;
    const own = row.querySelector("[data-kind]")?.dataset.kind;
    if (own === undefined) return; // a date
    row.hidden = !((!kind || own.split(" ").includes(kind)) && (!words || row.textContent.toLowerCase().includes(words)));
  }
}

const BANNERS = ["violation", "limit", "error", "end"];

/** An item that is not about a call, as a line or a banner. */
function line(item) {
  const kind = item.kind === "message" ? "message" : BANNERS.includes(item.kind) && item.tone !== "good" ? "refused" : "";
  if (item.kind === "message") {
    const words = item.whole ? details(item.text, "All of it", item.whole) : item.text;
    return h("div", { class: "plain", "data-kind": kind }, h("span", { class: "who" }, item.label), " ", words);
  }
  if (!BANNERS.includes(item.kind)) return h("p", { class: "quiet-line", "data-kind": kind }, `${item.label}: `, sentence(item.text));
  return h("p", { class: `banner ${item.tone}`, "data-kind": kind }, h("strong", {}, item.label), " ", sentence(item.text));
}

function details(shown, label, whole) {
  return h("details", {}, h("summary", {}, shown, h("span", { class: "unseen" }, label)), h("pre", { class: "block" }, whole));
}

class Call {
  constructor(item, explain) {
    this.explain = explain;
    this.id = item.tool_call_id;
    this.since = item.seq;
    this.until = Infinity;
    this.over = false;
    this.pill = h("span", { class: "pill soft" }, "asked");
    this.args = h("span", { class: "args" });
    this.why = h("div", { class: "why", hidden: true });
    this.output = h("div", { hidden: true });
    this.steps = h("details", { on: { toggle: () => this.open() } }, h("summary", {}, "Why"), h("div", {}));
    this.whole = h("details", {}, h("summary", {}, "Input"), h("pre", { class: "block" }));
    this.said = new Set();
    this.element = h(
      "article",
      { class: "card call", "data-kind": "call" },
      h("div", { class: "title" }, this.pill, h("b", {}, item.tool_name ?? ""), this.args),
      this.why,
      this.output,
      h("div", { class: "row" }, this.steps, this.whole),
    );
  }

  show(item) {
    if (item.tool_input && Object.keys(item.tool_input).length) this.input(item.tool_input);
    if (item.kind === "result") this.result(item);
    else if (item.kind === "violation") this.violation(item);
    else if (item.kind === "approval") this.approval(item);
    else if (item.kind === "call") this.decided(item);
  }

  input(input) {
    const args = Object.entries(input).map(([name, value]) => `${name}: ${oneLine(value)}`).join("  ");
    fill(this.args, args.length > MOST_ARGS ? `${args.slice(0, MOST_ARGS)}…` : args);
    fill(this.whole.querySelector("pre"), json(input, 2));
  }

  state(item) {
    this.pill.className = `pill ${item.tone}`;
    fill(this.pill, item.label);
    if (item.tone !== "good") this.element.dataset.kind = "call refused";
    this.element.className = `card call ${item.tone === "bad" ? "refused" : item.waits ? "waiting" : ""}`;
  }

  /** A sentence, unless it is there already. */
  because(text) {
    if (this.said.has(text)) return;
    this.said.add(text);
    this.why.hidden = false;
    this.why.append(h("p", {}, sentence(text)));
  }

  decided(item) {
    this.over = item.event === "tool_call_denied";
    if (!this.answered) this.state(item);
    for (const reason of item.why) this.because(reason);
  }

  approval(item) {
    this.state(item);
    if (item.event === "tool_approval_requested") this.asked = item.why.length ? item.why : [item.text];
    else {
      this.answered = true;
      for (const reason of this.asked ?? []) this.because(reason); // while it waits, its card above says so
      this.because(item.closed);
    }
  }

  violation(item) {
    this.element.dataset.kind = "call refused";
    if (!(item.repeats && this.answered)) this.because(item.text);
  }

  result(item) {
    this.over = true;
    const whole = item.whole ?? item.text;
    const lines = whole.split("\n").length;
    const shown = h("pre", { class: "block" }, whole);
    fill(this.output, item.whole || lines > 4 ? h("details", {}, h("summary", {}, `${item.label}, ${lines} lines`), shown) : shown);
    this.output.hidden = false;
    if (item.event !== "tool_call_failed") return;
    this.pill.className = `pill ${item.tone}`;
    this.pill.append(`, ${item.label}`);
  }

  async open() {
    if (!this.steps.open) return;
    const body = this.steps.querySelector("div");
    fill(body, h("p", { class: "soft small" }, "Evaluating it again …"));
    try {
      const own = (each) => each.decision?.tool_call_id === this.id && this.since <= each.seq && each.seq < this.until;
      const found = (await this.explain()).filter(own);
      fill(body, found.length ? found.map(({ decision: each }) => decision(each)) : "Nothing was decided about it.");
    } catch (error) {
      fill(body, error.message);
    }
  }
}

/** A decision with each rule that was asked. */
function decision(each) {
  const steps = each.steps?.length ? each.steps : ["no rule denies it"];
  const objects = new Set((each.violations ?? []).map((violation) => violation.rule));
  return h(
    "div",
    { class: "block" },
    h("ul", { class: "steps" }, steps.map((step) => h("li", { class: objects.has(step.split(":")[0]) ? "no" : "yes" }, sentence(step)))),
    each.tell_model && h("p", { class: "small" }, h("span", { class: "soft" }, "Told to the model: "), each.tell_model),
  );
}
