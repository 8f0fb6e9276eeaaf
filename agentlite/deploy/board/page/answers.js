// The answers of one evaluation, a page at a time, and one of them whole: what was asked, expected and given.
import { ask } from "./ask.js";
import { board, go, place } from "./board.js";
import { node, short } from "./dom.js";

const PAGE = 25;
const PAUSE = 25;  // ms after the last key until the answers are searched
let parts = null;
let here = 0;

export function show(main) {
  const { words } = place();
  const id = words.get("answers");
  parts = { id, shown: "", timer: 0, asked: 0, links: [] };
  const back = new URLSearchParams(words);
  back.delete("open");
  const head = node("div", { className: "tools" }, node("a", { href: "#results", textContent: "All evaluations" }),
    words.get("open") ? node("a", { href: `#results?${back}`, textContent: "All answers" }) : "",
    board.rows.has(id) ? node("a", { href: `#results?${new URLSearchParams({ run: board.rows.get(id).run })}`, textContent: "Report" }) : "");
  const title = node("h2", { textContent: id });
  if (words.get("open")) return whole(main, head, title, words.get("open"));
  const text = node("input", { type: "search", id: "filter", value: words.get("text") ?? "", placeholder: "get_weather", oninput: () => { clearTimeout(parts.timer); parts.timer = setTimeout(() => filtered("text", text.value), PAUSE); } });
  parts.wrong = node("select", { onchange: () => filtered("wrong", parts.wrong.value) });
  parts.state = node("span", { className: "quiet", role: "status" });
  parts.list = node("div");
  parts.none = node("p", { className: "quiet" });
  parts.pager = node("div", { className: "tools" });
  main.replaceChildren(head, title, node("div", { className: "tools" }, node("label", {}, "Show", parts.wrong), node("label", {}, "Answer contains", text), parts.state), parts.list, parts.pager);
  return load();
}

function filtered(name, value) {
  const { words } = place();
  words.set(name, value);
  words.delete("first");
  go("results", words, { replace: true });
  here = 0;
  return load();
}

function turnTo(first) {
  const { words } = place();
  words.set("first", first || "");
  go("results", words, { replace: true });
  here = 0;
  return load().then(() => scrollTo(0, 0));
}

// Asks again until the file is read, or another page is wanted.
async function load() {
  const mine = parts;
  const turn = mine.asked += 1;
  const { words } = place();
  const query = { id: mine.id, wrong: words.get("wrong") ?? "", text: words.get("text") ?? "", first: words.get("first") || 0 };
  for (let more = true; more;) {
    const found = await ask("page", query);
    if (mine !== parts || turn !== mine.asked) return;
    ({ more } = found);
    const shown = JSON.stringify(found);
    if (shown !== mine.shown) draw(found, words);
    mine.shown = shown;
  }
}

