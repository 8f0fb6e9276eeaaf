"""records + a model -> candidates, their scores, and pairs; or stored candidates -> pairs under
other weights.
"""

import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from agentlite.config import resolve
from agentlite.config.settings import PairsSettings
from agentlite.core import console
from agentlite.core.errors import OTHER_PLAN, UserError
from agentlite.core.records import (
    GOLD,
    Candidate,
    CandidateKey,
    Record,
    Score,
    Step,
    from_row,
    to_row,
)
from agentlite.core.row_files import Appender, read_rows, write_json, write_rows
from agentlite.data.curation.sample import sample
from agentlite.data.prompt_records import Prompts, find_prompts
from agentlite.engine import check_libraries
from agentlite.engine.decoding import Decoding
from agentlite.engine.load import loading_of
from agentlite.engine.planning.dry_run import dry_run_memory
from agentlite.engine.remote import served
from agentlite.engine.sampler import make_sampler
from agentlite.rendering import Prompt, prompts, settled
from agentlite.scoring.preference_pairs import (
    PairRule,
    build_pairs,
    group,
    read_candidates,
    read_scores,
    write_pairs,
)
from agentlite.scoring.rewards import COMPONENTS, PENALTIES, Component, settle_weights
from agentlite.scoring.rewards.scorer import Scorer, Tally, reading
from agentlite.scoring.rewards.user_functions import UserFunctions, function_files
from agentlite.scoring.weight_sweep import (
    compare_weightings,
    read_grid,
    report_components,
    sentences,
)
from agentlite.stages.pairs.candidates import (
    SAMPLED,
    Stored,
    find_stored,
    is_sampled,
    set_aside_changed,
)
from agentlite.workspace import run_folder
from agentlite.workspace.digests import file_digest
from agentlite.workspace.lineage import lineage, setting_of
from agentlite.workspace.model_source import Source, find_model, load_template
from agentlite.workspace.run_folder import Plan, Result, RunTarget

# they change what is made of the candidates, not the candidates
RANKING = ("weights", "rewards", "margin", "balance", "gold")
# how it is done, not what comes out
NOT_OF_THE_PLAN = (
    "grid",
    "candidates",
    "batch_size",
    "reward_seconds",
    "max_failures",
    "endpoint",
    "endpoint_key",
)


class ScoredCandidates(NamedTuple):
    """What pairs are made of: candidates, their scores, and whether a call is due at a step."""

    candidates: Sequence[Candidate]
    scores: dict[CandidateKey, Score]
    expected: dict[Step, bool]

    @property
    def user_components(self) -> set[str]:
        return {name for score in self.scores.values() for name in score.components} - {
            *COMPONENTS,
            *PENALTIES,
        }


def run(settings: PairsSettings, target: RunTarget) -> Result:
    """Samples, scores and pairs; or ranks stored candidates. Raises UserError 2, 3, 4, 5, 7, 74 or
    75.
    """
    with console.stdout_to_stderr():
        if settings.grid or settings.candidates:
            stored = find_stored(settings.candidates or "pairs", target.run)
            return (
                _compare(settings, stored)
                if settings.grid
                else _rank_again(settings, target, stored)
            )
        return _sample_and_rank(settings, target)


def key_figure(figures: Mapping[str, Any]) -> str:
    return f"{figures['pairs']} pairs at {figures['steps']} steps"


def _sample_and_rank(settings: PairsSettings, target: RunTarget) -> Result:
    settle_weights(settings.weights, _names(settings.rewards))
    source = _source(settings, target.run)
    found = find_prompts(settings.data, settings.split, settings.model, source, target.run)
    plan = Plan(
        "pairs",
        {**resolve.plain_settings(settings, NOT_OF_THE_PLAN), "protocol": found.protocol},
        {"data": found.digest, "model": source.digest, **function_files(settings.rewards)},
        run_folder.versions(),
    )
    _refuse_sampling_again(target, plan)
    if target.dry_run:
        return _dry_run(settings, target, plan, found, source)
    if not settings.endpoint and (target.force or not (target.folder / SAMPLED).exists()):
        check_libraries(settings.engine)
    with run_folder.open_stage(target.folder, plan, force=target.force) as stage:
        if stage.status != "done":
            try:
                _fill(stage, settings, found, source, lineage(settings.model, target.run))
            except UserError:
                if not (
                    stage.folder / "candidates.jsonl"
                ).exists():  # nothing yet that is worth keeping
                    stage.fail()
                raise
        return stage.result(_next(target))


