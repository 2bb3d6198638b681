// The kill switch: a banner on every view shows what blocks starts; a dialog stops runs and blocks starts.

import { get, post } from "./api.js";
import { dismiss, fill, h, openDialog, sentence, toast } from "./dom.js";
import { capitalized, counted, moment } from "./format.js";

export class KillSwitch {
  constructor(me) {
    this.may = me.roles.includes("stop");
    this.banner = document.getElementById("banner");
    this.button = document.getElementById("stop");
    this.button.hidden = !this.may;
    this.button.onclick = () => this.stop();
    this.shown = "";
  }

  async refresh() {
    const { blocks } = await get("/api/switch");
    const now = JSON.stringify(blocks);
    if (now === this.shown) return;
    this.shown = now;
    this.banner.hidden = blocks.length === 0;
    fill(this.banner, blocks.map((block) => this.line(block)));
  }

  line(block) {
    const words = [
      h("strong", {}, sentence(capitalized(block.effect)), " until somebody lifts it."),
      ` ${block.by}, ${moment(block.at)}${block.reason ? `: ${block.reason}` : ""}`,
    ];
    const lift = this.may && h("button", { type: "button", on: { click: () => this.lift(block) } }, "Lift");
    return h("div", { class: "row" }, h("span", {}, words), lift);
  }

  async lift(block) {
    const scope = block.scope === "all" ? { everything: true } : { [block.scope]: block.value };
    await this.send("/api/switch/lift", scope, "Runs may start again");
  }

  async stop() {
    const value = h("input", { id: "stop-value", autocomplete: "off", on: { input: () => check() } });
    const which = h("label", {}, "Which: name, id, or NAME=VALUE", value);
    const scope = h(
      "select",
      { id: "stop-scope", on: { change: () => check() } },
      [["everything", "Everything"], ["tenant", "A tenant"], ["label", "A label, NAME=VALUE"], ["session", "A session"]].map(([name, text]) =>
        h("option", { value: name }, text),
      ),
    );
    const end = h("input", { type: "checkbox", checked: true, on: { change: () => check() } });
    const typed = h("input", { id: "stop-typed", autocomplete: "off", autocapitalize: "off", on: { input: () => check() } });
    const sure = h("label", {}, "Type “everything” to stop every run", typed);
    const count = h("p", { role: "status", id: "stop-count" });
    const go = h("button", { value: "stop", class: "danger" }, "Stop");
    const block = h("input", { type: "checkbox", checked: true, on: { change: () => check() } });
    const name = () => value.value.trim();
    const check = async () => {
      const all = scope.value === "everything";
      const turn = (this.turn = {});
      which.hidden = all;
      sure.hidden = !all;
      const confirmed = all ? typed.value.trim().toLowerCase() === "everything" : name();
      go.disabled = !confirmed || !(end.checked || block.checked);
      fill(go, end.checked ? "Cancel them" : "Freeze");
      const runs = all || name() ? await affected(all ? {} : { [scope.value]: name() }) : null;
      if (turn !== this.turn) return;
      fill(count, runs === null ? "" : end.checked ? `${counted(runs, "run")} will be cancelled.` : `${counted(runs, "run")} will keep running.`);
      if (end.checked && runs !== null) fill(go, `Cancel ${counted(runs, "run")}`);
    };
    const reason = h("input", { maxlength: "2000", autocomplete: "off" });
    check();
    const chosen = await openDialog(
      "Stop runs",
      h("label", {}, "What", scope),
      which,
      count,
      h("label", { class: "row check" }, end, "Cancel what runs now"),
      h("label", { class: "row check" }, block, "Freeze starts until somebody lifts the freeze"),
      h("label", {}, "Why (recorded)", reason),
      sure,
      h("div", { class: "row end" }, dismiss("Do nothing"), go),
    );
    if (chosen !== "stop") return;
    const named = scope.value === "everything" ? { everything: true } : { [scope.value]: name() };
    const command = { ...named, reason: reason.value.trim(), end_runs: end.checked, block_starts: block.checked };
    await this.send("/api/switch", command, ({ outcomes }) => (end.checked ? ended(outcomes) : "Starts are frozen"));
  }

  async send(path, command, said) {
    try {
      const answer = await post(path, command);
      toast(typeof said === "string" ? said : said(answer));
    } catch (error) {
      toast(error.message, { bad: true });
    }
    await this.refresh();
  }
}

/** How many runs a command would cancel; null if the scope is not valid. */
async function affected(scope) {
  try {
    return (await get(`/api/switch/affected?${new URLSearchParams(scope)}`)).runs;
  } catch {
    return null;
  }
}

function ended(outcomes) {
  const count = outcomes.filter((each) => each.ended).length;
  const left = outcomes.length - count;
  return `${counted(count, "run")} cancelled${left ? `; ${counted(left, "run")} did not end in time` : ""}`;
}
