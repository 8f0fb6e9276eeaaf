"""The figures of prep and rollout as short tables that a person can judge."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from agentlite.core.reject_codes import CODES
from agentlite.environments.trajectories import LOST
from agentlite.scoring.metrics.figures import ENDINGS

SPLITS = ("train", "dev", "test")
MOST_TOOLS = 5  # that are named, the most called first
# in stats.json for whoever looks closer; of the last, the table says more
DETAILS = {
    *("groups", "proxy_loss", "lexical_diversity", "by_source", "by_script", "train_rows", "turns"),
    *("longest_answer", "rejected", "duplicates", "filtered", "split_missed", "new_tools"),
}
# of prep, with a line of its own
SHOWN = {
    *("read", "kept", "rejects", "left_out", *SPLITS, "length", "tokens", "trained_tokens"),
    *("tools", "by_task", "by_protocol", "by_file", "made", "balance", "personal", *DETAILS),
}


class Line(NamedTuple):
    name: str
    figure: str
    words: str


def of_prep(figures: Mapping[str, Any], limit: int | None) -> list[Line]:
    """What was kept, what was left out and why, and the size of the rest. A dry run has fewer
    figures, and so fewer lines. `limit`: the maximum tokens of a row.
    """
    shown = [*_rows(figures), *_left_out(figures), *_splits(figures)]
    if length := figures.get("length"):
        of = f" of at most {limit:,}" if limit else ""
        words = f"tokens in a typical row; the longest has {length['100%']:,}{of}"
        shown.append(Line("length", f"{length['50%']:,}", words))
        share = f"{figures['tokens']['trained_share']:.0%} of all tokens are the assistant's"
        shown.append(Line("learned", f"{figures['trained_tokens']:,}", f"tokens in train; {share}"))
    if tools := figures.get("tools"):
        shown.append(Line("tools", f"{tools['offered']:,}", _tools(tools)))
    shown += _variants(figures.get("made", {}))
    if any((train := figures.get("balance", {}).get("train", {})).values()):
        words = f"of {sum(train.values()):,} train rows with tools call none"
        shown.append(Line("no call", f"{train['no_call']:,}", words))
    if found := figures.get("personal"):
        words = f"values that may be personal: {number(found)}; no names or addresses of people"
        shown.append(Line("personal", f"{sum(found.values()):,}", words))
    for name, value in figures.items():
        if name not in SHOWN:
            count, words = ("", number(value)) if isinstance(value, dict) else (number(value), "")
            shown.append(Line(name.replace("_", " "), count, words))
    return shown


def _variants(made: Mapping[str, Mapping[str, int]]) -> Iterator[Line]:
    """How many there are of each kind, and why the other rows chosen for it have none."""
    for kind, counts in made.items():
        reasons = [f"{why} {count:,}" for why, count in counts.items() if why != "made"]
        words = f"{kind}; other rows have none: {', '.join(reasons)}" if reasons else kind
        if kind == "left out":
            yield Line("", f"{sum(counts.values()):,}", ", ".join([kind, *counts]))
        else:
            yield Line("variants", f"{counts.get('made', 0):,}", words)


def of_rollout(figures: Mapping[str, Any]) -> list[Line]:
    """The mean of each score, how the rollouts ended, and the calls."""
    tasks, rollouts = figures["tasks"], figures["rollouts"]
    shown = [Line("rollouts", f"{rollouts:,}", f"of {tasks:,} tasks, {figures['turns']:,} turns")]
    lost = sum(count for name, count in figures["ended"].items() if name in LOST)
    for name, mean in figures["scores"].items():
        shown.append(Line(f"score {name}", f"{mean:.2f}", f"mean of {rollouts - lost:,} rollouts"))
    for ended, count in figures["ended"].items():
        shown.append(Line("", f"{count:,}", ENDINGS[ended]))
    calls, failed = figures["calls"], figures["failed_calls"]
    words = f"of them failed: {failed:,}" + (f" ({failed / calls:.0%})" if calls else "")
    return [*shown, Line("calls", f"{calls:,}", words)]


def number(value: object) -> str:
    """A figure, or several with their names."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {number(inner)}" for name, inner in value.items()) or "-"
    if isinstance(value, list):
        return " -> ".join(map(str, value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _rows(figures: Mapping[str, Any]) -> Iterator[Line]:
    files = figures.get("by_file", {})
    of = f"from {len(files)} sources" if len(files) > 1 else f"from {', '.join(files)}"
    formats = sorted({name for file in files.values() for name in file["formats"]})
    yield Line("rows", f"{figures['read']:,}", f"{of} ({', '.join(formats)})" if formats else of)
    kept = figures["kept"]
    share = f"{kept / figures['read']:.0%} of the rows" if figures["read"] else ""
    yield Line("kept", f"{kept:,}", share)


def _left_out(figures: Mapping[str, Any]) -> Iterator[Line]:
    """A line for each reason, with what its code means."""
    for name, title in (("rejects", "rejected"), ("left_out", "left out")):
        for code, count in figures.get(name, {}).items():
            meaning = CODES[code].meaning.partition(":")[0].rstrip(".")
            yield Line(title, f"{count:,}", f"{code}: {meaning}")
            title = ""
    if not figures.get("rejects"):
        yield Line("rejected", "0", "")


def _splits(figures: Mapping[str, Any]) -> Iterator[Line]:
    total = sum(figures.get(split, 0) for split in SPLITS)
    for split in SPLITS if total else ():
        words = f"{figures[split] / total:.0%} of the records"
        if missed := figures.get("split_missed", {}).get(split):
            words += f"; {missed['wanted']:,} were asked for"
        if split == "test" and (new := figures.get("new_tools")):
            words += f"; {new:,} call only tools that train never calls"
        yield Line(split, f"{figures[split]:,}", words)


def _tools(tools: Mapping[str, Any]) -> str:
    at_once = tools["offered_at_once"]["50%"]
    called = [f"{name} {count:,}" for name, count in tools["most_called"].items()][:MOST_TOOLS]
    more = [f"{tools['called'] - MOST_TOOLS:,} more"] if tools["called"] > MOST_TOOLS else []
    words = f"on offer, typically {at_once} at a time; {tools['calls']:,} calls"
    return f"{words}: {', '.join([*called, *more])}" if called else words
