// A talk with one model. Its calls are answered by hand, or by the functions of a file.
import { read } from "./answers.js";
import { ask, tell } from "./ask.js";
import { board, place } from "./board.js";
import { node } from "./dom.js";

const MOST_STEPS = 8;  // of one turn: a model may call for ever
let messages = [];
let tools = "";
let functions = "";
let parts = null;
let working = false;
let ready = false;
let question = null;  // of an answer, with which the dialog began: { key, run, model }

// The messages and tools of the question that the address names; a dialog that began with it goes on.
async function beginWith(words, main) {
  const named = Object.fromEntries(["about", "record", "turn"].map((name) => [name, words.get(name) ?? ""]));
  const key = JSON.stringify(named);
  if (!named.about || key === question?.key) return;
  const state = node("p", { className: "quiet", role: "status" });
  const found = await read("question", { id: named.about, record: named.record, turn: named.turn }, (part) => {
    if (place().view !== "chat") return false;
    if (!state.isConnected) main.replaceChildren(state);
    state.textContent = `The questions are being read: ${part}.`;
    return true;
  });
  if (found.reading !== undefined) return;
  question = { key, run: found.run, model: found.model };
  messages = found.messages;
  tools = found.tools.length ? JSON.stringify(found.tools, null, 1) : "";
}

export async function show(main) {
  const { words } = place();
  const problem = node("p", { className: "wrong", role: "alert" });
  const before = parts;
  try {
    await beginWith(words, main);
  } catch (error) {
    problem.textContent = error.message;
  }
  if (before !== parts || place().view !== "chat") return;  // another view is open by now
  const asked = words.get("about") ? question : null;
  const models = [...board.rows.values()].filter((row) => row.state === "done" && "model" in row.settings).map((row) => row.stage);
  const run = node("select", { id: "chat-run" }, board.runs.map((name) => node("option", { value: name, textContent: name })));
  run.value = asked?.run || words.get("run") || board.runs[0] || "";
  const list = node("datalist", { id: "models" }, [...new Set(models)].map((name) => node("option", { value: name })));
  const model = node("input", { id: "chat-model", value: asked?.model ?? words.get("model") ?? "sft" });
  model.setAttribute("list", "models");
  const load = node("button", { type: "submit", className: "first", textContent: "Load", disabled: board.facts.read_only });
  const unload = node("button", { type: "button", textContent: "Unload", onclick: () => guarded(async () => { await tell("unload", {}); await update(); }) });
  const offered = node("textarea", { rows: 3, value: tools, placeholder: "[{\"type\": \"function\", \"function\": {\"name\": \"weather\", ...}}]", oninput: () => { tools = offered.value; count(); }, spellcheck: false });
  const file = node("input", { value: functions, placeholder: "tools.py", oninput: () => { functions = file.value; }, spellcheck: false });
  const text = node("textarea", { id: "chat-text", rows: 2, onkeydown: (event) => { if (event.key === "Enter" && !event.shiftKey) { event.preventDefault(); form.requestSubmit(); } } });
  const form = node("form", { className: "say", onsubmit: (event) => { event.preventDefault(); if (text.value.trim() && !working) { messages.push({ role: "user", content: text.value }); text.value = ""; guarded(answer); } } },
    node("label", {}, "Message", text), node("button", { type: "submit", className: "first", textContent: "Send" }));
  parts = { state: node("p", { className: "quiet", role: "status" }), log: node("pre", { className: "log", tabIndex: 0, hidden: true }), dialog: node("div", { className: "dialog", role: "log", "aria-label": "Dialog" }), problem, form, model, tools: node("summary") };
  main.replaceChildren(
    node("form", { className: "tools", onsubmit: (event) => { event.preventDefault(); guarded(async () => { await tell("load", { run: run.value, model: model.value }); await update(); }); } },
      node("label", {}, "Workspace", run), node("label", {}, "Model", model, list), load, unload),
    parts.state, parts.log,
    node("details", {}, parts.tools, node("div", { className: "fields" },
      node("label", {}, "tools", offered, node("span", { className: "help", textContent: "a JSON list of OpenAI tools that the model may call" })),
      node("label", {}, "functions", file, node("span", { className: "help", textContent: "Python file with a function for each tool, which answers the calls; empty: answer by hand" })))),
    parts.dialog, parts.problem, form,
    node("div", { className: "tools" },
      node("button", { type: "button", textContent: "Undo", onclick: () => { undo(); draw(); } }),
      node("button", { type: "button", textContent: "New dialog", onclick: () => { messages = []; question = null; draw(); } }),
      node("button", { type: "button", textContent: "Copy as a row for prep", onclick: () => guarded(async () => navigator.clipboard.writeText(JSON.stringify({ messages, ...(tools.trim() ? { tools: JSON.parse(tools) } : {}) }))) })));
  count();
  draw();
  await update();
}

function count() {
  let found = 0;
  try { found = tools.trim() ? JSON.parse(tools).length : 0; } catch { found = 0; }
  parts.tools.textContent = `Tools and functions${found ? ` (${found})` : ""}`;
}

export async function update() {
  const mine = parts;
  const found = await ask("chat");
  if (mine !== parts) return;
  const words = { none: "No model is loaded.", loading: `${found.model} is being loaded.`, ready: `${found.model} is ready (protocol ${found.protocol}).`, ended: `${found.model} has ended.` };
  const other = found.state === "ready" && found.model !== parts.model.value ? ` Load takes ${parts.model.value || "another one"} in its place.` : "";
  const waits = found.state === "none" && messages.length ? " Load one to let it answer." : "";
  const text = words[found.state] + other + waits;
  if (parts.state.textContent !== text) parts.state.textContent = text;
  parts.log.hidden = found.state !== "ended";
  if (!parts.log.hidden && parts.log.textContent !== found.log) parts.log.textContent = found.log;
  parts.form.hidden = found.state !== "ready";
  if (ready !== (found.state === "ready")) {
    ready = found.state === "ready";
    draw();
  }
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
  // a question of an evaluation, or one whose answer failed
  const open = ready && !working && ["user", "tool"].includes(messages.at(-1)?.role);
  const go = open ? node("button", { type: "button", className: "first go", textContent: "Let the model answer", onclick: () => guarded(answer) }) : "";
  parts.dialog.replaceChildren(...turns, ...[hand, go].filter(Boolean), ...(working ? [node("p", { className: "quiet", textContent: "The model answers…" })] : []));
}
