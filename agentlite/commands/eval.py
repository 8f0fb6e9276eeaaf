"""finished prep + models -> predictions and metrics for each model, the models compared, and the report."""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from agentlite import config, console, stages
from agentlite.curation.sample import sample
from agentlite.errors import USAGE, UserError
from agentlite.metrics.calls import score_step
from agentlite.metrics.summaries import compare, summarize
from agentlite.protocols import Prompt, Protocol, prompts, settled
from agentlite.records import Call, Parsed, Prediction, Record, Step, digest, from_row, plain
from agentlite.report import write_report
from agentlite.rows import Appender, find_rows, read_rows, whole_lines_end, write_json
from agentlite.stages import Place, Plan, Result
from agentlite.templates import Source, find_model, load_template

if TYPE_CHECKING:
    from agentlite.engine.generation import Said

# they change which steps are asked, not what is said
NOT_OF_THE_ANSWER = ("model", "data", "limit", "batch_size", "seed")


class Evaluated(NamedTuple):
    folder: Path
    metrics: dict[str, Any]
    predictions: list[Prediction]
    status: str
    seconds: float


def run(settings: config.Eval, place: Place) -> Result:
    """Evaluates every model in turn. Raises UserError 2, 3, 5, 7, 74 or 75; what is predicted already is kept."""
    data = stages.find_stage(settings.data, place.run)
    prepared = stages.finished(data, "prep")
    _refuse_mistakes(settings)
    records = _records(settings, data)
    base = place.folder / slug(settings.data)
    with console.stdout_to_stderr():
        sources = {name: find_model(name, place.run) for name in dict.fromkeys(settings.model)}
        plans = {name: _plan(settings, source, data, prepared) for name, source in sources.items()}
        if place.dry_run:
            return _dry_run(base, plans, records, place.force)
        evaluated = {
            name: _evaluate(settings, sources[name], plans[name], records, base / slug(name), place.force)
            for name in sources
        }
        if len(evaluated) > 1:
            by_model = {one.folder.name: one.predictions for one in evaluated.values()}
            digests = {
                one.folder.name: stages.file_digest(one.folder / "predictions.jsonl") for one in evaluated.values()
            }
            write_json(base / "compare.json", {**compare(by_model, settings.seed), "predictions": digests})
        report = write_report(place.run)
    done = any(one.status == "done" for one in evaluated.values())
    outputs = [str(one.folder.relative_to(place.folder) / "metrics.json") for one in evaluated.values()]
    return Result("eval", "done" if done else "up to date", str(place.folder),
                  {name: one.metrics for name, one in evaluated.items()}, outputs,
                  round(sum(one.seconds for one in evaluated.values()), 1), f"less {report}")  # fmt: skip


def _refuse_mistakes(settings: config.Eval) -> None:
    if settings.max_new_tokens >= settings.max_length:
        raise UserError(f"leaves no room for a prompt: max_length is {settings.max_length}.",
                        "Lower it, or raise --max-length.", place="eval.max_new_tokens")  # fmt: skip
    folders = [slug(name) for name in dict.fromkeys(settings.model)]
    if len(set(folders)) < len(folders):
        raise UserError(f"two models share the folder {max(folders, key=folders.count)}.", "Evaluate them one by one,"
                        " with --out.", place="--model")  # fmt: skip