def _source(settings: PairsSettings, run: Path) -> Source:
    """The model; behind a server, under the template of the model that prep was told of."""
    if not settings.endpoint:
        return find_model(settings.model, run)
    base = setting_of(settings.data, "model", run)
    if not base:
        raise UserError(
            "asks at the steps of a finished prep alone.",
            "Run prep on those rows, and name it: --data.",
            location="--endpoint",
        )
    return served(
        settings.model, settings.endpoint, settings.endpoint_key, find_model(str(base), run)
    )


def _refuse_sampling_again(target: RunTarget, plan: Plan) -> None:
    """Other weights need no other candidates. Raises UserError 3 with the command that ranks those
    that are there.
    """
    if target.force or not is_sampled(target.folder):
        return
    before = run_folder.read_plan(target.folder)
    changes = run_folder.differences(before, plan)
    keys = {key for key in RANKING if before.settings.get(key) != plan.settings.get(key)}
    inputs = {
        key
        for key in before.inputs.keys() | plan.inputs.keys()
        if before.inputs.get(key) != plan.inputs.get(key)
    }
    if changes and len(changes) == len(keys) + len(inputs) and not inputs & {"data", "model"}:
        fix = (
            f"`agentlite pairs --from {target.out} ... --out {target.out}-2` ranks the candidates "
            "that are there, "
            "without a model; --force samples again."
        )
        raise UserError(
            f"its candidates are ranked otherwise: {'; '.join(changes)}.",
            fix,
            location=str(target.folder),
            exit_code=OTHER_PLAN,
        )


def _next(target: RunTarget) -> str:
    return target.next(
        "agentlite dpo"
        + ("" if target.out == "pairs" else f" --data {target.out} --out dpo-{target.out}")
    )


def _names(functions: Iterable[str]) -> list[str]:
    return [text.rpartition(":")[2] for text in functions]


def _fill(
    stage: run_folder.StageFolder,
    settings: PairsSettings,
    found: Prompts,
    source: Source,
    models: list[str],
) -> None:
    with UserFunctions(
        settings.rewards, seconds=settings.reward_seconds
    ) as own:  # first: what cannot be imported
        _fill_with(stage, settings, found, source, models, own)


def _fill_with(
    stage: run_folder.StageFolder,
    settings: PairsSettings,
    found: Prompts,
    source: Source,
    models: list[str],
    own: Mapping[str, Component],
) -> None:
    folder = stage.folder
    records = _chosen(settings, found)
    template = load_template(source.base)
    with console.waiting(f"pairs: writing the prompts of {len(records)} records"):
        asked, too_long = _fitting(
            settings, prompts(records, settled(found.protocol, template).of, template)
        )
    write_rows(folder / "records.jsonl", map(to_row, records))
    stage.set_aside_changed("scores.jsonl")
    set_aside_changed(folder)
    if not (folder / SAMPLED).exists():
        _sample(settings, source, asked, folder)
        write_json(
            folder / SAMPLED,
            {name: file_digest(folder / f"{name}.jsonl") for name in ("records", "candidates")},
        )
    candidates = list(read_candidates(folder / "candidates.jsonl"))
    judge = Scorer(
        {record.id: record for record in records}, reading(found.protocol, source.base), own
    )
    tally = Tally(settings.max_failures, folder, _mend(folder.name))
    scores = _score(folder, candidates, judge, tally)
    figures = _rank(settings, folder, ScoredCandidates(candidates, scores, _expected(records)))
    told = {"too_long": too_long, "failed_rewards": tally.failed, "lineage": models}
    stage.finish(
        [f"{name}.jsonl" for name in ("records", "candidates", "scores", "pairs")] + ["stats.json"],
        {**figures, **told},
    )


