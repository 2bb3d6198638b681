// The list of runs: live, searched, filtered.

import { get } from "./api.js";
import { Keyed, fill, h } from "./dom.js";
import { amount, beginning, capitalized, counted, duration, moment, number, short, usd } from "./format.js";
import { Bar, chips, labelsOf, showStatus } from "./parts.js";

const PAGE = 50;
const MOST_RUNS = 500;

export class Runs {
  title = "Runs";

  /** `changed`: called when other runs are to be shown. */
  constructor(me, changed) {
    this.changed = changed;
    this.limit = PAGE;
    this.status = "";
    this.search = h("input", {
      type: "search",
      placeholder: "Search: prompt, id, agent, tenant",
      "aria-label": "Search runs",
      id: "search",
      on: { input: () => this.later() },
    });
    const choices = [["", "All"], ...me.statuses.map((status) => [status, capitalized(status)])];
    const states = chips("status", "State", choices, (status) => {
      this.status = status;
      this.reset();
    });
    this.budgets = h("section", { class: "limits", "aria-label": "Shared budgets", hidden: true });
    this.bars = new Keyed(this.budgets, (each) => each.id, (each) => new Bar(each));
    this.list = h("ul", { class: "list runs" });
    this.rows = new Keyed(this.list, (run) => run.run_id, () => new Row());
    this.count = h("span", { class: "soft", role: "status" });
    this.nothing = h("p", { class: "nothing" });
    this.more = h("div", { class: "more", hidden: true }, h("button", { type: "button", on: { click: () => this.next() } }, "Show earlier runs"));
    this.element = h(
      "div",
      {},
      h("div", { class: "head" }, h("h1", {}, "Runs"), this.count),
      this.budgets,
      h("div", { class: "filters", role: "search" }, this.search, states),
      h("div", { class: "card" }, this.list, this.nothing),
      this.more,
    );
  }

  /** Goes back to the first page at once, and asks the server when no more letters come. */
  later() {
    this.limit = PAGE;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.changed(), 160);
  }

  reset() {
    this.limit = PAGE;
    this.changed();
  }

  next() {
    this.limit += PAGE;
    this.changed();
  }

  async refresh() {
    const turn = (this.turn = {});
    const words = this.search.value.trim();
    const query = new URLSearchParams({ limit: this.limit });
    if (this.status) query.set("status", this.status);
    if (words) query.set("q", words);
    const [found, { budgets }] = await Promise.all([get(`/api/runs?${query}`), get("/api/budgets")]);
    if (turn !== this.turn) return;
    this.bars.show(budgets.map(asLimit));
    this.budgets.hidden = budgets.length === 0;
    this.rows.show(found.runs);
    this.more.hidden = found.next === null || this.limit >= MOST_RUNS;
    const waiting = found.runs.filter((run) => run.waiting).length;
    const running = found.runs.filter((run) => run.status === "running" && !run.waiting).length;
    const parts = [[running, "running"], [waiting, "waiting"]].filter(([count]) => count);
    fill(this.count, found.next ? "the latest " : "", counted(found.runs.length, "run"), parts.map(([count, name]) => `, ${count} ${name}`));
    fill(this.nothing, this.status || words ? "No runs match." : "No runs yet. New runs appear here.");
    this.nothing.hidden = found.runs.length > 0;
  }

  close() {
    clearTimeout(this.timer);
  }
}

/** A budget that runs share, as a limit is shown. */
function asLimit(budget) {
  const { unit, in_use: used, ahead } = budget;
  const id = JSON.stringify([budget.budget, budget.key, budget.counts, budget.window]);
  const reserved = ahead ? `${amount(ahead, unit)} reserved` : "";
  const resets = budget.resets_at ? `resets ${moment(budget.resets_at)}` : "";
  const more = [`${amount(budget.left, unit)} left`, reserved, resets].filter(Boolean).join(" · ");
  const title = [budget.budget, budget.key].filter(Boolean).join(" ");
  return { ...budget, id, title, used, policy: more, scope: "run", exceeded: budget.left === 0 };
}

/** A run's agent, id, tenant and labels, on one line. */
function facts(run) {
  return [run.provider, short(run.run_id), run.tenant, ...labelsOf(run)].filter(Boolean).join(" · ");
}

class Row {
  constructor() {
    this.pill = h("span", { class: "pill" });
    this.prompt = h("div", { class: "prompt" });
    this.meta = h("div", { class: "meta" });
    this.figures = h("div", { class: "figures" });
    this.mark = h("span", { class: "mark", hidden: true });
    const what = h("div", { class: "what" }, this.prompt, h("div", { class: "row" }, this.mark, this.meta));
    this.link = h("a", { class: "run" }, h("div", {}, this.pill), what, this.figures);
    this.element = h("li", {}, this.link);
  }

  show(run) {
    this.link.setAttribute("href", `#/run/${encodeURIComponent(run.run_id)}`);
    showStatus(this.pill, run);
    fill(this.prompt, beginning(run.prompt) || "(no prompt)");
    fill(this.meta, facts(run));
    this.mark.hidden = !run.violations;
    fill(this.mark, counted(run.violations, "violation"));
    const tokens = run.usage.input_tokens + run.usage.output_tokens;
    const used = tokens ? `${number(tokens)} tokens` : null;
    const cost = run.usage.cost_usd ? usd(run.usage.cost_usd) : null;
    const took = run.duration_ms === null ? null : duration(run.duration_ms);
    const second = [cost ?? used, took].filter(Boolean).join(" · ");
    fill(this.figures, h("div", {}, moment(run.created_at)), second && h("div", {}, second));
  }
}