function draw(found, words) {
  const counts = Object.entries(found.answers);
  const all = counts.reduce((sum, [, count]) => sum + count, 0);
  const right = found.answers[""] ?? 0;
  const choices = [["", `all answers (${all})`], ["wrong", `wrong answers (${all - right})`], ["right", `right answers (${right})`], ...counts.filter(([kind]) => kind).map(([kind, count]) => [kind, `${found.kinds[kind]} (${count})`])];
  if (JSON.stringify(choices) !== parts.choices && document.activeElement !== parts.wrong) {
    parts.choices = JSON.stringify(choices);
    parts.wrong.replaceChildren(...choices.map(([value, textContent]) => node("option", { value, textContent })));
    parts.wrong.value = words.get("wrong") ?? "";
  }
  const unread = `${found.unread ? `; ${found.unread} lines could not be read` : ""}${found.unknown ? `. What was expected is not known: ${found.unknown}` : ""}`;
  parts.state.textContent = `${found.found.toLocaleString("en")} of ${all.toLocaleString("en")} answers${found.more ? ", reading…" : ""}${unread}`;
  const last = found.first + found.rows.length;
  const button = (name, first, on) => node("button", { type: "button", textContent: name, disabled: !on, onclick: () => turnTo(first) });
  const pager = [button("First", 0, found.first > 0), button("Previous", Math.max(0, found.first - PAGE), found.first > 0),
    node("span", { className: "quiet", textContent: found.rows.length ? `${(found.first + 1).toLocaleString("en")} to ${last.toLocaleString("en")}` : "" }),
    button("Next", found.first + PAGE, last < found.found), button("Last", Math.floor(Math.max(0, found.found - 1) / PAGE) * PAGE, last < found.found)];
  const focused = parts.pager.contains(document.activeElement) ? document.activeElement.textContent : "";
  parts.pager.replaceChildren(...pager);
  if (focused) pager.find((one) => one.textContent === focused && !one.disabled)?.focus();
  if (!found.rows.length) parts.none.textContent = found.more ? "" : "No answer fits.";
  const rows = JSON.stringify([found.rows, words.toString(), here]);
  if (rows === parts.rows && found.rows.length) return;  // only the number of answers has grown
  parts.rows = rows;
  parts.links = found.rows.map((row) => opened(row.number));
  parts.list.replaceChildren(...found.rows.map((row, at) => node("article", { className: `answer${at === here ? " here" : ""}`, "data-number": row.number },
    node("p", { className: "parts" }, node("a", { href: parts.links[at], textContent: `${row.record}/${row.turn}` }), outcome(row), tried(parts.id, row)),
    row.question ? node("p", { className: "asked", textContent: row.question }) : "",
    node("div", { className: "sides" }, side("expected", row.expected === null ? "not known" : inline(row.expected, true)), side("given", row.given.length ? inline(row.given) : row.text || "nothing")))));
  if (!found.rows.length) parts.list.replaceChildren(parts.none);
}

function opened(number) {
  const { words } = place();
  words.set("open", number);
  return `#results?${words}`;
}

// A chat that begins with the same messages and tools, and the model that gave this answer.
export function tried(id, row) {
  return node("a", { className: "try", href: `#chat?${new URLSearchParams({ about: id, record: row.record, turn: row.turn })}`, textContent: "try this prompt" });
}

// Asks until the file is read as far as the row that is wanted. `reading` says whether it still is.
export async function read(path, query, reading) {
  for (;;) {
    const found = await ask(path, query);
    if (found.reading === undefined || !reading(`${Math.floor(100 * found.reading)} %`)) return found;
  }
}

function outcome(row) {
  return node("span", { className: row.wrong ? "wrong" : "done", textContent: row.wrong || "right" });
}

// `accepted`: each argument has a list of values that are right.
function inline(calls, accepted = false) {
  const said = (value) => (accepted ? choices(value).filter((one) => one !== "").map((one) => JSON.stringify(one)).join(" or ") || '""' : JSON.stringify(value));
  return calls.map(([name, values]) => {
    let read = null;
    try { read = JSON.parse(values); } catch { /* any arguments will do, or the text was cut */ }
    const words = read ? Object.entries(read).map(([key, value]) => `${key}=${said(value)}`).join(", ") : values || "any arguments";
    return `${name || "any tool"}(${words})`;
  }).join("; ") || "no call";
}

const side = (title, text) => node("div", {}, node("span", { className: "quiet", textContent: title }), node("pre", { textContent: text }));

function parsed(values) {
  try { return JSON.parse(values) ?? {}; } catch { return {}; }  // any arguments will do, or the text is not JSON
}

const choices = (values) => (Array.isArray(values) ? values : [values]);
const plain = (value) => (typeof value === "string" ? value.trim().toLowerCase() : JSON.stringify(value));