def _chosen(settings: PairsSettings, found: Prompts) -> list[Record]:
    records = [record for record in found.records() if record.asked]
    if not records:
        raise UserError(
            "holds no record with tools.",
            "There must be something to choose: run prep on rows with tools,"
            " or with a smaller --test and --dev.",
            location=found.place,
        )
    return [records[index] for index in sample(records, settings.limit, settings.seed)]


def _fitting(settings: PairsSettings, asked: Iterable[Prompt]) -> tuple[list[Prompt], int]:
    """The prompts that leave room for an answer, and how many do not."""
    room = settings.max_length - settings.max_new_tokens
    if room <= 0:
        raise UserError(
            f"leaves no room for a prompt: max_length is {settings.max_length}.",
            "Lower it, or raise --max-length.",
            location="pairs.max_new_tokens",
        )
    every = list(asked)
    fitting = [one for one in every if len(one.ids) <= room]
    if len(fitting) < len(every):
        console.notice(
            f"pairs: {len(every) - len(fitting)} prompts are longer than {room} tokens and give no "
            "pair"
        )
    if not fitting:
        raise UserError(
            f"every prompt is longer than {room} tokens.",
            "Raise --max-length.",
            location="pairs.max_length",
        )
    return fitting, len(every) - len(fitting)


def _sample(settings: PairsSettings, source: Source, asked: Sequence[Prompt], folder: Path) -> None:
    """Appends what is missing, batch by batch. The batches are the same in every run, so a sample
    is as well.
    """
    from agentlite.engine.sample import plan_batches

    path = folder / "candidates.jsonl"
    with Appender(path) as file:
        known = {candidate.key for candidate in read_candidates(path)}
        for one in asked:
            gold = Candidate(*one.step, one.protocol, GOLD, 0, one.said, one.ended, 0)
            if gold.key not in known:
                file.append(msgspec.structs.asdict(gold))
        keys = [
            [
                CandidateKey(*one.step, one.protocol, settings.model, n)
                for n in range(settings.num_samples)
            ]
            for one in asked
        ]
        batches = plan_batches([len(one.ids) for one in asked], settings.batch_size)
        left = [
            batch
            for batch in batches
            if any(key not in known for index in batch for key in keys[index])
        ]
        if left:
            total, there = (
                len(asked) * settings.num_samples,
                sum(key in known for one in keys for key in one),
            )
            console.notice(
                f"pairs: {total} candidates of {settings.model} at {len(asked)} steps"
                + (f", {there} there already" if there else "")
            )
            decoding = Decoding(
                max_new_tokens=settings.max_new_tokens,
                temperature=settings.temperature,
                top_p=settings.top_p,
                seed=settings.seed,
                num_samples=settings.num_samples,
            )
            sampler = make_sampler(source, settings.model, loading_of(settings), decoding)
            with console.progress("pairs", total) as advance:
                for batch in left:
                    for candidate in sampler([asked[index] for index in batch]):
                        if candidate.key not in known:
                            file.append(msgspec.structs.asdict(candidate))
                            there += 1
                    advance(there)


def _score(
    folder: Path, candidates: Sequence[Candidate], judge: Scorer, tally: Tally
) -> dict[CandidateKey, Score]:
    """Appends the scores that are missing; those of a reward that failed are taken again. Raises
    UserError 4.
    """
    path = folder / "scores.jsonl"
    if path.exists():
        with Appender(path):  # cuts a torn line
            pass
        write_rows(
            path, [msgspec.structs.asdict(score) for score in read_scores(path) if not score.error]
        )
    with Appender(path) as file:
        known = {score.key: score for score in read_scores(path)}
        left = [candidate for candidate in candidates if candidate.key not in known]
        with console.progress("pairs: scoring", len(candidates)) as advance:
            for score in judge(left):
                known[score.key] = score
                file.append(msgspec.structs.asdict(score))
                tally.count(score)
                tally.refuse(len(candidates))
                advance(len(known))
    return known


