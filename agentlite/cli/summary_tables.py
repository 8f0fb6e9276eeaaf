"""The figures of make, prep and rollout as short tables that a person can judge."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from agentlite.core.reject_codes import CODES
from agentlite.environments.trajectories import LOST, EndedBy

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


ENDINGS: dict[EndedBy, str] = {
    "user": "ended with an answer to the user",
    "done": "ended because the environment was done",
    "turns": "ended at max_turns",
    "length": "ended at --max-length",
    "unwritten": "ended because the chat template cannot write the dialog",
    "hung": "ended because a call did not return in time",
    "world": "lost their world: the environment broke down",
    "unanswered": "have a turn without an answer from the server",
}


VERIFIED = {
    "results": "whose results another process confirms",
    "state": "whose final state another process confirms",
}


class Line(NamedTuple):
    """`colour`: of the whole line, where something is wrong; "" elsewhere."""

    name: str
    figure: str
    words: str
    colour: str = ""


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
        shown.append(_personal(found))
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
            yield Line("", f"{sum(counts.values()):,}", ", ".join(["left out", *counts]), "yellow")
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
        shown.append(Line("", f"{count:,}", ENDINGS[ended], "red" if ended in LOST else ""))
    calls, failed = figures["calls"], figures["failed_calls"]
    words = f"of them failed: {failed:,}" + (f" ({failed / calls:.0%})" if calls else "")
    # a model that calls nothing, or nothing that works, learns nothing here
    shown.append(Line("calls", f"{calls:,}", words, "yellow" if failed * 2 >= calls else ""))
    return shown


def of_make(figures: Mapping[str, Any]) -> list[Line]:
    """How many dialogs there are of each kind, what was filtered, and by what they are verified."""
    kept, wanted = figures["kept"], figures["wanted"]
    colour = "" if kept == wanted else "yellow"
    words = f"of {wanted:,}, with {figures['calls']:,} calls of {figures['tools_called']:,} tools"
    shown = [Line("dialogs", f"{kept:,}", words, colour)]
    for kind, count in figures["kinds"].items():
        missing = figures["not_found"].get(kind, 0)
        words = f"; for {missing:,} no calls were found" if missing else ""
        shown.append(Line("", f"{count:,}", f"{kind}{words}", "yellow" if missing else ""))
    for kind, count in figures["not_found"].items():
        if kind not in figures["kinds"]:
            shown.append(Line("", "0", f"{kind}; for {count:,} no calls were found", "yellow"))
    for name, count in figures["verified"].items():
        shown.append(Line("verified", f"{count:,}", VERIFIED[name]))
    for kind, count in figures["filtered"].items():
        shown.append(Line("filtered", f"{count:,}", kind, "yellow"))
    return shown


def of_servers(servers: Mapping[str, Mapping[str, int]]) -> list[Line]:
    """What the models behind servers cost."""
    shown = []
    for model, one in servers.items():
        tokens = f"{one['tokens_read']:,} tokens read, {one['tokens_written']:,} written"
        shown.append(Line("replies", f"{one['replies']:,}", f"of {model}: {tokens}"))
    return shown


def _personal(found: Mapping[str, int]) -> Line:
    kinds = f": {number(found)}" if found else ""
    words = f"values that may be personal{kinds}; names and addresses of people are not looked for"
    return Line("personal", f"{sum(found.values()):,}", words, "yellow" if found else "")


def of_templates(figures: Mapping[str, Any]) -> list[Line]:
    """How far each template is above the benchmarks, and what became of the others."""
    shown = [Line("templates", f"{figures['kept']:,}", f"kept, of {figures['written']:,}")]
    for name, one in figures["differences"].items():
        if points := one["points"]:
            words = f"{name}, 95 % from {points['low']:+.2f} to {points['high']:+.2f}"
            words += f"; {one['readable']:.0%} of its answers can be read"
            shown.append(Line("points", f"{points['mean']:+.2f}", words))
    for name, score in figures["benchmark"].items():
        shown.append(Line("benchmark", f"{score:.2f}", f"of 5, {name}"))
    return [*shown, *_dropped(figures)]


def of_queries(figures: Mapping[str, Any]) -> list[Line]:
    """How many new queries each cluster has, and what was dropped."""
    kept, wanted = figures["kept"], figures["wanted"]
    words = f"of {wanted:,}, from {figures['seeds']:,} by {figures['requests']:,} requests"
    shown = [Line("queries", f"{kept:,}", words, "" if kept == wanted else "yellow")]
    for one in figures["clusters"]:
        words = f"new, {one['seeds']:,} seeds such as: {one['example']}"
        shown.append(Line("cluster", f"{one['new']:,}", words))
    return [*shown, *_dropped(figures)]


def _dropped(figures: Mapping[str, Any]) -> Iterator[Line]:
    for kind, count in figures["dropped"].items():
        yield Line("dropped", f"{count:,}", kind, "yellow")


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
    yield Line("kept", f"{kept:,}", share, "" if kept else "red")


def _left_out(figures: Mapping[str, Any]) -> Iterator[Line]:
    """A line for each reason, with what its code means."""
    for name, colour in (("rejects", "red"), ("left_out", "")):
        title = "rejected" if name == "rejects" else "left out"
        for code, count in figures.get(name, {}).items():
            meaning = CODES[code].meaning.partition(":")[0].rstrip(".")
            yield Line(title, f"{count:,}", f"{code}: {meaning}", colour)
            title = ""
    if not figures.get("rejects"):
        yield Line("rejected", "0", "")


def _splits(figures: Mapping[str, Any]) -> Iterator[Line]:
    total = sum(figures.get(split, 0) for split in SPLITS)
    for split in SPLITS if total else ():
        words, colour = f"{figures[split] / total:.0%} of the records", ""
        if missed := figures.get("split_missed", {}).get(split):
            words, colour = f"{words}; {missed['wanted']:,} were asked for", "yellow"
        if split == "test" and (new := figures.get("new_tools")):
            words += f"; {new:,} call only tools that train never calls"
        yield Line(split, f"{figures[split]:,}", words, colour)


def _tools(tools: Mapping[str, Any]) -> str:
    at_once = tools["offered_at_once"]["50%"]
    called = [f"{name} {count:,}" for name, count in tools["most_called"].items()][:MOST_TOOLS]
    more = [f"{tools['called'] - MOST_TOOLS:,} more"] if tools["called"] > MOST_TOOLS else []
    words = f"on offer, typically {at_once} at a time; {tools['calls']:,} calls"
    return f"{words}: {', '.join([*called, *more])}" if called else words
