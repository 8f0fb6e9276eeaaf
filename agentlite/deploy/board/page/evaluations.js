// The evaluated models of all workspaces with their figures; those that are selected are set side by side.
import { ask } from "./ask.js";
import { board, go, named, place } from "./board.js";
import { node, path, short, stepped } from "./dom.js";

const SHOWN = 100;
const MOST_FIGURES = 6;
const MOST_COMPARED = 16;
let models = [];
let most = SHOWN;
let here = 0;
let parts = null;

export function show(main) {
  const { words } = place();
  const text = node("input", { type: "search", id: "filter", value: words.get("text") ?? "", placeholder: "weather sft", oninput: () => changed("text", text.value) });
  const all = node("input", { type: "checkbox", checked: words.get("figures") === "all", onchange: () => changed("figures", all.checked ? "all" : "") });
  const report = node("select", { "aria-label": "Report of a workspace", onchange: () => go("results", new URLSearchParams({ run: report.value })) },
    node("option", { value: "", textContent: "Report of…" }), board.runs.map((name) => node("option", { value: name, textContent: name })));
  parts = { state: node("span", { className: "quiet", role: "status" }), table: node("div", { className: "wide" }), compared: node("section"), paired: "", of: "" };
  main.replaceChildren(node("div", { className: "tools" }, node("label", {}, "Filter", text), node("label", {}, all, "all figures"), report, parts.state), parts.table, parts.compared);
  draw();
  return update();
}

// Reads until all evaluations are there.
export async function update() {
  const mine = parts;
  for (let waiting = 1; waiting && mine === parts;) {
    const found = await ask("evaluations");
    if (mine !== parts) return;
    ({ models, waiting } = found);
    draw(waiting);
  }
}

function changed(name, value) {
  const { words } = place();
  words.set(name, value);
  go("results", words, { replace: true });
  most = SHOWN;
  here = 0;
  draw();
}

function choose(id) {
  const { words } = place();
  const chosen = new Set(words.getAll("id"));
  if (!chosen.delete(id)) chosen.add(id);
  words.delete("id");
  for (const one of chosen) words.append("id", one);
  go("results", words, { replace: true });
  draw();
}

function names(shown, words) {
  const every = [...new Set(shown.flatMap((one) => Object.keys(one.figures)))];
  return words.get("figures") === "all" ? every : every.slice(0, MOST_FIGURES);
}

const inFigure = ([mean, low, high]) => (mean >= 0 && mean <= 1 && high <= 1
  ? [`${(100 * mean).toFixed(1)} %`, `[${(100 * low).toFixed(1)}, ${(100 * high).toFixed(1)}]`] : [short(mean), `[${short(low)}, ${short(high)}]`]);

function sortedBy(sort) {
  const [sign, key] = sort.startsWith("-") ? [-1, sort.slice(1)] : [1, sort];
  const value = (one) => (key === "id" ? one.id : key === "prompts" ? one.prompts : key === "questions" ? `${one.data} ${one.questions}` : one.figures[key]?.[0] ?? null);
  return (one, other) => {
    const [first, second] = [value(one), value(other)];
    if (first === null || second === null) return (first === null) - (second === null);  // what was not measured comes last
    return sign * (typeof first === "number" ? first - second : first.localeCompare(second, "en", { numeric: true }));
  };
}

function draw(waiting = 0) {
  const { words } = place();
  const wanted = (words.get("text") ?? "").toLowerCase().split(/\s+/);
  const kept = models.filter((one) => wanted.every((word) => `${one.id} ${one.questions}`.toLowerCase().includes(word)));
  const sort = words.get("sort") || "id";
  kept.sort(sortedBy(sort));
  const chosen = words.getAll("id");
  const figures = names(kept, words);
  const head = [["id", "evaluation"], ["questions", "questions"], ["prompts", "prompts"], ...figures.map((name) => [name, name])].map(([key, name]) => {
    const mark = sort === key ? " ↑" : sort === `-${key}` ? " ↓" : "";
    const button = node("button", { type: "button", textContent: name.replaceAll("_", " ") + mark, onclick: () => changed("sort", sort === key ? `-${key}` : key) });
    return node("th", { scope: "col", className: key === "id" || key === "questions" ? "" : "number", "aria-sort": mark === " ↑" ? "ascending" : mark ? "descending" : null }, button);
  });
  here = Math.min(here, Math.max(0, kept.length - 1));
  const rows = kept.slice(0, most).map((one, index) => {
    const box = node("input", { type: "checkbox", checked: chosen.includes(one.id), "aria-label": `select ${one.id}`, onchange: () => choose(one.id) });
    const to = one.answers ? { answers: one.id } : { run: one.run, model: one.model };
    return node("tr", { className: index === here ? "here" : "", "data-id": one.id }, node("td", {}, box), node("th", { scope: "row" }, node("a", { href: `#results?${new URLSearchParams(to)}`, title: one.id }, path(named(one.id)))),
      node("td", {}, one.data, " ", node("span", { className: "quiet", title: "the beginning of their digest: equal ones are the same questions", textContent: one.questions.slice(0, 6) })),
      node("td", { className: "number", textContent: one.prompts.toLocaleString("en") }),
      figures.map((name) => {
        const [mean, interval] = one.figures[name] ? inFigure(one.figures[name]) : ["", ""];
        return node("td", { className: "number" }, mean, " ", node("span", { className: "quiet", textContent: interval }));
      }));
  });
  const left = kept.length - rows.length;
  const focused = document.activeElement?.getAttribute?.("aria-label");
  parts.table.replaceChildren(...(models.length ? [node("table", {}, node("thead", {}, node("tr", {}, node("th", { scope: "col", "aria-label": "selected" }), head)), node("tbody", {}, rows)),
    left > 0 ? node("button", { type: "button", textContent: `Show ${Math.min(left, SHOWN)} more of ${left}`, onclick: () => { most += SHOWN; draw(); } }) : ""]
    : [node("p", { className: "quiet", textContent: waiting ? "" : "No evaluation is finished. Start one under Start: the stage is eval." })]));
  if (focused?.startsWith("select ")) parts.table.querySelector(`[aria-label="${CSS.escape(focused)}"]`)?.focus();
  const state = `${kept.length} of ${models.length} evaluations${waiting ? `, ${waiting} to read` : chosen.length === 1 ? "; select another one to compare" : chosen.length ? "" : "; select some to compare them"}`;
  if (parts.state.textContent !== state) parts.state.textContent = state;
  compare(chosen.map((id) => models.find((one) => one.id === id)).filter(Boolean).slice(0, MOST_COMPARED), words);  // in the order in which they were selected
}