def _mend(name: str) -> str:
    return (
        f"Every candidate is kept. Mend it, and `agentlite pairs --from {name} --out NAME` "
        "scores them again."
    )


def _expected(records: Iterable[Record]) -> dict[Step, bool]:
    """Whether a call is due, at every step."""
    return {
        Step(record.id, turn): bool(record.expected(turn).calls)
        for record in records
        for turn in record.asked
    }


def _rank(settings: PairsSettings, folder: Path, ranked: ScoredCandidates) -> dict[str, Any]:
    """Writes pairs.jsonl and stats.json. Returns the key figures."""
    weights = settle_weights(settings.weights, ranked.user_components)
    with console.waiting(f"pairs: ranking {len(ranked.candidates)} candidates"):
        groups = group(ranked.candidates, ranked.scores)
        pairing = build_pairs(groups, weights, _rule(settings))
        report = report_components(groups, weights, ranked.expected)
    write_pairs(folder / "pairs.jsonl", pairing.pairs)
    write_json(
        folder / "stats.json",
        {"weights": weights, "no_pair": pairing.reasons, "components": report},
    )
    for sentence in sentences(report):
        console.notice(f"pairs: {sentence}")
    mean = sum(pair.margin for pair in pairing.pairs) / len(pairing.pairs) if pairing.pairs else 0.0
    return {
        "steps": len(groups),
        "candidates": sum(one.model != GOLD for one in ranked.candidates),
        "pairs": len(pairing.pairs),
        "no_pair": {name: n for name, n in pairing.reasons.items() if n},
        "mean_margin": round(mean, 4),
    }


def _rule(settings: PairsSettings) -> PairRule:
    return PairRule(settings.margin, settings.balance, "failed" if settings.gold else "never")


def _rank_again(settings: PairsSettings, target: RunTarget, stored: Stored) -> Result:
    if target.folder.resolve() == stored.folder.resolve():
        raise UserError(
            "would write over the candidates' own folder.",
            "Give another one: --out NAME.",
            location="--out",
        )
    own = {name for score in stored.scores.values() for name in score.components} - {
        *COMPONENTS,
        *PENALTIES,
    }
    settle_weights(settings.weights, {*own, *_names(settings.rewards)})
    kept = resolve.plain_settings(settings)
    settled = {key: kept[key] for key in (*RANKING, "candidates")} | {
        key: stored.plan.settings[key] for key in ("model", "protocol", "data", "split")
    }
    files = [
        path
        for name in ("candidates", "scores", "rollouts")
        if (path := stored.folder / f"{name}.jsonl").exists()
    ]
    inputs = {path.stem: file_digest(path) for path in files}
    plan = Plan(
        "pairs", settled, {**inputs, **function_files(settings.rewards)}, run_folder.versions()
    )
    if target.dry_run:
        status = "new" if target.force else run_folder.compare(target.folder, plan)
        figures = {"folder": status, "candidates": len(stored.candidates)}
        return Result("pairs", "dry run", str(target.folder), figures, [], 0.0)
    with run_folder.open_stage(target.folder, plan, force=target.force) as stage:
        if stage.status != "done":
            try:
                _fill_again(stage, settings, target.run, stored)
            except UserError:
                stage.fail()  # all of it can be made again
                raise
        return stage.result(_next(target))


