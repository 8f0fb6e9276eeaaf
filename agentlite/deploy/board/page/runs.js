// The table of stages: sorted, filtered, and with the settings and figures in which they differ.
import { board, go, named, place, setting } from "./board.js";
import { inTime, inWords, node, path, short, stepped } from "./dom.js";

const SHOWN = 100;  // rows: more take longer than a tenth of a second to lay out
const MOST_COLUMNS = 14;
const LONG = 24;  // characters: a longer text goes on in another line
let here = 0;
let most = SHOWN;

function matches(row, text) {
  return text.toLowerCase().split(/\s+/).every((word) => {
    const [key, wanted] = word.split("=");
    if (wanted !== undefined && key) return short(setting(row, key) ?? row.figures[key]).toLowerCase().includes(wanted);
    return `${row.id} ${row.command} ${inWords(row)} ${row.figure}`.toLowerCase().includes(word);
  });
}

export function kept(words) {
  const [text, command, state] = ["text", "command", "state"].map((name) => words.get(name) ?? "");
  return [...board.rows.values()].filter((row) => (!command || row.command === command) && (!state || row.state === state) && (!text || matches(row, text)));
}

// A setting differs where two stages of one command have other values. Each command's defaults count.
function differing(rows) {
  const values = new Map();
  const keys = new Set(rows.flatMap((row) => Object.keys(row.settings)));
  for (const row of rows) {
    for (const key of keys) {
      const value = setting(row, key);
      if (value === undefined) continue;
      const name = `${row.command} ${key}`;
      if (!values.has(name)) values.set(name, new Set());
      if (values.get(name).size < 2) values.get(name).add(JSON.stringify(value));
    }
  }
  return [...keys].filter((key) => [...values].some(([name, set]) => name.endsWith(` ${key}`) && set.size > 1));
}

function columns(rows, words) {
  const settings = differing(rows).slice(0, MOST_COLUMNS);
  const figures = [...new Set(rows.flatMap((row) => Object.keys(row.figures)))].slice(0, words.get("figures") === "all" ? 60 : 8);
  const value = (row, column) => column.value(row);
  return [
    { key: "id", name: "stage", value: (row) => row.id },
    { key: "state", name: "state", value: inWords },
    { key: "left", name: "left", value: (row) => row.left ?? null, shown: (row) => (row.left === undefined || row.left === null ? "" : inTime(row.left)), number: true },
    { key: "figure", name: "result", value: (row) => row.figure },
    ...settings.map((key) => ({ key: `s:${key}`, name: key, value: (row) => setting(row, key) ?? null, usual: (row) => !(key in row.settings) })),
    ...figures.map((key) => ({ key: `f:${key}`, name: key, value: (row) => row.figures[key] ?? null, number: true })),
    { key: "seconds", name: "took", value: (row) => row.seconds ?? null, shown: (row) => (row.seconds === undefined ? "" : inTime(row.seconds)), number: true },
    { key: "age", name: "age", value: (row) => -(row.written ?? 0), shown: (row) => inTime(Date.now() / 1000 - (row.written ?? 0)), number: true },
  ].map((column) => ({ ...column, sort: (row) => value(row, column) }));
}

function compared(one, other) {
  if (one === other) return 0;
  if (one === null || one === "") return 1;  // what has no value comes last
  if (other === null || other === "") return -1;
  return typeof one === "number" && typeof other === "number" ? one - other : short(one).localeCompare(short(other), "en", { numeric: true });
}

function ordered(rows, all, words) {
  const sort = words.get("sort") ?? "";
  const column = all.find((one) => one.key === sort.replace(/^-/, ""));
  if (!column) return rows.sort((one, other) => (other.state === "running") - (one.state === "running") || (other.written ?? 0) - (one.written ?? 0));
  const sign = sort.startsWith("-") ? -1 : 1;
  return rows.map((row) => [column.sort(row), row]).sort(([one], [other]) => {
    const missing = one === null || one === "" || other === null || other === "";
    return compared(one, other) * (missing ? 1 : sign);
  }).map(([, row]) => row);
}

export function selected(words) {
  return words.getAll("id");
}

function choose(id) {
  const { words } = place();
  const chosen = new Set(selected(words));
  if (!chosen.delete(id)) chosen.add(id);
  words.delete("id");
  for (const one of chosen) words.append("id", one);
  go("runs", words, { replace: true });
  update();
}

function filtered(name, value) {
  const { words } = place();
  words.set(name, value);
  go("runs", words, { replace: true });
  most = SHOWN;
  here = 0;
  update();
}