function compare(chosen, words) {
  const of = JSON.stringify([chosen, words.get("figures")]);
  if (of === parts.of) return;
  parts.of = of;
  if (chosen.length < 2) {
    parts.compared.replaceChildren();
    return;
  }
  const different = new Set(chosen.map((one) => one.questions)).size > 1;
  const shortened = shortener(chosen.map((one) => one.id));
  const charts = names(chosen, words).map((name) => {
    const having = chosen.filter((one) => one.figures[name]);
    const [least, largest] = [Math.min(0, ...having.map((one) => one.figures[name][1])), Math.max(...having.map((one) => one.figures[name][2]))];
    const scale = largest <= 1 && least >= 0 ? [0, 1] : [least, largest];
    return node("figure", { className: "chart figures", "data-name": name }, node("figcaption", { textContent: name.replaceAll("_", " ") }), having.map((one) => row(one, shortened(one.id), one.figures[name], scale)));
  });
  const button = node("button", { type: "button", textContent: "Paired differences", onclick: () => differences(chosen, button) });
  parts.paired = node("div", { className: "wide" });
  parts.compared.replaceChildren(node("h2", { textContent: `${chosen.length} evaluations compared` }),
    node("p", { className: "quiet", textContent: different ? "They answered different questions: a difference may be one of the questions. Means with their 95 % intervals." : "They answered the same questions. Means with their 95 % intervals." }),
    node("div", { className: "charts" }, charts), different ? "" : node("div", { className: "tools" }, button, node("span", { className: "quiet", textContent: "question by question, as agentlite eval --compare measures them" })), parts.paired);
}

// Without the folders that all of them share.
function shortener(ids) {
  const parts = ids.map((id) => id.split("/"));
  let shared = 0;
  while (parts.every((one) => one.length > shared + 1 && one[shared] === parts[0][shared])) shared += 1;
  return (id) => id.split("/").slice(shared).join("/");
}

function row(one, name, figure, [low, high]) {
  const across = (value) => `${high > low ? (100 * (value - low)) / (high - low) : 0}%`;
  const [mean, interval] = inFigure(figure);
  const bar = node("span", { className: "bar" });
  const dot = node("span", { className: "dot" });
  bar.style.left = across(figure[1]);
  bar.style.right = `calc(100% - ${across(figure[2])})`;
  dot.style.left = across(figure[0]);
  return node("div", { className: "figure" }, node("span", { textContent: name, title: one.id }), node("span", { className: "number" }, mean, " ", node("span", { className: "quiet", textContent: interval })), node("div", { className: "scale" }, bar, dot));
}

async function differences(chosen, button) {
  const mine = parts.paired;
  button.disabled = true;
  mine.replaceChildren(node("p", { className: "quiet", role: "status", textContent: "The answers are being compared." }));
  try {
    const { command, differences: found } = await ask("compare", chosen.map((one) => ["id", one.id]));
    const rows = found.map((one) => {
      const [mean, low, high] = [one.mean, one.low, one.high].map((value) => (Math.abs(value) <= 1 ? `${value > 0 ? "+" : ""}${(100 * value).toFixed(1)}` : short(value)));
      return node("tr", {}, node("th", { scope: "row", textContent: one.metric.replaceAll("_", " ") }), node("td", { textContent: `${one.second} over ${one.first}` }),
        node("td", { className: "number" }, mean, " ", node("span", { className: "quiet", textContent: `[${low}, ${high}]` })), node("td", { className: "number", textContent: String(one.count) }), node("td", { className: "number", textContent: one.p_holm.toFixed(4) }), node("td", { className: one.beyond_noise ? "done" : "usual", textContent: one.beyond_noise ? "beyond noise" : "within noise" }));
    });
    const head = ["metric", "difference of", "mean, in points [95 %]", "n", "p (Holm)", ""].map((name, at) => node("th", { scope: "col", className: at > 1 && at < 5 ? "number" : "", textContent: name }));
    mine.replaceChildren(node("p", { className: "command" }, node("code", { textContent: command })), node("table", {}, node("thead", {}, node("tr", {}, head)), node("tbody", {}, rows)));
  } catch (error) {
    mine.replaceChildren(node("p", { className: "wrong", role: "alert", textContent: error.message }));
  }
  button.disabled = false;
}

export function key(name) {
  const rows = [...parts.table.querySelectorAll("tbody tr")];
  if (name === "j" || name === "k") here = stepped(rows, here, name);
  else if (name === "x" && rows[here]) choose(rows[here].dataset.id);
  else if (name === "Enter" && rows[here]) location.hash = rows[here].querySelector("th a").hash;
  else return false;
  return true;
}
