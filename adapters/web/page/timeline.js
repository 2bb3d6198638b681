// A run's events as a line of time: a call is one card, from its request to its outcome, with why it was decided so.

import { fill, h, sentence } from "./dom.js";
import { clock, content, limitName, number, oneLine, text, usd } from "./format.js";

/** The types that are told; others, such as pieces of text, are not asked for. */
export const TYPES = [
  ..."run_started message_sent message_received token_usage_updated policy_violation budget_warning".split(" "),
  ..."tool_call_requested tool_call_started tool_call_completed tool_call_failed tool_call_denied".split(" "),
  ..."tool_approval_requested tool_approval_granted tool_approval_denied tool_approval_expired".split(" "),
  ..."error_occurred error_recovered run_completed run_failed run_cancelled".split(" "),
];
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

  add(event) {
    const call = event.tool_call_id && this.callOf(event);
    if (call) call.take(event);
    else this.tell(event);
  }

  callOf(event) {
    const known = this.calls.get(event.tool_call_id);
    if (known || !event.type.startsWith("tool_")) return known;
    const call = new Call(event, this.explain);
    this.calls.set(event.tool_call_id, call);
    this.append(event, call.element, call.element.dataset.kind);
    return call;
  }

  tell(event) {
    const told = TELLERS[event.type]?.(event);
    if (told) this.append(event, told.element, told.kind ?? "");
  }

  append(event, element, kind) {
    const row = h("li", { "data-kind": kind }, h("time", { datetime: event.at ?? "" }, clock(event.at)), h("div", { class: "plain-row" }, element));
    this.list.append(row);
    this.filterRow(row);
    if (this.list.children.length > MOST_ROWS) {
      this.list.firstElementChild.remove();
      this.left.hidden = false;
    }
  }

  filter(wanted) {
    this.wanted = wanted;
    for (const row of this.list.children) this.filterRow(row);
  }

  filterRow(row) {
    const { kind, words } = this.wanted;
    const own = row.querySelector("[data-kind]")?.dataset.kind ?? row.dataset.kind;
    const fits = !kind || own.split(" ").includes(kind);
    row.hidden = !(fits && (!words || row.textContent.toLowerCase().includes(words)));
  }
}

class Call {
  constructor(event, explain) {
    this.explain = explain;
    this.id = event.tool_call_id;
    this.pill = h("span", { class: "pill" }, "asked");
    this.args = h("span", { class: "args" });
    this.why = h("div", { class: "why", hidden: true });
    this.output = h("div", { hidden: true });
    this.steps = h("details", { on: { toggle: () => this.open() } }, h("summary", {}, "Why"), h("div", {}));
    this.whole = h("details", {}, h("summary", {}, "Input"), h("pre", { class: "block" }));
    this.element = h(
      "article",
      { class: "card call", "data-kind": "call" },
      h("div", { class: "title" }, this.pill, h("b", {}, event.tool_name), this.args),
      this.why,
      this.output,
      h("div", { class: "row" }, this.steps, this.whole),
    );
  }

  take(event) {
    if (event.tool_input && Object.keys(event.tool_input).length) this.input(event.tool_input);
    CHANGES[event.type]?.(this, event);
  }

  input(input) {
    fill(this.args, Object.entries(input).map(([name, value]) => `${name}: ${oneLine(value)}`).join("  "));
    fill(this.whole.querySelector("pre"), JSON.stringify(input, null, 2));
  }

  state(name, label, kind = "call") {
    this.pill.className = `pill ${name}`;
    fill(this.pill, label);
    this.element.className = `card call ${name === "deny" || name === "cancel" ? "refused" : ""} ${name === "waits" ? "waiting" : ""}`;
    this.element.dataset.kind = kind;
  }

  because(...words) {
    this.why.hidden = false;
    this.why.append(h("p", {}, ...words));
  }

  outcome(label, value) {
    const whole = outputText(value);
    const lines = whole.split("\n").length;
    const shown = h("pre", { class: "block" }, whole || "(nothing)");
    const small = whole.length < 240 && lines < 5;
    fill(this.output, small ? shown : h("details", {}, h("summary", {}, `${label}, ${number(lines)} lines`), shown));
    this.output.hidden = false;
  }

  async open() {
    if (!this.steps.open) return;
    const place = this.steps.querySelector("div");
    fill(place, h("p", { class: "soft small" }, "Judging it once more …"));
    try {
      const decisions = (await this.explain()).filter((each) => each.tool_call_id === this.id);
      fill(place, decisions.length ? decisions.map(decision) : "Nothing was decided about it.");
    } catch (error) {
      fill(place, error.message);
    }
  }
}

