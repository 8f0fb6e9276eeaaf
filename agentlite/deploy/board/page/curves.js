// The curves of one stage or several, drawn over each other, and the newest answers of one.
import { tried } from "./answers.js";
import { ask } from "./ask.js";
import { board, named, place } from "./board.js";
import { drawn, inTime, inWords, node, short } from "./dom.js";

const COLOURS = 8;
const MOST = 16;
const SHOWN = { loss: "", reward: "", kl: "", tokens_per_second: "tokens/s", memory_gib: "GiB" };  // with their units, beside the name of a stage
const SECOND = new Set(["dev_loss", "rejected_reward", "rejected_logp"]);  // drawn with dashes beside the first of their chart
const found = new Map();
let parts = null;

function chosen() {
  const ids = place().words.getAll("id").filter((id) => board.rows.has(id)).slice(0, MOST);
  if (ids.length) return ids;
  const rows = [...board.rows.values()].filter((row) => row.state === "running");
  return rows.map((row) => row.id).slice(0, MOST);
}

export function show(main) {
  parts = { head: node("div"), charts: node("div", { className: "charts" }), scores: node("div"), answers: node("div"), shown: "" };
  main.replaceChildren(parts.head, parts.charts, parts.scores, parts.answers);
  return update();
}

export async function update() {
  const ids = chosen();
  const mine = parts;
  for (const id of ids) {
    const known = found.get(id);
    if (known && board.rows.get(id).state !== "running" && known.written === board.rows.get(id).written) continue;
    const curves = await ask("curves", { id, version: known?.version ?? -1 });
    found.set(id, { ...(curves.curves ? curves : known ?? curves), written: board.rows.get(id)?.written });
  }
  if (mine !== parts) return;  // another view is open by now
  head(ids);
  const version = JSON.stringify(ids.map((id) => [id, found.get(id)?.version]));
  if (version !== parts.shown) {
    parts.shown = version;
    charts(ids);
  }
  if (ids.length === 1) await answers(ids[0], mine);
  else parts.answers.replaceChildren();
}

function mark(index) {
  const svg = drawn("svg", { class: "key", viewBox: "0 0 20 10", "aria-hidden": "true" });
  svg.append(drawn("path", { class: `l${index % COLOURS}`, d: "M0 5H20" }));
  return svg;
}

function head(ids) {
  if (!ids.length) {
    parts.head.replaceChildren(node("p", { className: "quiet" }, "No stage runs now. Select stages under ", node("a", { href: "#runs", textContent: "Runs" }), " to see their curves."));
    return;
  }
  const rows = ids.map((id, index) => {
    const row = board.rows.get(id);
    const curves = found.get(id);
    const progress = curves?.steps && row.state !== "done" ? node("progress", { max: curves.steps, value: curves.step, "aria-label": `step ${curves.step} of ${curves.steps}` }) : "";
    const value = (name) => short(curves.curves[name].last);
    const last = Object.entries(SHOWN).filter(([name]) => curves?.curves?.[name]).map(([name, unit]) => (unit ? `${value(name)} ${unit}` : `${name} ${value(name)}`));
    const again = new URLSearchParams({ stage: row.command, from: id });
    return node("li", {}, mark(index), node("b", { textContent: ids.length > 1 ? named(id) : row.command }), node("span", { className: row.state, textContent: inWords(row) }), progress,
      row.left === undefined || row.left === null ? "" : node("span", { textContent: `${inTime(row.left)} left` }),
      ...(last.length ? last : [row.figure]).filter(Boolean).map((text) => node("span", { textContent: text })),
      row.command === "eval" && row.state === "done" ? node("a", { href: `#results?${new URLSearchParams({ answers: id })}`, textContent: "all answers" }) : "",
      board.facts.stages[row.command] ? node("a", { href: `#start?${again}`, textContent: ["half", "failed"].includes(row.state) ? "carry it on" : "start one like it" }) : "");
  });
  parts.head.replaceChildren(node("h2", { textContent: ids.length > 1 ? `${ids.length} stages` : ids[0] }), node("ul", { className: "key-list" }, rows));
}

