// Parts that several views use.

import { fill, h } from "./dom.js";
import { amount } from "./format.js";

/** A choice of one among pairs of a value and a text; `change` is called with the value. */
export function chips(name, label, choices, change) {
  const chip = ([value, text], n) =>
    h("label", {}, h("input", { type: "radio", name, value, checked: n === 0, on: { change: () => change(value) } }), text);
  return h("fieldset", { class: "chips" }, h("legend", { class: "unseen" }, label), choices.map(chip));
}

/** Names with their values; a name without one is left out. */
export function terms(pairs) {
  return pairs.filter(([, value]) => value).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)));
}

/** Shows a run's status in a pill. */
export function showStatus(pill, run) {
  pill.className = `pill ${run.waiting ? "waits" : run.status}`;
  fill(pill, run.waiting ? "waiting" : run.status);
}

export const labelsOf = (run) => Object.entries(run.labels).map(([name, value]) => `${name}=${value}`);

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
    const used = `${amount(limit.used, limit.unit)} of ${amount(limit.max, limit.unit)}`;
    fill(this.used, used);
    fill(this.policy, limit.policy);
    this.fill.style.setProperty("--share", Math.min(1, share));
    this.bar.className = `bar ${limit.exceeded || share > 1 ? "bad" : share >= (limit.warn_at ?? 0.8) ? "care" : ""}`;
    this.bar.setAttribute("aria-valuenow", String(limit.used));
    this.bar.setAttribute("aria-valuemax", String(limit.max));
    this.bar.setAttribute("aria-valuetext", used);
  }
}
