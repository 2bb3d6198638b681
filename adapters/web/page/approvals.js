// The inbox: every call that waits, over all sessions, oldest first.

import { get, getExact, post } from "./api.js";
import { callShown } from "./call.js";
import { Keyed, fill, h, sentence, toast } from "./dom.js";
import { beginning, capitalized, duration, moment } from "./format.js";
import { terms } from "./parts.js";

const SECOND_TAP_MS = 600;
const pathOf = (id) => `/api/approvals/${encodeURIComponent(id)}`;

export class Approvals {
  title = "Approvals";

  /** `id`: the approval that a link leads to. */
  constructor(me, id) {
    this.id = id;
    this.list = h("div", { class: "approvals" });
    this.cards = new Keyed(this.list, (each) => each.approval_id, (each) => new Card(each, me));
    this.count = h("span", { class: "soft", role: "status" });
    this.nothing = h("p", { class: "nothing card" }, "Nothing waits for a person.");
    this.gone = h("p", { class: "banner", role: "status", hidden: true });
    this.element = h(
      "div",
      {},
      h("div", { class: "head" }, h("h1", {}, "Approvals"), this.count),
      this.gone,
      this.list,
      this.nothing,
    );
    this.timer = setInterval(() => this.tick(), 1000);
  }

  async refresh() {
    const turn = (this.turn = {});
    const found = await this.waiting();
    if (turn !== this.turn) return;
    const held = this.list.contains(document.activeElement) ? this.index(document.activeElement) : -1;
    reportOthers(showCards(this.cards, found.approvals).filter((card) => card.approval.approval_id !== this.id));
    if (held >= 0 && document.activeElement === document.body) this.focus(Math.min(held, this.list.children.length - 1));
    fill(this.count, found.total > found.approvals.length ? `${found.approvals.length} of ${found.total} waiting` : `${found.total} waiting`);
    this.nothing.hidden = found.total > 0;
    if (this.id) await this.lead();
  }

  /** What waits, up to a page of it, and what the link leads to, also if it is not on that page. */
  async waiting() {
    const found = await getExact("/api/approvals");
    const all = found.total <= found.approvals.length;
    if (!this.id || all || found.approvals.some((each) => each.approval_id === this.id)) return found;
    const own = await getExact(pathOf(this.id)).catch(() => null);
    if (own?.state === "requested" && !own.ran) found.approvals.push(own);
    return found;
  }

  /** Shows the card that the link names, or what became of its approval. */
  async lead() {
    const card = this.cards.shown.get(this.id);
    if (card && !this.led) {
      this.led = true;
      card.element.scrollIntoView({ block: "start" });
      card.element.focus({ preventScroll: true });
    }
    if (card) return;
    try {
      fill(this.gone, ...(await outcome(this.id)));
    } catch (error) {
      fill(this.gone, error.status === 404 ? "This request isn't in the store." : sentence(error.message));
    }
    this.gone.hidden = false;
  }

  tick() {
    for (const card of this.cards.shown.values()) card.tick();
  }

  index(element) {
    return [...this.list.children].indexOf(element.closest(".approval"));
  }

  focus(index) {
    (this.list.children[index] ?? document.getElementById("main")).focus();
  }

  /** Handles a key; returns whether it has a meaning in this view. */
  key(key) {
    const now = this.index(document.activeElement);
    const last = this.list.children.length - 1;
    if (key === "j") this.focus(Math.min(now + 1, last));
    else if (key === "k") this.focus(Math.max(now - 1, 0));
    else return focusAnswer(this.cards, key, Math.max(now, 0));
    return true;
  }

  close() {
    clearInterval(this.timer);
  }
}

/** Returns the cards that are gone. For a moment the others take no taps and no keys: what is meant for a card that is gone must not answer the one that moved there. */
export function showCards(cards, approvals) {
  const before = [...cards.parent.children];
  const gone = cards.show(approvals);
  if (before.length === 0 || before.some((element, n) => element !== cards.parent.children[n])) {
    cards.parent.classList.add("moved");
    clearTimeout(cards.moving);
    cards.moving = setTimeout(() => cards.parent.classList.remove("moved"), SECOND_TAP_MS);
  }
  return gone;
}

/** Moves to where the key's answer is given on a card; returns whether the key has a meaning there. */
export function focusAnswer(cards, key, index) {
  const known = key === "a" || key === "d";
  if (known && !cards.parent.classList.contains("moved")) cards.parent.children[index]?.querySelector(`[data-key="${key}"]`)?.focus();
  return known;
}

/** What became of an approval, and who answered it. */
async function outcome(id) {
  const { call, state, outcome: word, answered_by: by } = await get(pathOf(id));
  if (state === "withdrawn" && by) return [h("code", {}, call.name), ` was withdrawn before the run took up ${by}'s answer.`];
  const what = { requested: "is not in this list", expired: word }[state] ?? `was ${word}`;
  return [h("code", {}, call.name), ` ${what}${by ? ` by ${by}` : ""}.`];
}

/** Reports what became of cards that are gone, unless this page answered them. */
export async function reportOthers(cards) {
  for (const { approval, sent } of cards) {
    if (sent) continue;
    try {
      toast(await outcome(approval.approval_id));
    } catch {
      // it was pruned, or the server does not answer
    }
  }
}

