// What was measured: all evaluations on one page, the single answers of one, or the report of a workspace.
import * as answers from "./answers.js";
import { board, go, place } from "./board.js";
import { node } from "./dom.js";
import * as evaluations from "./evaluations.js";

function part() {
  const { words } = place();
  if (words.get("answers")) return answers;
  return words.has("run") ? { show: report } : evaluations;
}

export const show = (main) => part().show(main);
export const update = () => part().update?.();
export const key = (name) => part().key?.(name) ?? false;

// The models that were evaluated there: eval/<data>/<model>.
function evaluated(run) {
  const rows = [...board.rows.values()].filter((row) => row.run === run && row.command === "eval");
  return [...new Set(rows.map((row) => row.stage.split("/").at(-1)))].sort();
}

// As `agentlite report` writes it, made from what lies there now.
function report(main) {
  const { words } = place();
  const run = words.get("run") || board.runs[0] || "";
  const chosen = words.getAll("model");
  const choice = node("select", { onchange: () => go("results", new URLSearchParams({ run: choice.value })) }, board.runs.map((name) => node("option", { value: name, textContent: name })));
  choice.value = run;
  const names = evaluated(run);
  const boxes = names.map((name) => node("input", { type: "checkbox", value: name, checked: !chosen.length || chosen.includes(name), onchange: compare }));
  function compare() {
    const kept = boxes.filter((box) => box.checked).map((box) => box.value);
    go("results", new URLSearchParams([["run", run], ...(kept.length === names.length ? [] : kept.map((name) => ["model", name]))]));
  }
  const again = node("button", { type: "button", textContent: "Read again", onclick: load });
  const state = node("span", { className: "quiet", role: "status" });
  const frame = node("iframe", { title: `Report of ${run}`, sandbox: "allow-scripts allow-downloads", onload: () => { state.textContent = "As agentlite report writes it, for this moment."; } });
  function load() {
    state.textContent = "The report is being made; of many answers this takes a while.";
    frame.src = `report?${new URLSearchParams([["run", run], ...chosen.map((name) => ["model", name])])}`;
  }
  if (run) load();
  main.replaceChildren(node("div", { className: "tools" }, node("a", { href: "#results", textContent: "All evaluations" }), node("label", {}, "Report of", choice),
    names.length > 1 ? boxes.map((box) => node("label", {}, box, box.value)) : "", again, state),
  run ? frame : node("p", { className: "quiet", textContent: "There is no workspace yet." }));
}
