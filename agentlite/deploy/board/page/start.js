// A form for each stage: it shows the command that it runs. Below it, what was started from here.
import { ask, tell } from "./ask.js";
import { board, go, place } from "./board.js";
import { inTime, node } from "./dom.js";

const PAUSE = 250;  // ms after the last key until the command is made
const forms = new Map();
let parts = null;
let open = "";

function asText(value, several) {
  if (Array.isArray(value)) return value.join(several ? "\n" : ",");
  return typeof value === "object" && value !== null ? JSON.stringify(value) : String(value ?? "");
}

export async function show(main) {
  const { words } = place();
  const stage = words.get("stage") || "sft";
  const like = board.rows.get(words.get("from"));
  parts = { inputs: new Map(), stage, timer: 0, commands: node("div"), command: node("code"), problem: node("p", { className: "wrong", role: "alert" }), shown: "" };
  const mine = parts;
  if (!forms.has(stage)) forms.set(stage, await ask("form", { stage }));
  if (mine !== parts) return;
  const form = forms.get(stage);
  const choice = node("select", { id: "stage", onchange: () => go("start", new URLSearchParams({ stage: choice.value })) }, Object.keys(board.facts.stages).map((name) => node("option", { value: name, textContent: name })));
  choice.value = stage;
  const runs = node("datalist", { id: "workspaces" }, board.runs.map((name) => node("option", { value: name })));
  const run = node("input", { id: "run", value: like?.run ?? words.get("run") ?? board.runs[0] ?? `${board.facts.folders[0]}/default`, oninput: changed });
  run.setAttribute("list", "workspaces");
  parts.run = run;
  const common = form.fields.filter((one) => one.common).map((one) => field(one, like));
  const others = new Map();
  for (const one of form.fields.filter((each) => !each.common)) others.set(one.section, [...(others.get(one.section) ?? []), field(one, like)]);
  const options = form.options.map((one) => field({ ...one, kind: "", default: one.key === "out" ? stage : "", several: false }, null));
  // what was not finished is carried on in its own folder
  if (like && ["half", "failed"].includes(like.state) && like.stage !== stage && !like.stage.includes("/")) parts.inputs.get("out").value = like.stage;
  parts.button = node("button", { type: "submit", className: "first", textContent: "Run", disabled: true });
  main.replaceChildren(node("form", { onsubmit: started },
    node("div", { className: "tools" }, node("label", {}, "Stage", choice), node("label", {}, "Workspace", run, runs)),
    node("p", { className: "quiet", textContent: form.help }),
    node("div", { className: "fields" }, common, options),
    node("details", {}, node("summary", { textContent: "All settings" }), [...others].map(([name, fields]) => [node("h3", { textContent: name }), node("div", { className: "fields" }, fields)])),
    node("p", { className: "command" }, parts.command), parts.problem,
    board.facts.read_only ? node("p", { className: "quiet", textContent: "This board is read-only: copy the command into a terminal." }) : parts.button),
  node("h2", { textContent: "Started from here" }), parts.commands);
  changed();
  await update();
}

function field(one, like) {
  const text = like && one.key in like.settings ? asText(like.settings[one.key], one.several) : "";
  let input;
  if (one.choices.length) {
    input = node("select", { onchange: changed }, ["", ...one.choices].map((value) => node("option", { value, textContent: value || (one.default ? `default: ${one.default}` : "default") })));
    input.value = text;
  } else if (one.several) input = node("textarea", { rows: 2, value: text, placeholder: one.default || `${one.kind}, one on each line`, oninput: changed });
  else input = node("input", { value: text, placeholder: one.default || one.kind, oninput: changed, autocomplete: "off", spellcheck: false });
  input.name = one.key;
  parts.inputs.set(one.key, input);
  return node("label", {}, one.key, input, node("span", { className: "help", textContent: one.help }));
}

function filled() {
  const values = {};
  for (const [key, input] of parts.inputs) if (input.value !== "") values[key] = input.value;
  return { stage: parts.stage, run: parts.run.value, values };
}

function changed() {
  clearTimeout(parts.timer);
  parts.button.disabled = true;
  parts.timer = setTimeout(preview, PAUSE);
}

async function preview() {
  const mine = parts;
  const asked = filled();
  try {
    const { command } = board.facts.read_only ? { command: "" } : await tell("preview", asked);
    if (mine !== parts || JSON.stringify(asked) !== JSON.stringify(filled())) return;
    parts.command.textContent = command;
    parts.problem.textContent = "";
    parts.button.disabled = false;
  } catch (error) {
    if (mine === parts) parts.problem.textContent = error.message;
  }
}

async function started(event) {
  event.preventDefault();
  parts.button.disabled = true;
  try {
    const { started: one } = await tell("start", filled());
    open = one.id;
    parts.problem.textContent = "";
  } catch (error) {
    parts.problem.textContent = error.message;
  }
  parts.button.disabled = false;
  await update();
}

function state(one) {
  if (one.running) return ["running", `running for ${inTime(Date.now() / 1000 - one.at)}`];
  if (one.code === null) return ["", "ended"];
  return one.code === 0 ? ["done", "ended well"] : ["half", one.code === 130 ? "stopped" : `ended with ${one.code}`];
}

export async function update() {
  const mine = parts;
  const { commands } = await ask("commands");
  const log = open && commands.find((one) => one.id === open);
  const text = log ? (await ask("log", { run: log.run, id: log.id })).log : "";
  if (mine !== parts) return;
  const shown = JSON.stringify([commands, text, Math.floor(Date.now() / 10000)]);
  if (shown === parts.shown) return;
  parts.shown = shown;
  const rows = commands.map((one) => {
    const [name, words] = state(one);
    const stop = one.running && !board.facts.read_only ? node("button", { type: "button", className: "stop", textContent: "Stop", title: "as Ctrl-C does", onclick: () => tell("stop", { run: one.run, id: one.id }).then(update, (error) => { parts.problem.textContent = error.message; }) }) : "";
    const look = node("button", { type: "button", textContent: open === one.id ? "Hide log" : "Log", "aria-expanded": String(open === one.id), onclick: () => { open = open === one.id ? "" : one.id; parts.shown = ""; update(); } });
    return [node("tr", { "data-command": one.id }, node("td", { className: name, textContent: words }), node("td", { className: "text" }, node("code", { textContent: one.command })), node("td", {}, stop, " ", look)),
      open === one.id ? node("tr", {}, node("td", { colSpan: 3 }, node("pre", { className: "log", tabIndex: 0, textContent: text || "nothing was printed yet" }))) : ""];
  });
  parts.commands.replaceChildren(rows.length ? node("div", { className: "wide" }, node("table", {}, node("tbody", {}, rows.flat().filter(Boolean)))) : node("p", { className: "quiet", textContent: "Nothing yet. What is started here goes on when this page, or the board, is closed." }));
  const pre = parts.commands.querySelector(".log");
  if (pre) pre.scrollTop = pre.scrollHeight;
}
