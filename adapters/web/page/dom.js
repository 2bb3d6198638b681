// Elements made of text. Nothing here, or anywhere on the page, turns text into markup.

const HIDDEN = /(?!(?<=\p{Extended_Pictographic})\ufe0f)[\p{C}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}\u2800]/gu;
const BLANKS = /\p{Zs}/gu;

/** Text that is safe to show: characters that are invisible or reorder their neighbours become escapes, except the one that makes a symbol an emoji. */
export function visible(text) {
  return String(text)
    .replace(HIDDEN, (c) => (c === "\n" || c === "\t" ? c : escaped(c)))
    .replace(BLANKS, " ");
}

function escaped(c) {
  const code = c.codePointAt(0);
  return code < 0x100 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u{${code.toString(16)}}`;
}

/** An element. Attributes are texts; `on` has listeners, `hidden`, `disabled`, `checked`, `open` are switches. */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    } else if (typeof value === "boolean") {
      element.toggleAttribute(name, value);
    } else if (value !== null && value !== undefined) {
      element.setAttribute(name, visible(value));
    }
  }
  element.append(...nodes(children));
  return element;
}

function nodes(children) {
  return children
    .flat(Infinity)
    .filter((child) => child !== null && child !== undefined && child !== false)
    .map((child) => (child instanceof Node ? child : document.createTextNode(visible(child))));
}

/** A sentence; what is in backticks is shown as code. */
export function sentence(text) {
  return String(text ?? "")
    .split(/`([^`\n]*)`/)
    .map((part, n) => (n % 2 ? h("code", {}, part) : part));
}

/** Replaces the content of an element. */
export function fill(element, ...children) {
  element.replaceChildren(...nodes(children));
  return element;
}

/** A list that keeps the element of each item that stays, and with it the focus, open details and typed words. An item that is gone is removed, or closed if it has a way to close. */
export class Keyed {
  constructor(parent, key, make) {
    Object.assign(this, { parent, key, make, shown: new Map() });
  }

  show(items) {
    const before = this.shown;
    this.shown = new Map();
    let place = this.parent.firstElementChild;
    for (const item of items) {
      const key = this.key(item);
      const part = before.get(key) ?? this.make(item);
      before.delete(key);
      part.show(item);
      this.shown.set(key, part);
      if (part.element === place) place = place.nextElementSibling;
      else this.parent.insertBefore(part.element, place);
    }
    for (const part of before.values()) part.close ? part.close() : part.element.remove();
    return [...before.values()];
  }
}

/** Tells people who use a screen reader. */
export function announce(text) {
  document.getElementById("said").textContent = visible(text);
}

/** A short message at the foot of the page. */
export function toast(text, { bad = false } = {}) {
  const message = h("div", { class: bad ? "toast bad" : "toast" }, typeof text === "string" ? sentence(text) : text);
  document.getElementById("toasts").append(message);
  setTimeout(() => message.remove(), bad ? 8000 : 4000);
}

/** A button that closes its dialog without a choice. It does not submit: Enter in a field presses the button that does. */
export function dismiss(text) {
  return h("button", { type: "button", on: { click: (event) => event.target.closest("dialog").close() } }, text);
}

/** A dialog with a form; gives the value of the button that closed it, or null. */
export function openDialog(title, ...body) {
  const heading = h("h2", { id: "dialog-title" }, title);
  const dialog = h("dialog", { "aria-labelledby": "dialog-title" }, h("form", { method: "dialog" }, heading, ...body));
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((done) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      done(dialog.returnValue || null);
    });
  });
}