// Each expected call beside the given one of its name; what differs is marked, where the answer is wrong.
function compared(one) {
  const left = [...one.given];
  const pairs = (one.expected ?? []).map((call) => {
    const at = left.findIndex(([name]) => !call[0] || name === call[0]);
    return [call, at < 0 ? null : left.splice(at, 1)[0]];
  });
  const marked = (text, marks) => (marks && one.wrong ? node("mark", { textContent: text }) : text);
  const lines = (name, values, differs, said) => [marked(name, differs), "\n", ...Object.entries(values).flatMap(([key, value]) => ["  ", ...said(key, value), "\n"])];
  const wanted = pairs.flatMap(([[name, values], given]) => {
    const has = given ? parsed(given[1]) : {};
    return values ? lines(name || "any tool", parsed(values), !given, (key, accepted) => {
      const optional = choices(accepted).includes("");
      const known = choices(accepted).filter((value) => value !== "").map((value) => JSON.stringify(value)).join(" or ");
      return [marked(`${key} = ${known || '""'}`, given && !(key in has) && !optional), optional ? "   (may be left out)" : ""];
    }) : [marked(name || "any tool", !given), " with any arguments\n"];
  });
  const made = [...pairs.filter(([, given]) => given), ...left.map((call) => [null, call])].flatMap(([call, given]) => {
    const accepted = call?.[1] ? parsed(call[1]) : null;
    return lines(given[0], parsed(given[1]), !call, (key, value) => [marked(`${key} = ${JSON.stringify(value)}`, accepted && !choices(accepted[key] ?? []).some((each) => plain(each) === plain(value)) && plain(accepted[key] ?? null) !== plain(value))]);
  });
  const column = (title, parts) => node("div", {}, node("span", { className: "quiet", textContent: title }), node("pre", {}, ...parts));
  return node("div", { className: "sides" }, column("expected", one.expected === null ? [`not known: ${one.unknown}`] : wanted.length ? wanted : ["no call"]), column("given", made.length ? made : ["no call"]));
}

async function whole(main, head, title, number) {
  const mine = parts;
  const state = node("p", { className: "quiet", role: "status" });
  const one = await read("answer", { id: mine.id, number }, (part) => {
    if (mine !== parts) return false;
    if (!state.isConnected) main.replaceChildren(head, title, state);
    state.textContent = `The answers are being read: ${part}.`;
    return true;
  });
  if (mine !== parts) return;
  const turns = one.messages.map((message) => node("div", { className: `turn ${message.role}` }, node("p", { className: "quiet", textContent: message.role }),
    message.content ? node("pre", { textContent: message.content }) : "",
    (message.tool_calls ?? []).map((call) => node("pre", {}, node("b", { textContent: call.function.name }), `(${call.function.arguments})`))));
  const figures = [...Object.entries(one.metrics), ...Object.entries(one.slices)].map(([name, value]) => node("span", {}, `${name.replaceAll("_", " ")} `, node("b", { textContent: short(value) })));
  main.replaceChildren(head, title, node("article", {},
    node("p", { className: "parts" }, node("span", { textContent: `${one.record}/${one.turn}` }), outcome(one), one.messages.length ? tried(mine.id, one) : ""),
    node("div", { className: "dialog" }, turns),
    one.tools.length ? node("details", {}, node("summary", { textContent: `${one.tools.length} tools` }), one.tools.map((tool) => node("pre", { textContent: JSON.stringify(tool.function, null, 2) }))) : "",
    compared(one), one.problem ? node("p", { className: "wrong", textContent: one.problem }) : "",
    node("h3", { textContent: "What the model wrote" }), node("pre", { className: "log", tabIndex: 0, textContent: one.text || "nothing" }),
    node("p", { className: "parts" }, figures, node("span", { textContent: `${one.tokens} tokens` }))));
}

export function key(name) {
  const rows = [...(parts?.list?.children ?? [])];
  if (name === "j" || name === "k") {
    rows[here]?.classList.remove("here");
    here = Math.max(0, Math.min(rows.length - 1, here + (name === "j" ? 1 : -1)));
    rows[here]?.classList.add("here");
    rows[here]?.scrollIntoView({ block: "nearest" });
  } else if (name === "n" || name === "p") [...parts.pager?.children ?? []].find((one) => one.textContent === (name === "n" ? "Next" : "Previous"))?.click();
  else if (name === "Enter" && parts.links[here]) location.hash = parts.links[here];
  else return false;
  return true;
}