function select(label, name, options, words) {
  const made = node("select", { onchange: () => filtered(name, made.value) }, ["", ...options].map((value) => node("option", { value, textContent: value || "all" })));
  made.value = words.get(name) ?? "";
  return node("label", {}, label, made);
}

let table = null;
let count = null;
let actions = null;

export function show(main) {
  const { words } = place();
  const text = node("input", { type: "search", id: "filter", value: words.get("text") ?? "", placeholder: "sft lora_r=64", oninput: () => filtered("text", text.value) });
  const commands = Object.keys(board.facts.stages);
  table = node("div", { className: "wide" });
  count = node("span", { className: "quiet", role: "status" });
  actions = node("span", { className: "tools" });
  const figures = node("input", { type: "checkbox", checked: words.get("figures") === "all", onchange: () => filtered("figures", figures.checked ? "all" : "") });
  main.replaceChildren(
    node("div", { className: "tools" },
      node("label", {}, "Filter", text), select("Stage", "command", commands, words),
      select("State", "state", ["running", "done", "half", "failed", "broken"], words),
      node("label", {}, figures, "all figures"), actions, count),
    table);
  update();
}

export function update() {
  const { words } = place();
  const rows = kept(words);
  const all = columns(rows, words);
  const sorted = ordered(rows, all, words);
  const chosen = selected(words);
  const sort = words.get("sort") ?? "";
  const head = all.map((column) => {
    const next = sort === column.key ? `-${column.key}` : column.key;
    const mark = sort === column.key ? " ↑" : sort === `-${column.key}` ? " ↓" : "";
    const button = node("button", { type: "button", textContent: column.name + mark, onclick: () => filtered("sort", next) });
    return node("th", { scope: "col", className: column.number ? "number" : "", "aria-sort": mark === " ↑" ? "ascending" : mark ? "descending" : null }, button);
  });
  here = Math.min(here, Math.max(0, sorted.length - 1));
  const body = sorted.slice(0, most).map((row, index) => {
    const box = node("input", { type: "checkbox", checked: chosen.includes(row.id), "aria-label": `select ${row.id}`, onchange: () => choose(row.id) });
    const cells = all.map((column) => {
      if (column.key === "id") return node("th", { scope: "row" }, node("a", { href: `#curves?${new URLSearchParams({ id: row.id })}`, title: row.id }, path(named(row.id))));
      const value = column.shown ? column.shown(row) : short(column.value(row));
      const state = column.key === "state" ? `state ${row.state}` : "";
      const kind = column.number || typeof column.value(row) === "number" ? "number" : value.length > LONG ? "text" : "";
      const name = [state, kind, column.usual?.(row) ? "usual" : ""].join(" ").trim();
      return node("td", { className: name, textContent: value.length > 160 ? `${value.slice(0, 160)}…` : value });
    });
    return node("tr", { className: index === here ? "here" : "", "data-id": row.id }, node("td", {}, box), cells);
  });
  const left = sorted.length - body.length;
  const focused = document.activeElement?.getAttribute?.("aria-label");
  const none = node("p", { className: "quiet" }, board.waiting ? "The workspaces are being read." : ["Nothing was run here yet. Begin with prep under ", node("a", { href: "#start?stage=prep", textContent: "Start" }), ", or in a terminal: ", node("code", { textContent: "agentlite prep data.jsonl" })]);
  table.replaceChildren(board.rows.size ? "" : none,
    node("table", { hidden: !board.rows.size }, node("thead", {}, node("tr", {}, node("th", { scope: "col", "aria-label": "selected" }), head)), node("tbody", {}, body)),
    left > 0 ? node("button", { type: "button", textContent: `Show ${Math.min(left, SHOWN)} more of ${left}`, onclick: () => { most += SHOWN; update(); } }) : "");
  if (focused?.startsWith("select ")) table.querySelector(`[aria-label="${CSS.escape(focused)}"]`)?.focus();
  count.textContent = `${sorted.length} of ${board.rows.size} stages`;
  const link = new URLSearchParams(chosen.map((id) => ["id", id]));
  actions.replaceChildren(...(chosen.length ? [node("a", { href: `#curves?${link}`, textContent: `Curves of ${chosen.length} selected` }), node("button", { type: "button", textContent: "Clear", onclick: () => { words.delete("id"); go("runs", words, { replace: true }); update(); } })] : []));
}

export function key(name) {
  const rows = [...table.querySelectorAll("tbody tr")];
  if (name === "j" || name === "k") here = stepped(rows, here, name);
  else if (name === "x" && rows[here]) choose(rows[here].dataset.id);
  else if (name === "Enter" && rows[here]) go("curves", new URLSearchParams({ id: rows[here].dataset.id }));
  else return false;
  return true;
}
