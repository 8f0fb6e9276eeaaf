"use strict";
// The reader of single predictions. The texts of records and models are only ever set as text, never as markup.

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

function read([id, turn, record, expected, slices, said], index, data) {
  const [messages, tools] = record === null ? [[], []] : data.records[record];
  const prompt = messages.slice(0, turn);
  const asked = prompt.findLast((message) => message[0] === "user") ?? prompt.at(-1);
  return {
    index, id, turn, anchor: `${id}/${turn}`, expected, slices, prompt, recorded: messages[turn], tools: tools.map((tool) => data.tools[tool]),
    question: asked ? asked[1].replace(/\s+/g, " ").slice(0, 300) : id,
    said: said.map(([model, text, problem, values, tokens, calls]) => ({ model, text, problem, values, tokens, calls })),
  };
}

function outcome(said, metric) {
  if (said.problem) return "unreadable";
  const value = said.values[metric];
  return value === null ? "unmeasured" : value >= 1 ? "full" : value > 0 ? "partial" : "none";
}

function keeps(step, chosen) {
  if (chosen.slice && step.slices[chosen.slice[0]] !== chosen.slice[1]) return false;
  if (chosen.text && !step.question.toLowerCase().includes(chosen.text) && !step.id.startsWith(chosen.text)
      && !step.said.some((said) => said.text.toLowerCase().includes(chosen.text))) return false;
  if (chosen.outcome === "differ") return new Set(step.said.map((said) => outcome(said, chosen.metric))).size > 1;
  return step.said.some((said) => (chosen.model < 0 || said.model === chosen.model)
    && (chosen.outcome === "any" || outcome(said, chosen.metric) === chosen.outcome)
    && (!chosen.problem || said.problem === chosen.problem));
}

function select(label, options, value, changed) {
  const made = node("select", { onchange: () => changed(made.value) });
  for (const [key, name] of options) made.append(node("option", { value: key, textContent: name }));
  made.value = value;
  return node("label", {}, label, made);
}

function hardest(data) {
  const sums = data.metrics.map(() => [0, 0]);
  for (const step of data.steps) for (const said of step[5]) said[3].forEach((value, at) => {
    if (value !== null) { sums[at][0] += value; sums[at][1] += 1; }
  });
  const means = sums.map(([sum, count]) => (count ? sum / count : Infinity));
  return Math.max(0, means.indexOf(Math.min(...means)));
}

function inline([name, values]) {
  let read;
  try { read = JSON.parse(values); } catch { return `${name}(${values})`; }
  return `${name}(${Object.entries(read).map(([key, value]) => `${key}=${JSON.stringify(value)}`).join(", ")})`;
}