/** A decision with each rule that was asked. */
export function decision(each) {
  const steps = each.steps.length ? each.steps : ["no rule objects"];
  const objects = new Set(each.violations.map((violation) => violation.rule));
  return h(
    "div",
    { class: "block" },
    h("ul", { class: "steps" }, steps.map((step) => h("li", { class: objects.has(step.split(":")[0]) ? "no" : "yes" }, sentence(step)))),
    each.tell_model && h("p", { class: "small" }, h("span", { class: "soft" }, "Told to the model: "), each.tell_model),
  );
}

function outputText(value) {
  if (value && typeof value === "object" && "exit_code" in value) {
    const printed = `${value.stdout ?? ""}${value.stderr ?? ""}`.trimEnd();
    return value.exit_code ? `exit ${value.exit_code}\n${printed}` : printed;
  }
  return value === null || value === undefined ? "" : text(value).trimEnd();
}

const CHANGES = {
  tool_call_started: (call) => call.answered || call.state("allow", "allowed"),
  tool_call_completed: (call, event) => call.outcome("Result", event.tool_output),
  tool_call_failed: (call, event) => {
    call.outcome("Failed", event.error);
    call.pill.append(", failed");
  },
  tool_call_denied: (call, event) => {
    if (!call.answered) call.state("deny", "refused", "call refused");
    call.because(h("span", { class: "soft" }, "Told to the model: "), event.tell_model ?? "nothing");
  },
  policy_violation: (call, event) => {
    if (event.action === "request_approval") return; // its approval tells it
    if (event.action === "cancel") call.state("cancel", "ended the run", "call refused");
    else call.element.dataset.kind = "call refused";
    call.because(h("strong", {}, `${event.policy}/${event.rule}`.replace(/^\//, "")), " ", sentence(event.message), " ", h("span", { class: "soft" }, event.enforcement));
  },
  tool_approval_requested: (call, event) => {
    call.state("waits", event.held === false ? "needed a person" : "waits for a person", "call refused");
    call.because(`${event.policy_name}: `, sentence(event.reason));
  },
  tool_approval_granted: (call, event) => {
    call.answered = true;
    call.state("granted", `approved by ${event.by}`);
    if (event.reason) call.because(h("span", { class: "soft" }, `${event.by}: `), event.reason);
  },
  tool_approval_denied: (call, event) => {
    call.answered = true;
    call.state("deny", `denied by ${event.by}`, "call refused");
    if (event.reason) call.because(h("span", { class: "soft" }, `${event.by}: `), event.reason);
  },
  tool_approval_expired: (call, event) => {
    call.answered = true;
    call.state("expired", "nobody answered", "call refused");
    if (event.reason) call.because(event.reason);
  },
};

const line = (who, words, kind) => ({ kind, element: h("p", { class: "plain" }, h("span", { class: "who" }, who), " ", words) });
const quiet = (words) => ({ element: h("p", { class: "quiet-line" }, words) });
const banner = (words, look, kind = "refused") => ({ kind, element: h("p", { class: `banner ${look}` }, words) });

const TELLERS = {
  run_started: (event) => quiet(`The run starts under ${event.metadata?.policy ?? "no policy"}${event.model ? `, ${event.model}` : ""}`),
  message_sent: (event) => line(event.role === "user" || !event.role ? "You" : event.role, content(event.content), "message"),
  message_received: (event) => line(event.role === "assistant" || !event.role ? "Agent" : event.role, content(event.content), "message"),
  token_usage_updated: (event) => {
    const cost = event.cost_usd ? `, ${usd(event.cost_usd)}` : "";
    const words = `${number(event.input_tokens ?? 0)} tokens in, ${number(event.output_tokens ?? 0)} out${cost}`;
    return quiet(event.scope === "cumulative" ? `${words} so far` : `+ ${words}`);
  },
  policy_violation: (event) => banner(sentence(`${event.policy}/${event.rule}: ${event.message} (${event.enforcement})`), event.action === "warn" ? "" : "bad"),
  budget_warning: (event) => banner(`${limitName(event.limit)}: ${number(event.used)} of ${number(event.max)} used`, ""),
  error_occurred: (event) => banner(`${event.code} ${event.message}`, "bad"),
  error_recovered: (event) => quiet(`recovered: ${event.code} ${event.message}`),
  run_completed: (event) => banner(`Completed. ${text(event.output ?? "")}`, "good", "message"),
  run_failed: (event) => banner(`Failed: ${event.error?.message ?? text(event.error ?? "")}`, "bad"),
  run_cancelled: (event) => banner(`Ended: ${event.reason}${event.by ? ` (by ${event.by})` : ""}`, "bad"),
};
