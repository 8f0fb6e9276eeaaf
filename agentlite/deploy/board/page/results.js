// The report of a workspace, as `agentlite report` writes it, made from what lies there now.
import { board, go, place } from "./board.js";
import { node } from "./dom.js";

let frame = null;

export function show(main) {
  const { words } = place();
  const run = words.get("run") || board.runs[0] || "";
  const choice = node("select", { onchange: () => go("results", new URLSearchParams({ run: choice.value })) }, board.runs.map((name) => node("option", { value: name, textContent: name })));
  choice.value = run;
  const again = node("button", { type: "button", textContent: "Read again", onclick: () => load(run) });
  frame = node("iframe", { title: `Report of ${run}`, sandbox: "allow-scripts allow-downloads" });
  main.replaceChildren(node("div", { className: "tools" }, node("label", {}, "Workspace", choice), again,
    node("span", { className: "quiet", textContent: "The same page as agentlite report writes, for this moment." })), run ? frame : node("p", { className: "quiet", textContent: "There is no workspace yet." }));
  if (run) load(run);
}

function load(run) {
  frame.src = `report?${new URLSearchParams({ run })}`;
}