def slug(name: str) -> str:
    """A name as a folder: `Qwen/Qwen2.5-1.5B` -> `Qwen-Qwen2.5-1.5B`."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "model"


def _plan(settings: config.Eval, source: Source, data: Path, prepared: stages.Done) -> Plan:
    """Only what changes an answer. Which steps are asked may differ from run to run: predictions are added."""
    protocol = stages.read_plan(data).settings["protocol"]
    digest = next(value for name, value in prepared.outputs.items() if name.startswith(settings.split))
    answer = config.plain_settings(settings, NOT_OF_THE_ANSWER)
    return Plan("eval", {**answer, "model": source.name, "protocol": protocol},
                {"data": digest, "model": source.digest}, stages.versions())  # fmt: skip


def _records(settings: config.Eval, data: Path) -> list[Record]:
    """Those with tools: without one there is nothing to decide."""
    path = find_rows(data, settings.split)
    records = [record for row in read_rows(path) if (record := from_row(row)).tools]
    if not records:
        raise UserError("holds no record with tools.", "Run prep with a larger share: --test 0.2.", place=str(path),
                        exit_code=USAGE)  # fmt: skip
    return [records[index] for index in sample(records, settings.limit, settings.seed)]


def _evaluate(settings: config.Eval, source: Source, plan: Plan, records: Sequence[Record], folder: Path,
              force: bool) -> Evaluated:  # fmt: skip
    with stages.open_stage(folder, plan, force=force) as stage:
        path = folder / "predictions.jsonl"
        known = {p.step: p for p in _read(path)} if path.exists() else {}
        steps = [Step(record.id, turn) for record in records for turn in record.asked]
        missing = [record for record in records if any(Step(record.id, turn) not in known for turn in record.asked)]
        status = "up to date"
        if missing or stage.status != "done" or stage.done.figures.get("steps") != _key(steps, settings.seed):
            status = "done"
            if missing:
                (folder / "done.json").unlink(missing_ok=True)
                known |= _predict(settings, source, plan, missing, set(known), path)
            metrics = summarize([known[step] for step in steps], settings.seed)
            write_json(folder / "metrics.json", metrics)
            stage.finish(
                ["predictions.jsonl", "metrics.json"], {"steps": _key(steps, settings.seed), **_key_figures(metrics)}
            )
        metrics = json.loads((folder / "metrics.json").read_bytes())
        return Evaluated(folder, metrics, [known[step] for step in steps], status, stage.done.seconds)


def _key(steps: Sequence[Step], seed: int) -> str:
    """Names the steps that metrics.json is about."""
    return f"{len(steps)} {digest(plain([seed, *sorted(steps)]))}"


def _key_figures(metrics: dict[str, Any]) -> dict[str, float]:
    return {name: round(figure["mean"], 4) for name, figure in metrics["metrics"].items()}


def _predict(settings: config.Eval, source: Source, plan: Plan, records: Sequence[Record], known: set[Step],
             path: Path) -> dict[Step, Prediction]:  # fmt: skip
    """Asks at every step that is missing; each answer is appended as it comes."""
    from agentlite.engine.generation import Greedy, generate
    from agentlite.engine.loading import Loading, load

    template = load_template(source.base)
    mixture = settled(plan.settings["protocol"], template)
    asked = [one for one in prompts(records, mixture.of, template) if one.step not in known]
    room = settings.max_length - settings.max_new_tokens
    fitting = [one for one in asked if len(one.ids) <= room]
    console.notice(f"eval: {source.name}, {len(asked)} prompts" + (f", {len(known)} there already" if known else ""))
    loaded = load(source, Loading(settings.engine, settings.max_length, settings.load_in_4bit, settings.load_in_8bit),
                  trainable=False)  # fmt: skip
    new: dict[Step, Prediction] = {}
    if len(fitting) < len(asked):
        console.notice(f"eval: {len(asked) - len(fitting)} prompts are longer than {room} tokens: they score 0")
    with Appender(path) as file, console.progress(f"eval {source.name}", len(fitting)) as advance:
        for one in asked:
            if len(one.ids) > room:
                new[one.step] = _prediction(one, Parsed("", (), "prompt longer than max_length"), "", 0)
                file.append(_row(new[one.step]))
        for protocol in mixture.protocols.values():
            own = [one for one in fitting if one.protocol == protocol.name]
            how = Greedy(template.token_id(template.turn_end), protocol.stops, settings.max_new_tokens,
                         settings.batch_size)  # fmt: skip
            for batch in generate(loaded, [one.ids for one in own], how):
                for said in batch:
                    one = own[said.prompt]
                    new[one.step] = _answered(one, said, protocol)
                    file.append(_row(new[one.step]))
                advance(len(new) - (len(asked) - len(fitting)))
    return new


def _answered(one: Prompt, said: "Said", protocol: Protocol) -> Prediction:
    parsed = protocol.read(said.text, one.record.tools)
    if not said.finished and not parsed.problem:
        parsed = Parsed(parsed.content, parsed.calls, "not finished within max_new_tokens")
    return _prediction(one, parsed, said.text, said.new_tokens)


def _prediction(one: Prompt, parsed: Parsed, text: str, new_tokens: int) -> Prediction:
    record, gold = one.record, one.record.due(one.turn)
    count = len(record.tools)
    slices = {
        "tools": "1" if count == 1 else "2-4" if count < 5 else "5+",
        "task": record.task,
        "source": record.source,
        "protocol": one.protocol,
    }
    metrics = {**score_step(parsed, gold, record.tools), "due": float(bool(gold.calls))}
    return Prediction(*one.step, text, parsed.problem, parsed.calls, metrics, slices, new_tokens)


def _row(prediction: Prediction) -> dict[str, Any]:
    calls = [{"name": call.name, "arguments": plain(call.arguments)} for call in prediction.calls]
    return {**msgspec.structs.asdict(prediction), "calls": calls}


def _read(path: Path) -> Iterator[Prediction]:
    with Appender(path):  # cuts a torn last line
        pass
    for row in read_rows(path):
        calls = tuple(Call(call["name"], json.loads(call["arguments"])) for call in row.pop("calls"))
        yield Prediction(calls=calls, **row)


def _known_steps(path: Path) -> set[Step]:
    """Those of the whole lines: a torn last one is only cut by a run that writes."""
    whole = path.read_bytes()[: whole_lines_end(path)] if path.exists() else b""
    return {Step(row["record_id"], row["turn"]) for row in map(json.loads, whole.splitlines())}


def _dry_run(base: Path, plans: dict[str, Plan], records: Sequence[Record], force: bool) -> Result:
    """How many prompts each model would still be asked."""
    steps = {Step(record.id, turn) for record in records for turn in record.asked}
    figures = {}
    for name, plan in plans.items():
        folder = base / slug(name)
        if not force:
            stages.compare(folder, plan)
        known = set() if force else _known_steps(folder / "predictions.jsonl")
        figures[name] = {"prompts": len(steps), "missing": len(steps - known)}
    return Result("eval", "dry run", str(base), figures, [], 0.0)
