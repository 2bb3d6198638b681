// Figures and times as people read them.

const NUMBER = new Intl.NumberFormat("en");
const TIME = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const DAY = new Intl.DateTimeFormat("en-GB", { weekday: "long", day: "numeric", month: "long", year: "numeric" });
const MOMENT = { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" };

export const number = (value) => NUMBER.format(value);

export const clock = (at) => (at ? TIME.format(new Date(at)) : "");

export const day = (at) => (at ? DAY.format(new Date(at)) : "");

/** The date and the time; the year where it is another one. */
export function moment(at) {
  if (!at) return "";
  const date = new Date(at);
  const other = date.getFullYear() !== new Date().getFullYear() && { year: "numeric" };
  return new Intl.DateTimeFormat("en-GB", { ...MOMENT, ...other }).format(date);
}

export const capitalized = (text) => `${text[0].toUpperCase()}${text.slice(1)}`;

export const counted = (count, noun) => `${number(count)} ${noun}${count === 1 ? "" : "s"}`;

export function duration(ms) {
  const s = ms / 1000;
  if (s < 9.95) return `${s.toFixed(1)} s`;
  if (s < 60) return `${Math.floor(s)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${Math.floor(s % 60)} s`;
  return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
}

export function usd(value) {
  if (value >= 1 || !value) return `$${value.toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 })}`;
  const places = value >= 0.001 ? 4 : 1 - Math.floor(Math.log10(value));
  const [whole, part] = value.toFixed(places).split(".");
  return `$${whole}.${part.replace(/0+$/, "").padEnd(2, "0")}`;
}

/** An amount of a limit, in its unit. */
export function amount(value, unit) {
  if (unit === "USD") return usd(value);
  if (unit.startsWith("ms")) return duration(value);
  return number(value);
}

export const short = (id) => (id.length > 16 ? id.slice(0, 12) : id);

/** The beginning of a prompt, which may be pages long; the timeline has all of it. */
export const beginning = (prompt) => (prompt.length > 300 ? `${prompt.slice(0, 300)}…` : prompt);

/** JSON as values. A whole number that JavaScript would round becomes a BigInt; in older browsers, a text that says it is rounded. */
export function parsed(json) {
  return JSON.parse(json, (key, value, { source } = {}) => {
    if (!Number.isInteger(value) || Number.isSafeInteger(value)) return value;
    return /^-?\d+$/.test(source) ? BigInt(source) : `${value} (rounded by this browser)`;
  });
}

/** A value as JSON. */
export function json(value, indent) {
  return JSON.stringify(value, (key, each) => (typeof each === "bigint" ? JSON.rawJSON(`${each}`) : each), indent) ?? "";
}

/** A value as text: what is text as it is, anything else as JSON. */
export function text(value) {
  return typeof value === "string" ? value : json(value, 2);
}

/** A value on one line. */
export function oneLine(value) {
  return typeof value === "string" ? value : json(value);
}
