// The state that all views share: the rows of all stages, and what the address says is shown.
import { ask } from "./ask.js";

export const board = { facts: null, rows: new Map(), runs: [], version: -1, waiting: 0 };

export function place() {
  const [view, words] = location.hash.slice(1).split("?");
  return { view: view || "runs", words: new URLSearchParams(words ?? "") };
}

export function go(view, words, { replace = false } = {}) {
  const kept = [...words.entries()].filter(([, value]) => value !== "");
  const hash = `#${view}${kept.length ? `?${new URLSearchParams(kept)}` : ""}`;
  if (hash === location.hash) return;
  if (replace) history.replaceState(null, "", hash);
  else location.hash = hash;
}

export async function refresh() {
  const [facts, found] = await Promise.all([board.facts ?? ask("facts"), ask("rows", { since: board.version })]);
  board.facts = facts;
  if (found.version < board.version) {  // another board, at the same address
    board.version = -1;
    board.rows.clear();
    return refresh();
  }
  for (const row of found.rows) board.rows.set(row.id, { settings: {}, figures: {}, detail: "", figure: "", ...row });
  for (const id of found.gone) board.rows.delete(id);
  Object.assign(board, { version: found.version, waiting: found.waiting, runs: found.runs });
  return found.rows.length > 0 || found.gone.length > 0;
}

// An id without the folder that all workspaces of this board are in.
export function named(id) {
  const folders = board.facts.folders.map((folder) => `${folder}/`);
  let shared = folders[0];
  while (!folders.every((folder) => folder.startsWith(shared))) shared = shared.slice(0, shared.lastIndexOf("/", shared.length - 2) + 1);
  return id.startsWith(shared) ? id.slice(shared.length) : id;
}

export function setting(row, key) {
  return key in row.settings ? row.settings[key] : board.facts.defaults[row.command]?.[key];
}
