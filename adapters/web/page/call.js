// A call made readable: commands with their parts, edits as lines, the other arguments by name, and the whole input.

import { h, sentence } from "./dom.js";
import { counted, json, text } from "./format.js";

const LONG = 4000;

export function callShown(shown, input) {
  return [
    ...shown.commands.map(command),
    ...shown.edits.map(edit),
    rest(shown.rest),
    Object.keys(input).length > 0 &&
      h("details", {}, h("summary", {}, "The whole input"), h("pre", { class: "block" }, json(input, 2))),
  ];
}

function command(found) {
  const words = (part) => `${part.name === "redirect"} ${part.argv.join(" ")}`;
  const parts = found.parts.filter((part, n) => part.name !== "dynamic" && found.parts.findIndex((each) => words(each) === words(part)) === n);
  const several = found.parts.length > 1 || found.dynamic || found.parts.some((part) => !part.exact);
  return h(
    "section",
    { class: "command", "aria-label": "Command line" },
    bounded(found.line),
    several &&
      h("ul", { class: "parts", "aria-label": "What it runs" }, parts.map(partOf)),
    found.dynamic && h("p", { class: "banner" }, "proctor can't see everything this line runs: ", sentence(found.dynamic)),
  );
}

function partOf(part) {
  const words = part.name === "redirect" ? [h("span", { class: "soft" }, "writes")] : [];
  return h("li", {}, ...words, ...part.argv.map((word) => h("span", { class: "word" }, word === "" ? "''" : word)));
}

const MARKS = { "+": "add", "-": "del", "@": "at" };
const HEARD = { "+": "added ", "-": "removed " };

function edit(found) {
  const lines = found.lines.map((line) =>
    h(
      "div",
      { class: MARKS[line.mark] ?? "" },
      h("span", { "aria-hidden": "true" }, line.mark === "-" ? "−" : line.mark),
      h("code", {}, HEARD[line.mark] && h("span", { class: "unseen" }, HEARD[line.mark]), line.text === "" ? " " : line.text),
    ),
  );
  const cut = found.cut ? h("div", { class: "at" }, h("span"), `and ${found.cut} lines more, in the whole input`) : null;
  return h(
    "figure",
    { class: "diff" },
    h("figcaption", {}, found.path ?? "a file"),
    h("div", { class: "lines", tabindex: "0", role: "group", "aria-label": `Changes of ${found.path ?? "a file"}` }, lines, cut),
    rest(found.rest),
  );
}

function rest(values) {
  const names = Object.keys(values);
  if (names.length === 0) return null;
  return h(
    "dl",
    { class: "arguments" },
    names.map((name) => [h("dt", {}, name), h("dd", {}, bounded(text(values[name])))]),
  );
}

/** A text; a long one scrolls, with its length above, so that the buttons stay within reach. */
function bounded(whole) {
  if (whole.length <= LONG) return h("pre", {}, whole);
  const length = counted(whole.length, "character");
  return [h("p", { class: "soft" }, length), h("pre", { class: "block", tabindex: "0", role: "group", "aria-label": length }, whole)];
}