def _fill_again(
    stage: run_folder.StageFolder, settings: PairsSettings, run: Path, stored: Stored
) -> None:
    folder = stage.folder
    shutil.copyfile(stored.folder / "records.jsonl", folder / "records.jsonl")
    tally = Tally(settings.max_failures, folder, _mend(settings.candidates))
    figures = _rank(settings, folder, _ranked(settings, stored, folder, tally))
    rescored = [name for name in ("scores.jsonl",) if (folder / name).exists()]
    told = {
        "failed_rewards": tally.failed,
        "lineage": lineage(str(stored.plan.settings["model"]), run),
    }
    stage.finish(["records.jsonl", "pairs.jsonl", "stats.json", *rescored], {**figures, **told})


def _ranked(
    settings: PairsSettings, stored: Stored, folder: Path | None, tally: Tally
) -> ScoredCandidates:
    """The stored scores; new ones, written to `folder` if there is one, where user functions are
    asked for.
    """
    records = [from_row(row) for row in read_rows(stored.folder / "records.jsonl")]
    if not settings.rewards and stored.scores:
        return ScoredCandidates(stored.candidates, stored.scores, _expected(records))
    base = find_model(str(stored.plan.settings["model"]), stored.folder.parent).base
    with UserFunctions(settings.rewards, seconds=settings.reward_seconds) as own:
        judge = Scorer(
            {record.id: record for record in records},
            reading(stored.plan.settings["protocol"], base),
            own,
        )
        if folder is not None:
            return ScoredCandidates(
                stored.candidates,
                _score(folder, stored.candidates, judge, tally),
                _expected(records),
            )
        scores: dict[CandidateKey, Score] = {}
        for score in judge(stored.candidates):
            scores[score.key] = score
            tally.count(score)
            tally.refuse(len(stored.candidates))
    return ScoredCandidates(stored.candidates, scores, _expected(records))


def _compare(settings: PairsSettings, stored: Stored) -> Result:
    """Many weightings of the same candidates side by side; nothing is written."""
    tally = Tally(settings.max_failures, stored.folder, _mend(stored.folder.name))
    ranked = _ranked(settings, stored, None, tally)
    weightings = _weightings(settings.grid, ranked.user_components)
    groups = group(ranked.candidates, ranked.scores)
    with console.waiting(
        f"pairs: ranking {len(ranked.candidates)} candidates by {len(weightings)} weightings"
    ):
        rows = compare_weightings(groups, weightings, _rule(settings))
    report = report_components(groups, next(iter(weightings.values())), ranked.expected)
    figures = {
        "weightings": rows,
        "components": report,
        "told": sentences(report),
        "failed_rewards": tally.failed,
    }
    return Result("pairs", "compared", str(stored.folder), figures, [], 0.0)


def _weightings(grid: Sequence[str], own: set[str]) -> dict[str, dict[str, float]]:
    """By name: the weightings of files, and those written out. Raises UserError 2 for a name that
    is there twice.
    """
    found: dict[str, dict[str, float]] = {}
    for given in grid:
        new = (
            {given: settle_weights(resolve.parse_weights(given, given), own)}
            if "=" in given
            else read_grid(resolve.find_file(given), own)
        )
        for name in found.keys() & new.keys():
            raise UserError(
                f"'{name}' is there twice.",
                "Give each weighting a name of its own.",
                location=given,
            )
        found |= new
    return found


def _dry_run(
    settings: PairsSettings, target: RunTarget, plan: Plan, found: Prompts, source: Source
) -> Result:
    """How many candidates there would be, and of how long prompts."""
    status = "new" if target.force else run_folder.compare(target.folder, plan)
    template = load_template(source.base)
    records = _chosen(settings, found)
    asked, too_long = _fitting(
        settings, prompts(records, settled(found.protocol, template).of, template)
    )
    longest = max(len(one.ids) for one in asked)
    memory = dry_run_memory("pairs", settings, source.base, longest + settings.max_new_tokens)
    figures = {
        "folder": status,
        "steps": len(asked),
        "candidates": len(asked) * settings.num_samples,
        "too_long": too_long,
        "prompt_tokens": sum(len(one.ids) for one in asked),
        "longest_prompt": longest,
        "memory_gib": memory,
    }
    return Result("pairs", "dry run", str(target.folder), figures, [], 0.0)