/** One waiting call, with the answer. */
export class Card {
  constructor(approval, me) {
    Object.assign(this, { approval, me });
    const id = `approval-${approval.approval_id}`;
    this.expires = h("span", { class: "expires" });
    this.words = h("textarea", { rows: "1", maxlength: "10000", "data-key": "d", on: { keydown: (event) => this.sendByKey(event) } });
    this.approve = h("button", { type: "button", class: "main", "data-key": "a", on: { click: () => this.answer("grant", "once") } }, "Approve");
    this.deny = h("button", { type: "button", class: "danger", on: { click: () => this.answer("deny") } }, "Deny");
    const wider = approval.scopes
      .filter((scope) => scope !== "once")
      .map((scope) => h("button", { type: "button", on: { click: () => this.answer("grant", scope) } }, `Approve for the rest of the ${scope}`));
    const widest = approval.scopes.at(-1);
    if (approval.like) {
      const words = ["Approve ", ...sentence(approval.like.about), ` for this ${widest}`];
      wider.unshift(h("button", { type: "button", on: { click: () => this.answer("grant", widest, true) } }, words));
    }
    this.form = h(
      "div",
      { class: "answer" },
      h("label", {}, "Note (recorded; the model reads it if you deny)", this.words),
      h("div", { class: "row" }, this.deny, this.approve),
      wider.length > 0 && h("div", { class: "row wider", role: "group", "aria-label": "Also approve later calls" }, wider),
    );
    this.foot = h("div");
    this.pill = h("span", { class: "pill waits" });
    this.status = h("p", { class: "banner", hidden: true, role: "status" });
    this.element = h(
      "article",
      { class: "card approval fresh", tabindex: "-1", "aria-labelledby": id },
      h("header", {}, h("h2", { id }, h("code", {}, approval.call.name)), this.pill, this.expires),
      h("p", {}, why(approval)),
      callShown(approval.shown, approval.call.input),
      h("dl", { class: "facts" }, about(approval)),
      this.foot,
      this.status,
    );
    this.tick();
  }

  show(approval) {
    this.approval = approval;
    const state = approval.lost ? "lost" : approval.held ? "waiting" : "for a later run";
    if (state === this.state) return;
    this.state = state;
    this.pill.classList.toggle("lost", approval.lost);
    fill(this.pill, state);
    const why = unanswerable(approval, this.me);
    if (why) return this.leave(() => this.over && fill(this.foot, h("p", { class: "soft" }, why)));
    this.setOpen(true);
    if (!this.foot.contains(this.form)) fill(this.foot, this.form);
  }

  close() {
    this.leave(() => this.element.remove());
  }

  /** Takes no answer any more, and does that; while somebody types an answer here, once they stop, as the rest of it is for no other call. */
  leave(then) {
    this.setOpen(false);
    if (document.activeElement === this.words && !this.sent) this.words.addEventListener("blur", then, { once: true });
    else then();
  }

  setOpen(open) {
    this.over = !open;
    for (const button of this.form.querySelectorAll("button")) button.disabled = this.over;
  }

  tick() {
    const { lost, expires_at: at } = this.approval;
    const left = at ? new Date(at) - Date.now() : 0;
    fill(this.expires, at && !lost ? (left > 0 ? `expires in ${duration(left)}` : "expires now") : "");
  }

  sendByKey(event) {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.answer("deny");
  }

  async answer(answer, scope, like = false) {
    const words = this.words.value.trim() || undefined;
    const { approval_id: id, input_digest: digest } = this.approval;
    if (this.sent || this.over) return;
    this.sent = true;
    this.report("Sending…");
    try {
      const { outcome: done } = await post(`${pathOf(id)}/answer`, {
        answer,
        input_digest: digest,
        reason: words,
        ...(answer === "deny" ? { tell_model: words } : {}),
        ...(scope && scope !== "once" ? { scope, like } : {}),
      });
      const said = capitalized(done);
      this.report(said, answer === "grant" ? "good" : "bad");
      toast(`${said}: ${this.approval.call.name}`);
    } catch (error) {
      this.sent = error.status === 409;
      this.report(error.message, "bad");
      const gone = !this.element.isConnected && error.status !== 401;
      if (gone) toast(error.message, { bad: true }); // another answer was first
    }
  }

  report(text, tone = "") {
    fill(this.status, sentence(text));
    this.status.className = `banner ${tone}`;
    this.status.hidden = false;
  }
}

/** Why a call cannot be answered here; empty if it can. */
function unanswerable(approval, me) {
  if (approval.asks_itself) return "It is answered where it is asked: in the terminal of the agent.";
  if (approval.lost) return "Nobody can answer, as nobody goes on with the run: cancel it.";
  return me.roles.includes("answer") ? "" : "Your token does not allow answers.";
}

/** Which rule asks and what for; a rule that its message names is not named twice. */
function why(approval) {
  const messages = approval.violations.map((each) => each.message);
  const said = messages.join("; ");
  const rules = approval.violations.map((each) => each.rule).filter((rule) => !said.includes(rule)).join(", ");
  const by = [approval.policy_name || "a policy", rules].filter(Boolean).join(": ");
  const own = said.includes(approval.reason) ? [] : [approval.reason];
  return [h("strong", {}, `Asked by ${by}.`), " ", sentence([...messages, ...own].filter(Boolean).join("; "))];
}

function about(approval) {
  const run = h("a", { href: `#/run/${encodeURIComponent(approval.run_id)}` }, beginning(approval.prompt) || approval.run_id);
  return terms([
    ["Run", run],
    ["Agent", approval.provider],
    ["Tenant", approval.tenant],
    ["Started by", approval.user],
    ["Act", approval.shown.acts.filter((act) => act !== approval.call.name).join(", ")],
    ["Answered by", (approval.approvers ?? []).join(", ")],
    ["Not by", approval.started_by === "" ? "anyone, as the run's context has no user" : approval.started_by],
    ["Asked", moment(approval.requested_at)],
  ]);
}
