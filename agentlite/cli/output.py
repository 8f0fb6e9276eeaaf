"""A stage's result -> stdout: one JSON object, records, or a short table and the next command."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from agentlite.core import console
from agentlite.core.records import from_row
from agentlite.core.reject_codes import CODES
from agentlite.core.row_files import json_line
from agentlite.environments.trajectories import LOST
from agentlite.report import tables
from agentlite.scoring.metrics.dialogs import TEACHER_FORCED
from agentlite.scoring.metrics.figures import ENDINGS, TITLES
from agentlite.workspace import lookup
from agentlite.workspace.lookup import Result

OWN_SHAPE = "agentlite"  # the shape of rows as they are on disk


def present(result: Result, *, as_json: bool, show: int, shape: str, in_full: bool = False) -> None:
    """With --json, --as or --rows -, the table and the shown records go to stderr, so that stdout
    holds one thing.

    `shape`: how records are written to stdout; "" if they are not. `in_full`: all figures of eval.
    """
    stream = sys.stderr if as_json or shape else sys.stdout
    folder = Path(result.folder)
    if (show or shape) and result.status != "dry run":
        from agentlite.stages.prep.write import openai_row, read_splits, render_first

        for text in render_first(folder, show) if show else ():
            print(text, file=stream)
        if shape:
            rows = read_splits(folder)
            rows = rows if shape == OWN_SHAPE else map(openai_row, map(from_row, rows))
            sys.stdout.buffer.writelines(map(json_line, rows))
    if as_json and not shape:
        print(msgspec.json.encode(result).decode())
    elif not as_json:
        with redirect_stdout(stream):
            _print_result(result, in_full)


def _print_result(result: Result, in_full: bool) -> None:
    figures, is_dry_run = result.figures, result.status == "dry run"
    duration = f" in {result.seconds:.0f} s" if result.status == "done" else ""
    print(f"{result.command}: {result.status}{duration}, {result.folder}")
    if result.command == "eval" and not is_dry_run:
        is_comparison = result.status == "compared"
        _print_models(figures["models"] if is_comparison else figures, in_full)
        if not is_comparison and (retrieval := tables.groups(figures).get("retrieval")):
            print("\nwhat retrieval cost")
            console.print_table(retrieval.cells)
        if agreement := figures.get("agreement"):
            lines = (f"agreement, {key}: {tables.figure_text(f)}" for key, f in agreement.items())
            print("", *lines, sep="\n")
        for row in figures["differences"] if is_comparison else ():
            print(tables.difference_sentence(row))
    elif result.command == "ablate" and is_dry_run:
        rows = [[name, differs or "the first"] for name, differs in figures["cells"].items()]
        console.print_table([["cell", "what differs"], *rows], text_columns=2)
    elif result.command == "ablate":
        console.print_table([[name, *cells] for name, _, *cells in tables.cell_rows(figures)])
        for sentence in tables.failure_sentences(figures):
            print(sentence)
    elif "ranking" in figures:
        _print_figures({k: v for k, v in figures.items() if k not in tables.TABLE_KEYS})
        for view in tables.rankings(figures):
            print(f"\n{view.title} ({view.rows[0][1]['count']})")
            means = [[name, *(f"{m['mean']:.1%}" for m in methods)] for name, *methods in view.rows]
            console.print_table([view.head, *means])
        print("", *map(tables.difference_sentence, figures["differences"]), sep="\n")
    elif result.command == "prep":
        _print_prep(result)
    elif result.command == "rollout" and not is_dry_run:
        _print_lines(rollout_lines(figures))
    else:
        _print_figures(figures)
    if result.sentences:
        print("", *result.sentences, sep="\n")
    if result.next:
        print(f"next: {result.next}")


def _print_models(figures: dict[str, Any], in_full: bool) -> None:
    """The main figures; `in_full`: every one, also of whole dialogs, and the wrong answers. Models
    are the columns: a terminal is higher than wide.
    """
    steps = tables.models(figures)
    main_rows = [[TITLES[row[0]], *row[1:]] for row in steps.rows if row[0] in TITLES]
    if main_rows and not in_full:
        console.print_table(steps._replace(rows=main_rows).cells)
        if len(main_rows) < len(steps.rows):
            print("The same command with --all prints every figure.")
        return
    console.print_table(steps.cells)
    dialog_figures = {
        name: {"metrics": m["dialogs"]} for name, m in figures.items() if m.get("dialogs")
    }
    if dialog_figures:
        print(f"\nwhole dialogs, {TEACHER_FORCED}")
        console.print_table(tables.models(dialog_figures).cells)
    if wrong_table := tables.wrong_answers(figures):
        print(f"\n{wrong_table.title.lower()}")
        console.print_table(wrong_table.cells)


def _print_prep(result: Result) -> None:
    """A short table; stats.json has every figure. Several sources have a table of their own."""
    folder, limit = Path(result.folder), None
    if result.status != "dry run":
        settings = lookup.read_plan(folder).settings
        join_tokens = settings["join_tokens"] if settings["join"] > 1 else None
        limit = max(settings["max_length"], join_tokens or 0)
    _print_lines([*prep_lines(result.figures, limit)])
    if len(files := result.figures.get("by_file", {})) > 1:
        heads = [name for name in next(iter(files.values())) if name != "formats"]
        rows = [
            [source, text_of(counts["formats"]), *(str(counts[name]) for name in heads)]
            for source, counts in files.items()
        ]
        print()
        console.print_table([["source", "formats", *heads], *rows])
    if limit:
        print(f"All figures: {folder / 'stats.json'}")


def _print_lines(lines: "Sequence[Line]") -> None:
    width = max(len(line.figure) for line in lines)
    rows = [[line.name, line.figure.rjust(width), line.words] for line in lines]
    console.print_table([["", "", ""], *rows], text_columns=3)


def _print_figures(figures: dict[str, Any]) -> None:
    """Numbers as a table, and what consists of several as a line each."""
    rows = [[name, text_of(v)] for name, v in figures.items() if not isinstance(v, dict)]
    if rows:
        console.print_table([["", ""], *rows])
    for name, value in figures.items():
        if isinstance(value, dict):
            print(f"{name}: {text_of(value)}")


SPLITS = ("train", "dev", "test")
MOST_TOOLS = 5  # that are named, the most called first
SPECIAL_FIGURES = {  # of prep
    # with a line of its own
    *("read", "kept", "rejects", "left_out", *SPLITS, "length", "tokens", "trained_tokens"),
    *("tools", "by_task", "by_file", "made", "balance", "personal"),
    # in stats.json for whoever looks closer; of the last four, the table says more
    *("groups", "by_source", "train_rows", "turns", "longest_answer"),
    *("rejected", "duplicates", "filtered", "new_tools"),
}


class Line(NamedTuple):
    name: str
    figure: str
    words: str


def prep_lines(figures: Mapping[str, Any], limit: int | None) -> Iterator[Line]:
    """What was kept, what was left out and why, and the size of the rest. A dry run has fewer
    figures, and so fewer lines. `limit`: the maximum tokens of a row.
    """
    yield from _row_lines(figures)
    if length := figures.get("length"):
        limit_text = f" of at most {limit:,}" if limit else ""
        words = f"tokens in a typical row; the longest has {length['100%']:,}{limit_text}"
        yield Line("length", f"{length['50%']:,}", words)
        share = f"{figures['tokens']['trained_share']:.0%} of all tokens are the assistant's"
        yield Line("learned", f"{figures['trained_tokens']:,}", f"tokens in train; {share}")
    if tools := figures.get("tools"):
        most_called = [f"{name} {count:,}" for name, count in tools["most_called"].items()]
        words = f"on offer; {tools['calls']:,} calls: {', '.join(most_called[:MOST_TOOLS])}"
        yield Line("tools", f"{tools['offered']:,}", words)
    # how many there are of each kind, and why the other rows chosen for it have none
    for kind, counts in figures.get("made", {}).items():
        reasons = [f"{reason} {count:,}" for reason, count in counts.items() if reason != "made"]
        words = f"{kind}; other rows have none: {', '.join(reasons)}" if reasons else kind
        yield Line("variants", f"{counts.get('made', 0):,}", words)
    if any((train := figures.get("balance", {}).get("train", {})).values()):
        words = f"of {sum(train.values()):,} train rows with tools call none"
        yield Line("no call", f"{train['no_call']:,}", words)
    if kinds := figures.get("personal"):
        words = f"values that may be personal: {text_of(kinds)}; people's names are not looked for"
        yield Line("personal", f"{sum(kinds.values()):,}", words)
    for name, value in figures.items():
        if name not in SPECIAL_FIGURES:
            count, words = ("", text_of(value)) if isinstance(value, dict) else (text_of(value), "")
            yield Line(name.replace("_", " "), count, words)


def _row_lines(figures: Mapping[str, Any]) -> Iterator[Line]:
    """How many were read and kept, a line for each reason with what its code means, and splits."""
    files = figures.get("by_file", {})
    source = f"from {len(files)} sources" if len(files) > 1 else f"from {', '.join(files)}"
    formats = sorted({name for file in files.values() for name in file["formats"]})
    words = f"{source} ({', '.join(formats)})" if formats else source
    yield Line("rows", f"{figures['read']:,}", words)
    share = f"{figures['kept'] / figures['read']:.0%} of the rows" if figures["read"] else ""
    yield Line("kept", f"{figures['kept']:,}", share)
    for name, title in (("rejects", "rejected"), ("left_out", "left out")):
        for code, count in figures.get(name, {}).items():
            meaning = CODES[code].meaning.partition(":")[0].rstrip(".")
            yield Line(title, f"{count:,}", f"{code}: {meaning}")
            title = ""
    if not figures.get("rejects"):
        yield Line("rejected", "0", "")
    total = sum(figures.get(split, 0) for split in SPLITS)
    for split in SPLITS if total else ():
        words = f"{figures[split] / total:.0%} of the records"
        if split == "test" and (new_tools := figures.get("new_tools")):
            words += f"; {new_tools:,} call only tools that train never calls"
        yield Line(split, f"{figures[split]:,}", words)


def rollout_lines(figures: Mapping[str, Any]) -> list[Line]:
    """The mean of each score, how the rollouts ended, and the calls."""
    tasks, rollouts = figures["tasks"], figures["rollouts"]
    lines = [Line("rollouts", f"{rollouts:,}", f"of {tasks:,} tasks, {figures['turns']:,} turns")]
    lost = sum(count for name, count in figures["ended"].items() if name in LOST)
    for name, mean in figures["scores"].items():
        lines.append(Line(f"score {name}", f"{mean:.2f}", f"mean of {rollouts - lost:,} rollouts"))
    for ended, count in figures["ended"].items():
        lines.append(Line("", f"{count:,}", ENDINGS[ended]))
    calls, failed = figures["calls"], figures["failed_calls"]
    words = f"of them failed: {failed:,}" + (f" ({failed / calls:.0%})" if calls else "")
    return [*lines, Line("calls", f"{calls:,}", words)]


def text_of(value: object) -> str:
    """A figure, or several with their names."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {text_of(inner)}" for name, inner in value.items()) or "-"
    if isinstance(value, list):
        return " -> ".join(map(str, value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)
