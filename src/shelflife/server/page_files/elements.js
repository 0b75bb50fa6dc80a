// Making elements. Text is always text: nothing that a server says is read as markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return element;
}

export const make = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);

export const draw = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

export const code = (value) => make("code", {}, typeof value === "string" ? value : JSON.stringify(value));

// Where a heading says the same, the caption is only read aloud.
export function table(caption, heads, rows, none, { isHeaded = false, wraps = false } = {}) {
  if (!rows.length) return make("p", { class: "none" }, none);
  const isNumber = (column) => rows.every((one) => one.children[column].classList.contains("number"));
  const head = make("tr", {}, heads.map((text, column) => make("th", { scope: "col", class: isNumber(column) ? "number" : null }, text)));
  if (wraps) for (const one of rows) heads.forEach((text, column) => one.children[column].setAttribute("data-head", text));
  return make("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": caption },
    make("table", { class: wraps ? "wraps" : null }, make("caption", { class: isHeaded ? "heard" : null }, caption), make("thead", {}, head), make("tbody", {}, rows)));
}

// The first cell heads its row; numbers are aligned.
export const row = (first, ...cells) => make("tr", {},
  make("th", { scope: "row" }, first),
  cells.map((cell) => make("td", { class: typeof cell === "number" ? "number" : null },
    typeof cell === "number" ? cell.toLocaleString("en") : cell)));

export function when(change) {
  const by = change.by ? ` by ${change.by}` : "";
  if (!change.at) return `change ${change.number}${by}`;
  const at = new Date(change.at * 1000);
  return make("span", {}, make("time", { datetime: at.toISOString(), title: at.toISOString() }, ago(at)), by);
}

// Say anew how long ago things were.
export function retime(within) {
  for (const time of within.querySelectorAll("time")) {
    const now = ago(new Date(time.dateTime));
    if (time.textContent !== now) time.textContent = now;
  }
}

function ago(at) {
  const seconds = (Date.now() - at) / 1000;
  for (const [unit, length] of [["day", 86400], ["hour", 3600], ["minute", 60]]) {
    const count = Math.floor(seconds / length);
    if (count) return `${count} ${unit}${count > 1 ? "s" : ""} ago`;
  }
  return "just now";
}
