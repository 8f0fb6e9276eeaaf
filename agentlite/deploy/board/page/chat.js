// A talk with one model. Its calls are answered by hand, or by the functions of a file.
import { ask, tell } from "./ask.js";
import { board, place } from "./board.js";
import { node } from "./dom.js";

const MOST_STEPS = 8;  // of one turn: a model may call for ever
let messages = [];
let tools = "";
let functions = "";
let parts = null;
let working = false;

export async function show(main) {
  const { words } = place();
  const models = [...board.rows.values()].filter((row) => row.state === "done" && "model" in row.settings).map((row) => row.stage);
  const run = node("select", { id: "chat-run" }, board.runs.map((name) => node("option", { value: name, textContent: name })));
  run.value = words.get("run") || board.runs[0] || "";
  const list = node("datalist", { id: "models" }, [...new Set(models)].map((name) => node("option", { value: name })));
  const model = node("input", { id: "chat-model", value: words.get("model") ?? "sft" });
  model.setAttribute("list", "models");
  const load = node("button", { type: "submit", className: "first", textContent: "Load", disabled: board.facts.read_only });
  const unload = node("button", { type: "button", textContent: "Unload", onclick: () => guarded(async () => { await tell("unload", {}); await update(); }) });
  const offered = node("textarea", { rows: 3, value: tools, placeholder: "[{\"type\": \"function\", \"function\": {\"name\": \"weather\", ...}}]", oninput: () => { tools = offered.value; }, spellcheck: false });
  const file = node("input", { value: functions, placeholder: "tools.py", oninput: () => { functions = file.value; }, spellcheck: false });
  const text = node("textarea", { id: "chat-text", rows: 2, onkeydown: (event) => { if (event.key === "Enter" && !event.shiftKey) { event.preventDefault(); form.requestSubmit(); } } });
  const form = node("form", { className: "say", onsubmit: (event) => { event.preventDefault(); if (text.value.trim() && !working) { messages.push({ role: "user", content: text.value }); text.value = ""; guarded(answer); } } },
    node("label", {}, "Message", text), node("button", { type: "submit", className: "first", textContent: "Send" }));
  parts = { state: node("p", { className: "quiet", role: "status" }), log: node("pre", { className: "log", tabIndex: 0, hidden: true }), dialog: node("div", { className: "dialog", role: "log", "aria-label": "Dialog" }), problem: node("p", { className: "wrong", role: "alert" }), form };
  main.replaceChildren(
    node("form", { className: "tools", onsubmit: (event) => { event.preventDefault(); guarded(async () => { await tell("load", { run: run.value, model: model.value }); await update(); }); } },
      node("label", {}, "Workspace", run), node("label", {}, "Model", model, list), load, unload),
    parts.state, parts.log,
    node("details", {}, node("summary", { textContent: "Tools and functions" }), node("div", { className: "fields" },
      node("label", {}, "tools", offered, node("span", { className: "help", textContent: "a JSON list of OpenAI tools that the model may call" })),
      node("label", {}, "functions", file, node("span", { className: "help", textContent: "Python file with a function for each tool, which answers the calls; empty: answer by hand" })))),
    parts.dialog, parts.problem, form,
    node("div", { className: "tools" },
      node("button", { type: "button", textContent: "Undo", onclick: () => { undo(); draw(); } }),
      node("button", { type: "button", textContent: "New dialog", onclick: () => { messages = []; draw(); } }),
      node("button", { type: "button", textContent: "Copy as a row for prep", onclick: () => guarded(async () => navigator.clipboard.writeText(JSON.stringify({ messages, ...(tools.trim() ? { tools: JSON.parse(tools) } : {}) }))) })));
  draw();
  await update();
}

export async function update() {
  const mine = parts;
  const found = await ask("chat");
  if (mine !== parts) return;
  const words = { none: "No model is loaded.", loading: `${found.model} is being loaded.`, ready: `${found.model} is ready (protocol ${found.protocol}).`, ended: `${found.model} has ended.` };
  if (parts.state.textContent !== words[found.state]) parts.state.textContent = words[found.state];
  parts.log.hidden = found.state !== "ended";
  if (!parts.log.hidden && parts.log.textContent !== found.log) parts.log.textContent = found.log;
  parts.form.hidden = found.state !== "ready";
}

async function guarded(act) {
  const mine = parts;
  try {
    parts.problem.textContent = "";
    await act();
  } catch (error) {
    mine.problem.textContent = error.message;
  }
}

function undo() {
  const last = messages.findLastIndex((message) => message.role === "user");
  messages.splice(Math.max(0, last));
}

async function answer() {
  const mine = messages;
  working = true;
  draw();
  try {
    for (let step = 0; step < MOST_STEPS; step += 1) {
      const offered = tools.trim() ? JSON.parse(tools) : [];
      const found = await tell("say", { messages: mine, tools: offered });
      const { role, content, tool_calls } = found.choices[0].message;
      mine.push({ role, content, ...(tool_calls ? { tool_calls } : {}) });
      if (!tool_calls || !functions.trim()) return;
      for (const call of tool_calls) {
        const { result } = await tell("call", { file: functions.trim(), tools: offered, name: call.function.name, arguments: call.function.arguments });
        mine.push({ role: "tool", tool_call_id: call.id, content: result });
      }
      draw();
    }
  } finally {
    working = false;
    draw();
  }
}

function waiting() {
  const last = messages.at(-1);
  return last?.tool_calls && !working ? last.tool_calls : [];
}

function draw() {
  if (!parts) return;
  const turns = messages.map((message) => node("div", { className: `turn ${message.role}` }, node("p", { className: "quiet", textContent: message.role }),
    message.content ? node("pre", { textContent: message.content }) : "",
    (message.tool_calls ?? []).map((call) => node("pre", {}, node("b", { textContent: call.function.name }), `(${call.function.arguments})`))));
  const calls = waiting();
  const results = calls.map((call) => node("textarea", { rows: 2, "aria-label": `result of ${call.function.name}`, placeholder: `result of ${call.function.name}` }));
  const hand = calls.length ? node("form", { className: "turn", onsubmit: (event) => {
    event.preventDefault();
    calls.forEach((call, at) => messages.push({ role: "tool", tool_call_id: call.id, content: results[at].value }));
    guarded(answer);
  } }, results, node("button", { type: "submit", textContent: "Send the results" })) : "";
  parts.dialog.replaceChildren(...turns, ...(hand ? [hand] : []), ...(working ? [node("p", { className: "quiet", textContent: "The model answers…" })] : []));
}
