// Elements and words. Texts of models, settings and files are only ever set as text, never as markup.

export function node(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key in made && key !== "list") made[key] = value;
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(key, value);
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== ""));
  return made;
}

export function drawn(name, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

// A path whose lines may end behind a slash.
export function path(text) {
  return text.split(/(?<=\/)/).flatMap((part, at) => (at ? [node("wbr"), part] : [part]));
}

export function short(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(4)));
  if (typeof value === "string") return value;
  return JSON.stringify(value);
}

export function inTime(seconds) {
  for (const [name, length] of [["days", 86400], ["h", 3600], ["min", 60]]) if (seconds >= 2 * length) return `${Math.round(seconds / length)} ${name}`;
  return `${Math.max(0, Math.round(seconds))} s`;
}

export function inWords(row) {
  const words = row.state === "half" ? "half done" : row.state;
  return row.detail ? `${words}, ${row.detail}` : words;
}

// j and k mark the next row of a table, or the one before it. Returns its number.
export function stepped(rows, here, name) {
  rows[here]?.classList.remove("here");
  const next = Math.max(0, Math.min(rows.length - 1, here + (name === "j" ? 1 : -1)));
  rows[next]?.classList.add("here");
  rows[next]?.scrollIntoView({ block: "nearest" });
  return next;
}
