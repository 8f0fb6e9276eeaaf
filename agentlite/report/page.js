"use strict";
// The readers of predictions and of rollouts. The texts of records, models and worlds are only ever set as text, never as markup.

const PAGE = 100;
const MARKS = { full: "●", partial: "◐", none: "○", unreadable: "✕", unmeasured: "·" };
const OUTCOMES = {
  any: "any outcome", full: "● right", partial: "◐ partly right", none: "○ wrong", unreadable: "✕ unreadable",
  unmeasured: "· not measured", differ: "models differ",
};

function node(name, properties = {}, ...children) {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children.filter((child) => child !== null && child !== ""));
  return element;
}

async function unpack(packed) {
  const characters = atob(packed);
  const bytes = new Uint8Array(characters.length);
  for (let index = 0; index < characters.length; index += 1) bytes[index] = characters.charCodeAt(index);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

// What a task's own messages hold in the place of a text is shown as JSON.
const asText = (value) => (typeof value === "string" ? value : JSON.stringify(value));
const messageParts = ({ role, content, tool_calls }) => (
  [role ?? "", asText(content || ""), (tool_calls ?? []).map((call) => [call.function.name, asText(call.function.arguments ?? {})])]);

function questionOf(messages) {
  const question = messages.findLast(([role]) => role === "user") ?? messages.at(-1);
  return question?.[1].replace(/\s+/g, " ").slice(0, 300);
}

function readStep({ id, turn, expected, answers }, index, data) {
  const record = data.records[id] ?? { messages: [], tools: [] };
  const messages = record.messages.map(messageParts), prompt = messages.slice(0, turn);
  const called = prompt.at(-1)?.[0] === "tool" ? prompt.findLast(([, , calls]) => calls.length)?.[2].map(([name]) => name).join(", ") : "";
  return {
    index, called, id, turn, expected, slices: answers[0].slices ?? {}, prompt, recorded: messages[turn],
    tools: record.tools.map((number) => data.tools[number]), question: questionOf(prompt) ?? id,
    answers: answers.map((row) => ({
      ...row, values: data.metrics.map((name) => row.metrics[name] ?? null), decision: row.metrics.call_decision ?? null,
      calls: (row.calls ?? []).map((call) => [call.name, call.arguments]), wrong: data.kinds[row.wrong] ?? "",
    })),
  };
}

// Where a figure is of calls alone, and no call is expected, call or no call says whether the answer is right.
function outcomeOf(answer, metric) {
  if (answer.problem) return "unreadable";
  const value = answer.values[metric] ?? answer.decision;
  return value === null ? "unmeasured" : value >= 1 ? "full" : value > 0 ? "partial" : "none";
}

function matchesChosen(step, chosen) {
  if (chosen.slice && step.slices[chosen.slice[0]] !== chosen.slice[1]) return false;
  if (chosen.text && !step.question.toLowerCase().includes(chosen.text) && !step.id.startsWith(chosen.text)
      && !step.answers.some((answer) => answer.text.toLowerCase().includes(chosen.text))) return false;
  if (chosen.outcome === "differ") return new Set(step.answers.map((answer) => outcomeOf(answer, chosen.metric))).size > 1;
  return step.answers.some((answer) => (chosen.model < 0 || answer.model === chosen.model)
    && (chosen.outcome === "any" || outcomeOf(answer, chosen.metric) === chosen.outcome)
    && (!chosen.problem || answer.problem === chosen.problem) && (!chosen.wrong || answer.wrong === chosen.wrong));
}

function selectBox(label, options, value, onChange) {
  const box = node("select", { onchange: () => onChange(box.value) });
  for (const [key, name] of options) box.append(node("option", { value: key, textContent: name }));
  box.value = value;
  return node("label", {}, label, box);
}

function callText([name, values]) {
  let parsed;
  try { parsed = JSON.parse(values); } catch { return `${name}(${values})`; }
  return `${name}(${Object.entries(parsed).map(([key, value]) => `${key}=${JSON.stringify(value)}`).join(", ")})`;
}

function parseArguments(values) {
  try { return JSON.parse(values) ?? {}; } catch { return {}; } // any arguments will do, or the text was cut
}

const choices = (values) => (Array.isArray(values) ? values : [values]);
const comparable = (value) => (typeof value === "string" ? value.trim().toLowerCase() : JSON.stringify(value));
const accepts = (values, value) => choices(values).some((choice) => comparable(choice) === comparable(value)) || comparable(values) === comparable(value);

// Each given call with the expected call of its name, each of which is paired once.
function pairCalls(expected, calls) {
  const unpaired = [...expected];
  return calls.map((call) => {
    const index = unpaired.findIndex(([name]) => name === call[0]);
    return [call, index < 0 ? null : unpaired.splice(index, 1)[0]];
  });
}

function linesNode(lines) {
  const indent = (text) => text.length - text.trimStart().length; // is not marked
  return node("pre", {}, ...lines.flatMap(([text, marks]) => (
    [...(marks ? [text.slice(0, indent(text)), node("mark", { textContent: text.trimStart() })] : [text]), "\n"])).slice(0, -1));
}

// Lines of [text, whether it is marked]. `marks`: where the call is right as a whole, nothing is.
function expectedLines(expected, pairs, marks) {
  return expected.flatMap((call) => {
    const givenCall = pairs.find((pair) => pair[1] === call)?.[0];
    const givenValues = givenCall ? parseArguments(givenCall[1]) : {};
    const lines = Object.entries(parseArguments(call[1])).map(([key, values]) => {
      const accepted = choices(values).filter((value) => value !== "").map((value) => JSON.stringify(value)).join(" or ");
      const optional = choices(values).includes("");
      return [`  ${key} = ${accepted || '""'}${optional ? "   (may be left out)" : ""}`, marks && givenCall && !(key in givenValues) && !optional];
    });
    return [[call[0], marks && !givenCall], ...lines];
  });
}

function givenLines(pairs, marks) {
  return pairs.flatMap(([[name, values], call]) => {
    const expected = call && parseArguments(call[1]);
    const isOpen = !call || !Object.keys(expected).length; // nothing to compare the arguments with
    const lines = Object.entries(parseArguments(values)).map(([key, value]) =>
      [`  ${key} = ${JSON.stringify(value)}`, marks && !isOpen && !(key in expected && accepts(expected[key], value))]);
    return [[name, marks && !call], ...lines];
  });
}

function comparisonNode(expected, answer, right) {
  const pairs = pairCalls(expected, answer.calls);
  const side = (title, lines, none) => node("div", {}, node("span", { className: "quiet", textContent: title }),
    lines.length ? linesNode(lines) : node("pre", { className: "quiet", textContent: none }));
  return node("div", { className: "comparison" },
    side("expected", expectedLines(expected, pairs, !right), "no call"), side("given", givenLines(pairs, !right), "no call"));
}

// One mark per model; those of failures have another colour.
function marksNode(marks) {
  return node("span", { className: "marks" }, ...[...marks].map((mark) => (
    [MARKS.none, MARKS.unreadable].includes(mark) ? node("span", { className: "failed", textContent: mark }) : mark)));
}

function turnNode([role, content, calls]) {
  const text = [content, ...calls.map(callText)].filter(Boolean).join("\n");
  return node("div", { className: "turn" }, node("span", { className: "quiet", textContent: role }), node("p", { textContent: text }));
}

function toolNode({ function: { name, description, parameters } }) {
  return node("details", {}, node("summary", {}, node("b", { textContent: name }), " ", node("span", { className: "quiet", textContent: description ?? "" })),
    node("pre", { textContent: JSON.stringify(parameters ?? {}, null, 2) }));
}

function answerNode(answer, step, data, metric) {
  const values = data.titles.map((name, index) => [name, answer.values[index]]).filter(([, value]) => value !== null);
  const figures = values.map(([name, value]) => `${name} ${Number.isInteger(value) ? value : value.toFixed(2)}`);
  if (answer.new_tokens) figures.push(`${answer.new_tokens} tokens`);
  const right = answer.metrics.exact_call === 1;
  const calls = step.expected !== null && (step.expected.length || answer.calls.length);
  const text = node("pre", { textContent: answer.text || "(nothing)" });
  const folded = node("details", { open: Boolean(answer.problem) }, node("summary", { textContent: "the answer as it was written" }), text);
  return node("div", { className: "answer" },
    node("p", {}, marksNode(MARKS[outcomeOf(answer, metric)]), " ", node("b", { textContent: data.models[answer.model] }),
      node("span", { className: "quiet", textContent: `  ${figures.join(", ")}` })),
    answer.problem || answer.wrong ? node("p", {}, node("em", { textContent: [answer.wrong, answer.problem].filter(Boolean).join(": ") })) : null,
    calls ? comparisonNode(step.expected, answer, right) : null,
    answer.calls.length ? (answer.text ? folded : null) : text);
}

function stepDetail(step, data, metric) {
  return [
    node("h4", { textContent: "Prompt" }),
    ...(step.prompt.length ? step.prompt.map(turnNode) : [node("p", { textContent: "The record is not in this run." })]),
    node("h4", { textContent: "Expected and given" }),
    step.expected?.length === 0 ? node("p", { textContent: "No call is expected." }) : null,
    step.recorded && !step.expected?.length && step.recorded[1] ? turnNode(["recorded", ...step.recorded.slice(1)]) : null,
    ...step.answers.map((answer) => answerNode(answer, step, data, metric)),
    node("h4", { textContent: `Tools (${step.tools.length})` }), ...step.tools.map(toolNode),
    node("p", { className: "quiet end" }, `${step.id} / ${step.turn}`, ["", ...Object.entries(step.slices).map(([name, value]) => `${name} ${value}`)].join("  ·  ")),
  ];
}

// A list of items, filters over it, and the chosen one in full. `chosen`: the values of the filters, which `matches` reads; `filters`
// makes their controls. `marks` and `title` of an item stand in the list, `detail` makes the rest.
function viewer(container, { items, chosen, matches, filters, marks, title, detail, countText, emptyText }) {
  const list = node("div", { className: "list" });
  const count = node("p", { className: "quiet" });
  const panes = node("div", { className: "panes" }, list, node("div", { className: "detail" }));
  let matching = [], length = PAGE, current = null;

  function open(item) {
    current = item;
    panes.lastChild.replaceWith(node("div", { className: "detail" }, ...(item ? detail(item) : [])));
    for (const row of list.children) row.setAttribute("aria-current", row.item === item);
  }
  function row(item) {
    return node("button", { type: "button", item, onclick: () => open(item) }, marksNode(marks(item)), node("span", { textContent: title(item) }));
  }
  function draw() {
    matching = items.filter(matches);
    const remaining = matching.length - length;
    list.replaceChildren(...matching.slice(0, length).map(row));
    if (!matching.length) list.append(node("p", { className: "quiet", textContent: emptyText }));
    if (remaining > 0) list.append(node("button", { type: "button", textContent: `${remaining} more`, onclick: () => { length += PAGE; draw(); } }));
    count.textContent = countText(matching.length);
    open(matching.includes(current) ? current : matching[0] ?? null);
  }
  function choose(change) { Object.assign(chosen, change); length = PAGE; draw(); }

  const search = node("input", { type: "search", oninput: () => choose({ text: search.value.toLowerCase() }) });
  const controls = node("div", { className: "controls" }, ...filters(choose), node("label", {}, "text", search));
  container.replaceChildren(controls, count, panes);
  draw();
}

function showPredictions(container, data) {
  const items = data.steps.map((step, index) => readStep(step, index, data));
  const chosen = { model: -1, metric: 0, outcome: "any", problem: "", wrong: "", slice: null, text: "" };
  const wrong = [...new Set(items.flatMap((step) => step.answers.map((answer) => answer.wrong)))].filter(Boolean).sort();
  const problems = [...new Set(items.flatMap((step) => step.answers.map((answer) => answer.problem)))].filter(Boolean).sort();
  const slices = [...new Set(items.flatMap((step) => Object.entries(step.slices).map((pair) => JSON.stringify(pair))))].sort();
  viewer(container, {
    items, chosen, emptyText: "No prompt matches.",
    matches: (step) => matchesChosen(step, chosen),
    marks: (step) => step.answers.map((answer) => MARKS[outcomeOf(answer, chosen.metric)]).join(""),
    title: (step) => (step.called ? `after ${step.called}: ${step.question}` : step.question),
    detail: (step) => stepDetail(step, data, chosen.metric),
    countText: (count) => `${count} of ${items.length} prompts.  ${data.models.length > 1 ? `One mark per model (${data.models.join(", ")})` : "Marks"} by ${data.titles[chosen.metric]}: ● right, ○ wrong, ✕ unreadable, · not measured.`,
    filters: (choose) => [
      selectBox("model", [[-1, "any model"], ...data.models.map((name, index) => [index, name])], -1, (value) => choose({ model: Number(value) })),
      selectBox("by", data.titles.map((name, index) => [index, name]), chosen.metric, (value) => choose({ metric: Number(value) })),
      selectBox("outcome", Object.entries(OUTCOMES), "any", (value) => choose({ outcome: value })),
      ...(wrong.length ? [selectBox("wrong by", [["", "any"], ...wrong.map((name) => [name, name])], "", (value) => choose({ wrong: value }))] : []),
      ...(problems.length ? [selectBox("problem", [["", "any"], ...problems.map((name) => [name, name])], "", (value) => choose({ problem: value }))] : []),
      selectBox("slice", [["", "all"], ...slices.map((pair) => [pair, JSON.parse(pair).join(": ")])], "",
        (value) => choose({ slice: value ? JSON.parse(value) : null })),
    ],
  });
}

// --- rollouts: conversations of a model with a user and a world ---

const LONG_TEXT = 600; // characters of a text that is shown unfolded
const figureText = (value) => (Number.isInteger(value) ? String(value) : value.toFixed(2));
const figuresText = (scores) => Object.entries(scores).map(([name, value]) => `${name} ${figureText(value)}`).join("  ·  ");

// The model's turns are the assistant's last messages: a prompt may have others.
function readRollout(row, data) {
  const answers = row.messages.flatMap(({ role }, index) => (role === "assistant" ? [index] : []));
  const indices = answers.slice(answers.length - row.turns.length), messages = row.messages.map(messageParts);
  const prompt = messages.slice(0, indices[0]);
  return {
    problem: "", ...row, messages: prompt, byTurn: row.by_turn, run: row.sample === null ? "greedy" : `rollout ${row.sample}`,
    values: data.metrics.map((name) => row.scores[name] ?? null), tools: row.tools.map((number) => data.tools[number]),
    turns: row.turns.map((turn, number) => ({ results: [], user: null, problem: "", ...turn, words: messages[indices[number]][1], calls: messages[indices[number]][2] })),
    question: questionOf(prompt) ?? row.task,
  };
}

function rolloutOutcomeOf(rollout, metric) {
  if (!rollout.values.some((value) => value !== null) && rollout.problem) return "unreadable";
  const value = rollout.values[metric] ?? null;
  return value === null ? "unmeasured" : value >= 1 ? "full" : value > 0 ? "partial" : "none";
}

// A text as it is; a long one is folded, its beginning and its length in sight.
function textNode(text, className = "") {
  if (text.length <= LONG_TEXT && text.split("\n").length <= 12) return node("pre", { className, textContent: text || "(nothing)" });
  return node("details", { className }, node("summary", { textContent: `${text.slice(0, 160).replace(/\s+/g, " ")} …  (${text.length.toLocaleString("en")} characters)` }),
    node("pre", { textContent: text }));
}

function messageNode(role, ...parts) {
  return node("div", { className: `turn ${role}` }, node("span", { className: "quiet", textContent: role }), node("div", {}, ...parts));
}

// What a model wrote: its thoughts folded, its words, its calls; and the text as it was sampled.
function modelTurnNodes(turn) {
  const thought = /^\s*<think>([\s\S]*?)(?:<\/think>|$)/.exec(turn.words);
  const words = thought ? turn.words.slice(thought[0].length).trim() : turn.words;
  const isPlain = turn.text.trim() === words.trim() && !turn.calls.length;
  return [
    thought && thought[1].trim() ? node("details", { className: "thoughts" }, node("summary", { textContent: "thoughts" }), node("pre", { textContent: thought[1].trim() })) : null,
    words ? textNode(words, "words") : null,
    ...turn.calls.map((call) => textNode(callText(call), "call")),
    words || turn.calls.length ? null : node("pre", { className: "quiet", textContent: "(nothing)" }),
    turn.problem ? node("p", {}, node("em", { textContent: `cannot be read: ${turn.problem}` })) : null,
    turn.ended === "cut" ? node("p", {}, node("em", { textContent: "cut at the limit of new tokens" })) : null,
    isPlain ? null : node("details", { className: "raw" }, node("summary", { className: "quiet", textContent: `as it was sampled  ·  ${turn.new_tokens} tokens` }), node("pre", { textContent: turn.text })),
  ];
}

function resultNodes(turn) {
  return turn.results.map(([text, failed]) => messageNode(failed ? "failed" : "result", textNode(text)));
}

function conversationNodes(rollout) {
  const nodes = rollout.messages.map(([role, content, calls]) =>
    messageNode(role, textNode([content, ...calls.map(callText)].filter(Boolean).join("\n"))));
  let userTurns = 0, begins = true;
  rollout.turns.forEach((turn, index) => {
    if (begins) {
      const end = rollout.turns.findIndex((later, number) => number >= index && !later.results.length);
      const results = rollout.turns.slice(index, end < 0 ? undefined : end + 1).flatMap((later) => later.results);
      const failures = results.filter(([, failed]) => failed).length;
      const counts = `${results.length} call${results.length === 1 ? "" : "s"}${failures ? `, ${failures} failed` : ""}`;
      const scores = figuresText(rollout.byTurn[userTurns] ?? {});
      nodes.push(node("h5", { textContent: [`Turn ${userTurns + 1} of the user's`, scores, counts].filter(Boolean).join("  ·  ") }));
      userTurns += 1;
    }
    const number = node("span", { className: "quiet", textContent: `turn ${index + 1}` });
    nodes.push(messageNode("assistant", node("p", {}, number), ...modelTurnNodes(turn).filter(Boolean)), ...resultNodes(turn));
    if (turn.user !== null) nodes.push(messageNode("user", textNode(turn.user)));
    begins = !turn.results.length;
  });
  return nodes;
}

function rolloutDetail(rollout, data, metric) {
  const scores = Object.fromEntries(data.metrics.map((name, index) => [name, rollout.values[index]]).filter(([, value]) => value !== null));
  const calls = rollout.turns.flatMap((turn) => turn.results), failures = calls.filter(([, failed]) => failed).length;
  const unreached = rollout.byTurn.slice(rollout.turns.filter((turn) => !turn.results.length).length + (rollout.turns.at(-1)?.results.length ? 1 : 0));
  return [
    node("p", { className: "quiet", textContent: `${rollout.task} / ${data.models[rollout.model]} / ${rollout.run}` }),
    node("p", {}, marksNode(MARKS[rolloutOutcomeOf(rollout, metric)]), ` ${figuresText(scores) || "no score"}`,
      node("span", { className: "quiet", textContent: `  ·  ${rollout.turns.length} turns, ${failures} of ${calls.length} calls failed  ·  ended by ${rollout.ended}` })),
    rollout.problem ? node("p", {}, node("em", { textContent: rollout.problem })) : null,
    node("h4", { textContent: "Conversation" }), ...conversationNodes(rollout),
    node("p", { className: "end" }, node("b", { textContent: `Ended by ${rollout.ended}. ` }), data.endings[rollout.ended] ?? ""),
    unreached.length ? node("p", { className: "quiet", textContent: `Turns of the user's that were not reached: ${unreached.map(figuresText).join(" | ")}` }) : null,
    node("h4", { textContent: `Tools (${rollout.tools.length})` }), ...rollout.tools.map(toolNode),
  ].filter(Boolean);
}

function showRollouts(container, data) {
  const items = data.rollouts.map((rollout) => readRollout(rollout, data));
  const chosen = { model: -1, metric: 0, outcome: "any", ended: "", task: "", text: "" };
  const ended = [...new Set(items.map((rollout) => rollout.ended))].sort(), tasks = [...new Set(items.map((rollout) => rollout.task))].sort();
  const texts = (rollout) => [rollout.question, rollout.problem, ...rollout.turns.flatMap((turn) => [turn.text, turn.user ?? "", ...turn.results.map(([text]) => text)])];
  const outcomes = { any: "any outcome", failed: "failed only", full: "● right", partial: "◐ partly right", none: "○ wrong", unreadable: "✕ lost", unmeasured: "· not measured" };
  viewer(container, {
    items, chosen, emptyText: "No rollout matches.",
    matches: (rollout) => (chosen.model < 0 || rollout.model === chosen.model) && (!chosen.ended || rollout.ended === chosen.ended) && (!chosen.task || rollout.task === chosen.task)
      && (chosen.outcome === "any" || (chosen.outcome === "failed" ? rollout.failed : rolloutOutcomeOf(rollout, chosen.metric) === chosen.outcome))
      && (!chosen.text || rollout.task.toLowerCase().includes(chosen.text) || texts(rollout).some((text) => text.toLowerCase().includes(chosen.text))),
    marks: (rollout) => MARKS[rolloutOutcomeOf(rollout, chosen.metric)],
    title: (rollout) => `${data.models[rollout.model]}, ${rollout.run}: ${rollout.question}`,
    detail: (rollout) => rolloutDetail(rollout, data, chosen.metric),
    countText: (count) => `${count} of ${items.length} rollouts, the worst first.${data.metrics.length ? `  Marks: by ${data.metrics[chosen.metric]}.` : ""}`,
    filters: (choose) => [
      ...(data.models.length > 1 ? [selectBox("model", [[-1, "any model"], ...data.models.map((name, index) => [index, name])], -1, (value) => choose({ model: Number(value) }))] : []),
      ...(data.metrics.length > 1 ? [selectBox("by", data.metrics.map((name, index) => [index, name]), 0, (value) => choose({ metric: Number(value) }))] : []),
      selectBox("outcome", Object.entries(outcomes), "any", (value) => choose({ outcome: value })),
      selectBox("ended by", [["", "anything"], ...ended.map((name) => [name, name])], "", (value) => choose({ ended: value })),
      selectBox("task", [["", "any task"], ...tasks.map((name) => [name, name])], "", (value) => choose({ task: value })),
    ],
  });
}

async function start() {
  for (const packed of document.querySelectorAll(".packed")) {
    const container = packed.parentElement.querySelector(".reader");
    try {
      const data = await unpack(packed.textContent);
      (data.rollouts ? showRollouts : showPredictions)(container, data);
    } catch (error) {
      container.replaceChildren(node("p", { className: "note", textContent: `They cannot be shown here (${error.message}); ${packed.dataset.file} has them.` }));
      console.error(error);
    }
  }
  document.documentElement.dataset.milliseconds = Math.round(performance.now());
  document.documentElement.dataset.ready = "true";
}

addEventListener("load", () => setTimeout(start));
addEventListener("beforeprint", () => document.querySelectorAll("main > section > details").forEach((details) => { details.open = true; }));
