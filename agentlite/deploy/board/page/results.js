// The report of a workspace, as `agentlite report` writes it, made from what lies there now.
import { board, go, place } from "./board.js";
import { node } from "./dom.js";

// The models that were evaluated there: eval/<data>/<model>.
function evaluated(run) {
  const rows = [...board.rows.values()].filter((row) => row.run === run && row.command === "eval");
  return [...new Set(rows.map((row) => row.stage.split("/").at(-1)))].sort();
}

export function show(main) {
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
  const frame = node("iframe", { title: `Report of ${run}`, sandbox: "allow-scripts allow-downloads" });
  function load() {
    frame.src = `report?${new URLSearchParams([["run", run], ...chosen.map((name) => ["model", name])])}`;
  }
  main.replaceChildren(node("div", { className: "tools" }, node("label", {}, "Workspace", choice),
    names.length > 1 ? boxes.map((box) => node("label", {}, box, box.value)) : "", again,
    node("span", { className: "quiet", textContent: "The same page as agentlite report writes, for this moment." })), run ? frame : node("p", { className: "quiet", textContent: "There is no workspace yet." }));
  if (run) load();
}