function charts(ids) {
  const groups = [];
  const components = new Set();
  for (const id of ids) {
    for (const group of found.get(id)?.groups ?? []) {
      const known = groups.find((one) => one[0] === group[0]);
      if (!known) groups.push([...group]);
      else for (const name of group) if (!known.includes(name)) known.push(name);
    }
    for (const name of found.get(id)?.components ?? []) components.add(name);
  }
  parts.charts.replaceChildren(...groups.map((names) => chart(ids, names)));
  const title = node("h2", { textContent: "Components of the reward" });
  parts.scores.replaceChildren(...(components.size ? [title, node("div", { className: "charts" }, [...components].map((name) => chart(ids, [name], [0, 1])))] : []));
}

function chart(ids, names, least = null) {
  const lines = ids.flatMap((id, index) => names.map((name) => ({ id, index, name, curve: found.get(id)?.curves?.[name] }))).filter((line) => line.curve?.x.length);
  const xs = lines.flatMap((line) => line.curve.x);
  const ys = lines.flatMap((line) => line.curve.y).concat(least ?? []);
  const [left, right, low, high] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  const across = (x) => (right > left ? (100 * (x - left)) / (right - left) : 50).toFixed(2);
  const up = (y) => (high > low ? 98 - (96 * (y - low)) / (high - low) : 50).toFixed(2);
  const said = lines.map((line) => `${named(line.id)} ${line.name} ${short(line.curve.last)}`).join("; ");
  const svg = drawn("svg", { viewBox: "0 0 100 100", preserveAspectRatio: "none", role: "img", "aria-label": `${names.join(", ")}: last values: ${said}` });
  for (const line of lines) {
    const points = line.curve.x.map((x, at) => `${across(x)} ${up(line.curve.y[at])}`);
    const look = `l${line.index % COLOURS} ${SECOND.has(line.name) || line.index >= COLOURS ? "second" : ""}`;
    svg.append(drawn("path", { class: look, d: `M${points.join("L")}` }));
    if (points.length < 4) for (const point of points) svg.append(drawn("path", { class: `${look} dot`, d: `M${point}h0` }));
  }
  const readout = node("span", { className: "quiet", textContent: lines.length === 1 ? short(lines[0].curve.last) : "" });
  const rule = node("div", { className: "at", hidden: true });
  const area = node("div", { className: "area" }, svg, rule, node("span", { className: "high", textContent: short(high) }), node("span", { className: "low", textContent: short(low) }));
  area.addEventListener("pointermove", (event) => {
    const box = area.getBoundingClientRect();
    const step = left + ((right - left) * (event.clientX - box.left)) / box.width;
    rule.hidden = false;
    rule.style.left = `${event.clientX - box.left}px`;
    readout.textContent = `step ${Math.round(step)}: ${lines.map((line) => short(line.curve.y[nearest(line.curve.x, step)])).join("  ")}`;
  });
  area.addEventListener("pointerleave", () => {
    rule.hidden = true;
    readout.textContent = lines.length === 1 ? short(lines[0].curve.last) : "";
  });
  return node("figure", { className: "chart", "data-names": names.join(" ") }, node("figcaption", {}, names.map((name) => name.replace(/^reward\//, "")).join(", "), readout), area,
    node("div", { className: "steps" }, node("span", { textContent: `step ${left}` }), node("span", { textContent: String(right) })));
}

function nearest(xs, step) {
  let best = 0;
  for (let at = 1; at < xs.length; at += 1) if (Math.abs(xs[at] - step) < Math.abs(xs[best] - step)) best = at;
  return best;
}

async function answers(id, mine) {
  const { answers: list } = await ask("answers", { id });
  if (mine !== parts) return;
  const shown = JSON.stringify(list);
  if (shown === parts.answersShown) return;
  parts.answersShown = shown;
  const texts = list.map((one) => node("article", { className: "answer" },
    node("p", { className: "parts" }, [one.about, one.step === null ? "" : `step ${one.step}`, one.tokens === null ? "" : `${one.tokens} tokens`, one.ended].filter(Boolean).map((text) => node("span", { textContent: text })),
      Object.entries(one.components).map(([name, value]) => node("span", {}, `${name} `, node("b", { textContent: short(value) }))),
      one.record && one.turn !== null ? tried(id, one) : ""),
    node("pre", { textContent: one.text }), one.feedback ? node("p", { className: "quiet", textContent: one.feedback }) : ""));
  parts.answers.replaceChildren(...(texts.length ? [node("h2", { textContent: "Newest answers" }), ...texts] : []));
}
