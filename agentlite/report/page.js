"use strict";
// The readers of predictions and of rollouts. The texts of records, models and worlds are only ever set as text, never as markup.

const PAGE = 100;
const MARKS = { full: "●", partial: "◐", none: "○", unreadable: "✕", unmeasured: "·" };
const OUTCOMES = {
  any: "any outcome", full: "● right", partial: "◐ partly right", none: "○ wrong", unreadable: "✕ unreadable",
  unmeasured: "· not measured", differ: "models differ",
};

function node(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children.filter((child) => child !== null && child !== ""));
  return made;
}

async function unpack(packed) {
  const letters = atob(packed);
  const bytes = new Uint8Array(letters.length);
  for (let at = 0; at < letters.length; at += 1) bytes[at] = letters.charCodeAt(at);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

// What a task's own messages hold in the place of a text is shown as JSON.
const asText = (value) => (typeof value === "string" ? value : JSON.stringify(value));
const message = ({ role, content, tool_calls }) => (
  [role ?? "", asText(content || ""), (tool_calls ?? []).map((call) => [call.function.name, asText(call.function.arguments ?? {})])]);

function questionOf(messages) {
  const asked = messages.findLast(([role]) => role === "user") ?? messages.at(-1);
  return asked?.[1].replace(/\s+/g, " ").slice(0, 300);
}

function read({ id, turn, expected, said }, index, data) {
  const record = data.records[id] ?? { messages: [], tools: [] };
  const messages = record.messages.map(message), prompt = messages.slice(0, turn);
  const called = prompt.at(-1)?.[0] === "tool" ? prompt.findLast((one) => one[2].length)?.[2].map(([name]) => name).join(", ") : "";
  return {
    index, called, id, turn, expected, slices: said[0].slices ?? {}, prompt, recorded: messages[turn],
    tools: record.tools.map((at) => data.tools[at]), question: questionOf(prompt) ?? id,
    said: said.map((row) => ({
      ...row, values: data.metrics.map((name) => row.metrics[name] ?? null), decision: row.metrics.call_decision ?? null,
      calls: (row.calls ?? []).map((call) => [call.name, call.arguments]), wrong: data.kinds[row.wrong] ?? "",
    })),
  };
}

// Where a figure is of calls alone, and no call is expected, call or no call says whether the answer is right.
function outcome(said, metric) {
  if (said.problem) return "unreadable";
  const value = said.values[metric] ?? said.decision;
  return value === null ? "unmeasured" : value >= 1 ? "full" : value > 0 ? "partial" : "none";
}

function keeps(step, chosen) {
  if (chosen.slice && step.slices[chosen.slice[0]] !== chosen.slice[1]) return false;
  if (chosen.text && !step.question.toLowerCase().includes(chosen.text) && !step.id.startsWith(chosen.text)
      && !step.said.some((said) => said.text.toLowerCase().includes(chosen.text))) return false;
  if (chosen.outcome === "differ") return new Set(step.said.map((said) => outcome(said, chosen.metric))).size > 1;
  return step.said.some((said) => (chosen.model < 0 || said.model === chosen.model)
    && (chosen.outcome === "any" || outcome(said, chosen.metric) === chosen.outcome)
    && (!chosen.problem || said.problem === chosen.problem) && (!chosen.wrong || said.wrong === chosen.wrong));
}

function select(label, options, value, changed) {
  const made = node("select", { onchange: () => changed(made.value) });
  for (const [key, name] of options) made.append(node("option", { value: key, textContent: name }));
  made.value = value;
  return node("label", {}, label, made);
}

function inline([name, values]) {
  let read;
  try { read = JSON.parse(values); } catch { return `${name}(${values})`; }
  return `${name}(${Object.entries(read).map(([key, value]) => `${key}=${JSON.stringify(value)}`).join(", ")})`;
}

function parsed(values) {
  try { return JSON.parse(values) ?? {}; } catch { return {}; } // any arguments will do, or the text was cut
}

const choices = (values) => (Array.isArray(values) ? values : [values]);
const plain = (value) => (typeof value === "string" ? value.trim().toLowerCase() : JSON.stringify(value));
const accepts = (values, value) => choices(values).some((one) => plain(one) === plain(value)) || plain(values) === plain(value);

// Each given call with the expected call of its name, each of which is taken once.
function paired(expected, given) {
  const left = [...expected];
  return given.map((call) => {
    const at = left.findIndex(([name]) => name === call[0]);
    return [call, at < 0 ? null : left.splice(at, 1)[0]];
  });
}

function written(lines) {
  const indent = (text) => text.length - text.trimStart().length; // is not marked
  return node("pre", {}, ...lines.flatMap(([text, marks]) => (
    [...(marks ? [text.slice(0, indent(text)), node("mark", { textContent: text.trimStart() })] : [text]), "\n"])).slice(0, -1));
}

// Lines of [text, whether it is marked]. `marks`: where the call is right as a whole, nothing is.
function expectedLines(expected, pairs, marks) {
  return expected.flatMap((call) => {
    const given = pairs.find((pair) => pair[1] === call)?.[0];
    const has = given ? parsed(given[1]) : {};
    const lines = Object.entries(parsed(call[1])).map(([key, values]) => {
      const known = choices(values).filter((value) => value !== "").map((value) => JSON.stringify(value)).join(" or ");
      const optional = choices(values).includes("");
      return [`  ${key} = ${known || '""'}${optional ? "   (may be left out)" : ""}`, marks && given && !(key in has) && !optional];
    });
    return [[call[0], marks && !given], ...lines];
  });
}

function givenLines(pairs, marks) {
  return pairs.flatMap(([[name, values], call]) => {
    const wanted = call && parsed(call[1]);
    const open = !call || !Object.keys(wanted).length; // nothing to compare the arguments with
    const lines = Object.entries(parsed(values)).map(([key, value]) =>
      [`  ${key} = ${JSON.stringify(value)}`, marks && !open && !(key in wanted && accepts(wanted[key], value))]);
    return [[name, marks && !call], ...lines];
  });
}

function compared(expected, said, right) {
  const pairs = paired(expected, said.calls);
  const side = (title, lines, none) => node("div", {}, node("span", { className: "quiet", textContent: title }),
    lines.length ? written(lines) : node("pre", { className: "quiet", textContent: none }));
  return node("div", { className: "compared" },
    side("expected", expectedLines(expected, pairs, !right), "no call"), side("given", givenLines(pairs, !right), "no call"));
}

// One mark per model; those of failures have another colour.
function marked(marks) {
  return node("span", { className: "marks" }, ...[...marks].map((mark) => (
    [MARKS.none, MARKS.unreadable].includes(mark) ? node("span", { className: "failed", textContent: mark }) : mark)));
}

function turn([role, content, calls]) {
  const text = [content, ...calls.map(inline)].filter(Boolean).join("\n");
  return node("div", { className: "turn" }, node("span", { className: "quiet", textContent: role }), node("p", { textContent: text }));
}

function tool({ function: { name, description, parameters } }) {
  return node("details", {}, node("summary", {}, node("b", { textContent: name }), " ", node("span", { className: "quiet", textContent: description ?? "" })),
    node("pre", { textContent: JSON.stringify(parameters ?? {}, null, 2) }));
}

function answer(said, step, data, metric) {
  const values = data.titles.map((name, at) => [name, said.values[at]]).filter(([, value]) => value !== null);
  const figures = values.map(([name, value]) => `${name} ${Number.isInteger(value) ? value : value.toFixed(2)}`);
  if (said.new_tokens) figures.push(`${said.new_tokens} tokens`);
  const right = said.metrics.exact_call === 1;
  const calls = step.expected !== null && (step.expected.length || said.calls.length);
  const text = node("pre", { textContent: said.text || "(nothing)" });
  const folded = node("details", { open: Boolean(said.problem) }, node("summary", { textContent: "the answer as it was written" }), text);
  return node("div", { className: "said" },
    node("p", {}, marked(MARKS[outcome(said, metric)]), " ", node("b", { textContent: data.models[said.model] }),
      node("span", { className: "quiet", textContent: `  ${figures.join(", ")}` })),
    said.problem || said.wrong ? node("p", {}, node("em", { textContent: [said.wrong, said.problem].filter(Boolean).join(": ") })) : null,
    calls ? compared(step.expected, said, right) : null,
    said.calls.length ? (said.text ? folded : null) : text);
}

function detail(step, data, metric) {
  return [
    node("h4", { textContent: "Prompt" }),
    ...(step.prompt.length ? step.prompt.map(turn) : [node("p", { textContent: "The record is not in this run." })]),
    node("h4", { textContent: "Expected and given" }),
    step.expected?.length === 0 ? node("p", { textContent: "No call is expected." }) : null,
    step.recorded && !step.expected?.length && step.recorded[1] ? turn(["recorded", ...step.recorded.slice(1)]) : null,
    ...step.said.map((said) => answer(said, step, data, metric)),
    node("h4", { textContent: `Tools (${step.tools.length})` }), ...step.tools.map(tool),
    node("p", { className: "quiet end" }, `${step.id} / ${step.turn}`, ["", ...Object.entries(step.slices).map(([name, value]) => `${name} ${value}`)].join("  ·  ")),
  ];
}

// A list of items, filters over it, and the chosen one in full. `chosen`: the values of the filters, which `keeps` reads; `filters`
// makes their controls. `marks` and `title` of an item stand in the list, `detail` makes the rest.
function viewer(place, { items, chosen, keeps, filters, marks, title, detail, counted, none }) {
  const list = node("div", { className: "list" });
  const count = node("p", { className: "quiet" });
  const panes = node("div", { className: "panes" }, list, node("div", { className: "detail" }));
  let shown = [], length = PAGE, current = null;

  function open(item) {
    current = item;
    panes.lastChild.replaceWith(node("div", { className: "detail" }, ...(item ? detail(item) : [])));
    for (const row of list.children) row.setAttribute("aria-current", row.item === item);
  }
  function row(item) {
    return node("button", { type: "button", item, onclick: () => open(item) }, marked(marks(item)), node("span", { textContent: title(item) }));
  }
  function draw() {
    shown = items.filter(keeps);
    const left = shown.length - length;
    list.replaceChildren(...shown.slice(0, length).map(row));
    if (!shown.length) list.append(node("p", { className: "quiet", textContent: none }));
    if (left > 0) list.append(node("button", { type: "button", textContent: `${left} more`, onclick: () => { length += PAGE; draw(); } }));
    count.textContent = counted(shown.length);
    open(shown.includes(current) ? current : shown[0] ?? null);
  }
  function choose(change) { Object.assign(chosen, change); length = PAGE; draw(); }

  const search = node("input", { type: "search", oninput: () => choose({ text: search.value.toLowerCase() }) });
  const controls = node("div", { className: "controls" }, ...filters(choose), node("label", {}, "text", search));
  place.replaceChildren(controls, count, panes);
  draw();
}

function predictions(place, data) {
  const items = data.steps.map((step, index) => read(step, index, data));
  const chosen = { model: -1, metric: 0, outcome: "any", problem: "", wrong: "", slice: null, text: "" };
  const wrong = [...new Set(items.flatMap((step) => step.said.map((said) => said.wrong)))].filter(Boolean).sort();
  const problems = [...new Set(items.flatMap((step) => step.said.map((said) => said.problem)))].filter(Boolean).sort();
  const slices = [...new Set(items.flatMap((step) => Object.entries(step.slices).map((pair) => JSON.stringify(pair))))].sort();
  viewer(place, {
    items, chosen, none: "No prompt matches.",
    keeps: (step) => keeps(step, chosen),
    marks: (step) => step.said.map((said) => MARKS[outcome(said, chosen.metric)]).join(""),
    title: (step) => (step.called ? `after ${step.called}: ${step.question}` : step.question),
    detail: (step) => detail(step, data, chosen.metric),
    counted: (count) => `${count} of ${items.length} prompts.  ${data.models.length > 1 ? `One mark per model (${data.models.join(", ")})` : "Marks"} by ${data.titles[chosen.metric]}: ● right, ○ wrong, ✕ unreadable, · not measured.`,
    filters: (choose) => [
      select("model", [[-1, "any model"], ...data.models.map((name, at) => [at, name])], -1, (value) => choose({ model: Number(value) })),
      select("by", data.titles.map((name, at) => [at, name]), chosen.metric, (value) => choose({ metric: Number(value) })),
      select("outcome", Object.entries(OUTCOMES), "any", (value) => choose({ outcome: value })),
      ...(wrong.length ? [select("wrong by", [["", "any"], ...wrong.map((name) => [name, name])], "", (value) => choose({ wrong: value }))] : []),
      ...(problems.length ? [select("problem", [["", "any"], ...problems.map((name) => [name, name])], "", (value) => choose({ problem: value }))] : []),
      select("slice", [["", "all"], ...slices.map((pair) => [pair, JSON.parse(pair).join(": ")])], "",
        (value) => choose({ slice: value ? JSON.parse(value) : null })),
    ],
  });
}

// --- rollouts: conversations of a model with a user and a world ---

const LONG = 600; // characters of a text that is shown unfolded
const figure = (value) => (Number.isInteger(value) ? String(value) : value.toFixed(2));
const figures = (scores) => Object.entries(scores).map(([name, value]) => `${name} ${figure(value)}`).join("  ·  ");

// The model's turns are the assistant's last messages: a prompt may have others.
function readRollout(row, data) {
  const said = row.messages.flatMap(({ role }, at) => (role === "assistant" ? [at] : []));
  const places = said.slice(said.length - row.turns.length), messages = row.messages.map(message);
  const prompt = messages.slice(0, places[0]);
  return {
    problem: "", ...row, messages: prompt, byTurn: row.by_turn, run: row.sample === null ? "greedy" : `rollout ${row.sample}`,
    values: data.metrics.map((name) => row.scores[name] ?? null), tools: row.tools.map((at) => data.tools[at]),
    turns: row.turns.map((turn, at) => ({ results: [], user: null, problem: "", ...turn, words: messages[places[at]][1], calls: messages[places[at]][2] })),
    question: questionOf(prompt) ?? row.task,
  };
}

function rolloutOutcome(rollout, metric) {
  if (!rollout.values.some((value) => value !== null) && rollout.problem) return "unreadable";
  const value = rollout.values[metric] ?? null;
  return value === null ? "unmeasured" : value >= 1 ? "full" : value > 0 ? "partial" : "none";
}

// A text as it is; a long one is folded, its beginning and its length in sight.
function long(text, className = "") {
  if (text.length <= LONG && text.split("\n").length <= 12) return node("pre", { className, textContent: text || "(nothing)" });
  return node("details", { className }, node("summary", { textContent: `${text.slice(0, 160).replace(/\s+/g, " ")} …  (${text.length.toLocaleString("en")} characters)` }),
    node("pre", { textContent: text }));
}

function spoken(role, ...parts) {
  return node("div", { className: `turn ${role}` }, node("span", { className: "quiet", textContent: role }), node("div", {}, ...parts));
}

// What a model wrote: its thoughts folded, its words, its calls; and the text as it was sampled.
function modelSaid(turn) {
  const thought = /^\s*<think>([\s\S]*?)(?:<\/think>|$)/.exec(turn.words);
  const words = thought ? turn.words.slice(thought[0].length).trim() : turn.words;
  const plainWords = turn.text.trim() === words.trim() && !turn.calls.length;
  return [
    thought && thought[1].trim() ? node("details", { className: "thoughts" }, node("summary", { textContent: "thoughts" }), node("pre", { textContent: thought[1].trim() })) : null,
    words ? long(words, "words") : null,
    ...turn.calls.map((call) => long(inline(call), "call")),
    words || turn.calls.length ? null : node("pre", { className: "quiet", textContent: "(nothing)" }),
    turn.problem ? node("p", {}, node("em", { textContent: `cannot be read: ${turn.problem}` })) : null,
    turn.ended === "cut" ? node("p", {}, node("em", { textContent: "cut at the limit of new tokens" })) : null,
    plainWords ? null : node("details", { className: "raw" }, node("summary", { className: "quiet", textContent: `as it was sampled  ·  ${turn.new_tokens} tokens` }), node("pre", { textContent: turn.text })),
  ];
}

function resultsOf(turn) {
  return turn.results.map(([text, failed]) => spoken(failed ? "failed" : "result", long(text)));
}

function conversation(rollout) {
  const made = rollout.messages.map(([role, content, calls]) =>
    spoken(role, long([content, ...calls.map(inline)].filter(Boolean).join("\n"))));
  let heard = 0, begins = true;
  rollout.turns.forEach((turn, at) => {
    if (begins) {
      const end = rollout.turns.findIndex((one, index) => index >= at && !one.results.length);
      const results = rollout.turns.slice(at, end < 0 ? undefined : end + 1).flatMap((one) => one.results);
      const failures = results.filter(([, failed]) => failed).length;
      const counts = `${results.length} call${results.length === 1 ? "" : "s"}${failures ? `, ${failures} failed` : ""}`;
      const scores = figures(rollout.byTurn[heard] ?? {});
      made.push(node("h5", { textContent: [`Turn ${heard + 1} of the user's`, scores, counts].filter(Boolean).join("  ·  ") }));
      heard += 1;
    }
    const number = node("span", { className: "quiet", textContent: `turn ${at + 1}` });
    made.push(spoken("assistant", node("p", {}, number), ...modelSaid(turn).filter(Boolean)), ...resultsOf(turn));
    if (turn.user !== null) made.push(spoken("user", long(turn.user)));
    begins = !turn.results.length;
  });
  return made;
}

function rolloutDetail(rollout, data, metric) {
  const scores = Object.fromEntries(data.metrics.map((name, at) => [name, rollout.values[at]]).filter(([, value]) => value !== null));
  const calls = rollout.turns.flatMap((turn) => turn.results), failures = calls.filter(([, failed]) => failed).length;
  const missing = rollout.byTurn.slice(rollout.turns.filter((turn) => !turn.results.length).length + (rollout.turns.at(-1)?.results.length ? 1 : 0));
  return [
    node("p", { className: "quiet", textContent: `${rollout.task} / ${data.models[rollout.model]} / ${rollout.run}` }),
    node("p", {}, marked(MARKS[rolloutOutcome(rollout, metric)]), ` ${figures(scores) || "no score"}`,
      node("span", { className: "quiet", textContent: `  ·  ${rollout.turns.length} turns, ${failures} of ${calls.length} calls failed  ·  ended by ${rollout.ended}` })),
    rollout.problem ? node("p", {}, node("em", { textContent: rollout.problem })) : null,
    node("h4", { textContent: "Conversation" }), ...conversation(rollout),
    node("p", { className: "end" }, node("b", { textContent: `Ended by ${rollout.ended}. ` }), data.endings[rollout.ended] ?? ""),
    missing.length ? node("p", { className: "quiet", textContent: `Turns of the user's that were not reached: ${missing.map((one) => figures(one)).join(" | ")}` }) : null,
    node("h4", { textContent: `Tools (${rollout.tools.length})` }), ...rollout.tools.map(tool),
  ].filter(Boolean);
}

function rollouts(place, data) {
  const items = data.rollouts.map((one) => readRollout(one, data));
  const chosen = { model: -1, metric: 0, outcome: "any", ended: "", task: "", text: "" };
  const ended = [...new Set(items.map((one) => one.ended))].sort(), tasks = [...new Set(items.map((one) => one.task))].sort();
  const said = (one) => [one.question, one.problem, ...one.turns.flatMap((turn) => [turn.text, turn.user ?? "", ...turn.results.map(([text]) => text)])];
  const outcomes = { any: "any outcome", failed: "failed only", full: "● right", partial: "◐ partly right", none: "○ wrong", unreadable: "✕ lost", unmeasured: "· not measured" };
  viewer(place, {
    items, chosen, none: "No rollout matches.",
    keeps: (one) => (chosen.model < 0 || one.model === chosen.model) && (!chosen.ended || one.ended === chosen.ended) && (!chosen.task || one.task === chosen.task)
      && (chosen.outcome === "any" || (chosen.outcome === "failed" ? one.failed : rolloutOutcome(one, chosen.metric) === chosen.outcome))
      && (!chosen.text || one.task.toLowerCase().includes(chosen.text) || said(one).some((text) => text.toLowerCase().includes(chosen.text))),
    marks: (one) => MARKS[rolloutOutcome(one, chosen.metric)],
    title: (one) => `${data.models[one.model]}, ${one.run}: ${one.question}`,
    detail: (one) => rolloutDetail(one, data, chosen.metric),
    counted: (count) => `${count} of ${items.length} rollouts, the worst first.${data.metrics.length ? `  Marks: by ${data.metrics[chosen.metric]}.` : ""}`,
    filters: (choose) => [
      ...(data.models.length > 1 ? [select("model", [[-1, "any model"], ...data.models.map((name, at) => [at, name])], -1, (value) => choose({ model: Number(value) }))] : []),
      ...(data.metrics.length > 1 ? [select("by", data.metrics.map((name, at) => [at, name]), 0, (value) => choose({ metric: Number(value) }))] : []),
      select("outcome", Object.entries(outcomes), "any", (value) => choose({ outcome: value })),
      select("ended by", [["", "anything"], ...ended.map((name) => [name, name])], "", (value) => choose({ ended: value })),
      select("task", [["", "any task"], ...tasks.map((name) => [name, name])], "", (value) => choose({ task: value })),
    ],
  });
}

async function start() {
  for (const packed of document.querySelectorAll(".packed")) {
    const place = packed.parentElement.querySelector(".reader");
    try {
      const data = await unpack(packed.textContent);
      (data.rollouts ? rollouts : predictions)(place, data);
    } catch (error) {
      place.replaceChildren(node("p", { className: "note", textContent: `They cannot be shown here (${error.message}); ${packed.dataset.file} has them.` }));
      console.error(error);
    }
  }
  document.documentElement.dataset.milliseconds = Math.round(performance.now());
  document.documentElement.dataset.ready = "true";
}

addEventListener("load", () => setTimeout(start));
addEventListener("beforeprint", () => document.querySelectorAll("main > section > details").forEach((one) => { one.open = true; }));
