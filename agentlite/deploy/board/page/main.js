// Which view is open, and the pulse that keeps it fresh.
import { board, go, place, refresh } from "./board.js";
import * as chat from "./chat.js";
import * as curves from "./curves.js";
import * as results from "./results.js";
import * as runs from "./runs.js";
import * as start from "./start.js";

const VIEWS = { runs, curves, results, start, chat };
const PULSE = 2000;
const main = document.getElementById("main");
const trouble = document.getElementById("trouble");

function summary() {
  const counts = {};
  for (const row of board.rows.values()) counts[row.state] = (counts[row.state] ?? 0) + 1;
  const words = ["running", "done", "half", "failed", "broken"].filter((state) => counts[state]).map((state) => `${counts[state]} ${state === "half" ? "half done" : state}`);
  const text = (words.join(" · ") || "no stage yet") + (board.waiting ? ` · ${board.waiting} workspaces to read` : "");
  const element = document.getElementById("summary");
  if (element.textContent !== text) element.textContent = text;
  document.title = counts.running ? `(${counts.running}) agentlite board` : "agentlite board";
}

async function show() {
  const { view } = place();
  const name = view in VIEWS ? view : "runs";
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.view === name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  await guarded(() => VIEWS[name].show(main));
}

async function guarded(act) {
  try {
    await act();
    trouble.hidden = true;
  } catch (error) {
    trouble.textContent = error instanceof TypeError && /fetch/i.test(error.message) ? "The board does not answer: was it stopped? Training goes on without it." : error.message;
    trouble.hidden = false;
  }
}

async function pulse() {
  if (!document.hidden) {
    await guarded(async () => {
      const changed = await refresh();
      summary();
      const { view } = place();
      if (view === "curves" || view === "start" || view === "chat") await VIEWS[view].update();
      else if (changed && view === "results") await results.update();
      else if (changed && (view === "runs" || !(view in VIEWS))) runs.update();
    });
  }
  setTimeout(pulse, board.waiting ? 50 : PULSE);
}

addEventListener("hashchange", show);
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.matches("input, select, textarea")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const { view } = place();
  const views = Object.keys(VIEWS);
  if (views[event.key - 1]) go(views[event.key - 1], new URLSearchParams());
  else if (event.key === "/" && document.getElementById("filter")) document.getElementById("filter").focus();
  else if (event.target.matches("a, button") && event.key === "Enter") return;
  else if (!(VIEWS[view] ?? runs).key?.(event.key)) return;
  event.preventDefault();
});

await guarded(refresh);
if (board.facts) {
  summary();
  await show();
}
document.documentElement.dataset.ready = "true";
setTimeout(pulse, board.waiting ? 50 : PULSE);