function parsed(values) {
  try { return JSON.parse(values); } catch { return {}; } // any arguments will do, or the text was cut
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
  return node("pre", {}, ...lines.flatMap(([text, marked]) => [marked ? node("mark", { textContent: text }) : text, "\n"]).slice(0, -1));
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

function turn([role, content, calls]) {
  const text = [content, ...calls.map(inline)].filter(Boolean).join("\n");
  return node("div", { className: "turn" }, node("span", { className: "quiet", textContent: role }), node("p", { textContent: text }));
}

function tool([name, description, parameters]) {
  let text = parameters;
  try { text = JSON.stringify(JSON.parse(parameters), null, 2); } catch { /* it was cut: shown as it is */ }
  return node("details", {}, node("summary", {}, node("b", { textContent: name }), " ", node("span", { className: "quiet", textContent: description })),
    node("pre", { textContent: text }));
}

function answer(said, step, data, metric) {
  const values = data.metrics.map((name, at) => [name, said.values[at]]).filter(([, value]) => value !== null);
  const figures = values.map(([name, value]) => `${name} ${Number.isInteger(value) ? value : value.toFixed(2)}`).join("  ·  ");
  const right = said.values[data.metrics.indexOf("exact_call")] === 1;
  const calls = step.expected !== null && (step.expected.length || said.calls.length);
  const text = node("pre", { textContent: said.text || "(nothing)" });
  const folded = node("details", { open: Boolean(said.problem) }, node("summary", { textContent: "the answer as it was written" }), text);
  return node("div", { className: "said" },
    node("p", {}, node("span", { className: "marks", textContent: MARKS[outcome(said, metric)] }), " ", node("b", { textContent: data.models[said.model] }),
      node("span", { className: "quiet", textContent: `  ${figures}  ·  ${said.tokens} tokens` })),
    said.problem ? node("p", {}, node("em", { textContent: said.problem })) : null,
    calls ? compared(step.expected, said, right) : null,
    said.calls.length ? (said.text ? folded : null) : text);
}

function detail(step, data, metric) {
  return node("div", { className: "detail" },
    node("p", { className: "quiet" }, node("a", { href: `#${encodeURIComponent(step.anchor)}`, textContent: `${step.id} / ${step.turn}` }),
      ["", ...Object.values(step.slices)].join("  ·  ")),
    node("h4", { textContent: "Prompt" }),
    ...(step.prompt.length ? step.prompt.map(turn) : [node("p", { textContent: "The record is not in this run." })]),
    node("h4", { textContent: `Tools (${step.tools.length})` }), ...step.tools.map(tool),
    node("h4", { textContent: "Expected and given" }),
    step.expected?.length === 0 ? node("p", { textContent: "No call is expected." }) : null,
    step.recorded && !step.expected?.length && step.recorded[1] ? turn(step.recorded) : null,
    ...step.said.map((said) => answer(said, step, data, metric)));
}

function reader(place, data) {
  const steps = data.steps.map((step, index) => read(step, index, data));
  const chosen = { model: -1, metric: hardest(data), outcome: "any", problem: "", slice: null, text: "" };
  const list = node("div", { className: "list" });
  const count = node("p", { className: "quiet" });
  const panes = node("div", { className: "panes" }, list, node("div", { className: "detail" }));
  let shown = [], length = PAGE, current = null;

  function open(step) {
    current = step;
    panes.lastChild.replaceWith(step ? detail(step, data, chosen.metric) : node("div", { className: "detail" }));
    for (const row of list.children) row.setAttribute("aria-current", row.step === step);
  }
  function row(step) {
    const marks = step.said.map((said) => MARKS[outcome(said, chosen.metric)]).join("");
    return node("button", { type: "button", step, onclick: () => open(step) },
      node("span", { className: "marks", textContent: marks }), node("span", { textContent: step.question }));
  }
  function draw() {
    shown = steps.filter((step) => keeps(step, chosen));
    const left = shown.length - length;
    list.replaceChildren(...shown.slice(0, length).map(row));
    if (!shown.length) list.append(node("p", { className: "quiet", textContent: "No prompt matches." }));
    if (left > 0) list.append(node("button", { type: "button", textContent: `${left} more`, onclick: () => { length += PAGE; draw(); } }));
    count.textContent = `${shown.length} of ${steps.length} prompts.  Marks: ${data.models.join(", ")}, by ${data.metrics[chosen.metric]}.`;
    open(shown.includes(current) ? current : shown[0] ?? null);
  }
  function nextFailure() {
    const failed = (step) => step.said.some((said) => (chosen.model < 0 || said.model === chosen.model)
      && ["none", "partial", "unreadable"].includes(outcome(said, chosen.metric)));
    const from = shown.indexOf(current) + 1;
    goTo([...shown.slice(from), ...shown.slice(0, from)].find(failed));
  }
  function goTo(step) {
    if (!step) return;
    current = step;
    while (length <= shown.indexOf(step)) length += PAGE;
    draw();
    list.children[shown.indexOf(step)].scrollIntoView({ block: "nearest" });
  }
  function followLink() {
    const linked = shown.find((step) => `#${step.anchor}` === decodeURIComponent(location.hash));
    goTo(linked);
    if (linked) place.scrollIntoView();
  }
  list.onkeydown = (event) => {
    const side = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[event.key];
    const next = side && document.activeElement[side];
    if (next?.step) { event.preventDefault(); next.focus(); open(next.step); }
  };
  function choose(change) { Object.assign(chosen, change); length = PAGE; draw(); }

  const problems = [...new Set(steps.flatMap((step) => step.said.map((said) => said.problem)))].filter(Boolean).sort();
  const slices = [...new Set(steps.flatMap((step) => Object.entries(step.slices).map((pair) => JSON.stringify(pair))))].sort();
  const search = node("input", { type: "search", oninput: () => choose({ text: search.value.toLowerCase() }) });
  const controls = node("div", { className: "controls" },
    select("model", [[-1, "any model"], ...data.models.map((name, at) => [at, name])], -1, (value) => choose({ model: Number(value) })),
    select("by", data.metrics.map((name, at) => [at, name]), chosen.metric, (value) => choose({ metric: Number(value) })),
    select("outcome", Object.entries(OUTCOMES), "any", (value) => choose({ outcome: value })),
    problems.length ? select("problem", [["", "any"], ...problems.map((name) => [name, name])], "", (value) => choose({ problem: value })) : null,
    select("slice", [["", "all"], ...slices.map((pair) => [pair, JSON.parse(pair).join(": ")])], "",
      (value) => choose({ slice: value ? JSON.parse(value) : null })),
    node("label", {}, "text", search),
    node("button", { type: "button", textContent: "next failure", onclick: nextFailure }));
  place.replaceChildren(controls, count, panes);
  draw();
  followLink();
  addEventListener("hashchange", followLink);
}

async function start() {
  for (const packed of document.querySelectorAll(".packed")) {
    const place = packed.parentElement.querySelector(".reader");
    try {
      reader(place, await unpack(packed.textContent));
    } catch (error) {
      place.replaceChildren(node("p", { className: "note", textContent: `The predictions cannot be shown here (${error.message}); predictions.jsonl has them.` }));
      console.error(error);
    }
  }
  document.documentElement.dataset.milliseconds = Math.round(performance.now());
  document.documentElement.dataset.ready = "true";
}

addEventListener("load", () => setTimeout(start));
addEventListener("beforeprint", () => document.querySelectorAll("main > section > details").forEach((one) => { one.open = true; }));
