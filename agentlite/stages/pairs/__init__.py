"""finished prep + a model, stored candidates, or preference rows -> preference pairs."""

import shlex
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from agentlite.config import resolve
from agentlite.config.settings import PairsSettings
from agentlite.core import console
from agentlite.core.errors import OTHER_PLAN, UserError
from agentlite.core.records import to_row
from agentlite.core.row_files import write_json, write_rows
from agentlite.data.prompt_records import Prompts, find_prompts
from agentlite.engine import check_libraries
from agentlite.engine.planning.dry_run import dry_run_memory
from agentlite.engine.remote import served
from agentlite.environments.trajectories import is_rollout
from agentlite.rendering import prompts, settled
from agentlite.scoring.preference_pairs import read_candidates
from agentlite.scoring.rewards import COMPONENTS, PENALTIES, Component, settle_weights
from agentlite.scoring.rewards.scorer import Scorer, Tally, reading
from agentlite.scoring.rewards.user_functions import UserFunctions, function_files
from agentlite.stages.pairs.earlier_candidates import (
    SAMPLED,
    Stored,
    find_stored,
    is_sampled,
    set_aside_changed,
)
from agentlite.stages.pairs.next_command import RANKED, SAMPLE_MORE, with_next
from agentlite.stages.pairs.preference_files import take_recorded
from agentlite.stages.pairs.rank import RULE, compare_grid, rank
from agentlite.stages.pairs.rollouts import pair_rollouts
from agentlite.stages.pairs.sample import (
    CANDIDATES,
    chosen_records,
    fitting_prompts,
    missing_samples,
    sample_candidates,
)
from agentlite.stages.pairs.score import (
    ScoredCandidates,
    expected_calls,
    rescore_hint,
    score_candidates,
    stored_scores,
)
from agentlite.workspace import run_folder
from agentlite.workspace.digests import file_digest
from agentlite.workspace.lineage import lineage, longer_rows, model_of_prep, setting_of
from agentlite.workspace.model_source import Source, find_model, load_template
from agentlite.workspace.run_folder import Plan, Result, RunTarget

# they change how candidates are scored and paired, not the candidates
RANKING = ("weights", "rewards", *RULE)


def inherit(settings: PairsSettings, run: Path) -> dict[str, tuple[object, str]]:
    """The length of the rows of the data; with --from and --grid, that of the candidates, and the
    rule by which the first pairs were chosen.
    """
    if not (settings.candidates or settings.grid):
        return longer_rows("pairs", settings.data, run)
    name = settings.candidates or "pairs"
    rule = {key: setting_of(name, key, run) for key in RULE}
    return {
        **longer_rows("pairs", name, run),
        **{key: (value, name) for key, value in rule.items() if value is not None},
    }


def run(settings: PairsSettings, target: RunTarget) -> Result:
    """Samples, scores and pairs; or ranks stored candidates; or takes recorded preferences.
    Raises UserError 2, 3, 4, 5, 7, 74 or 75.
    """
    with console.stdout_to_stderr():
        if settings.preferences:
            return take_recorded(settings, target)
        if settings.candidates and is_rollout(
            run_folder.find_stage(settings.candidates, target.run)
        ):
            return pair_rollouts(settings, target)
        if settings.grid or settings.candidates:
            stored = find_stored(settings.candidates or "pairs", target.run)
            if settings.grid:
                return compare_grid(settings, stored)
            return _rank_again(settings, target, stored)
        return _sample_and_rank(settings, target)


def key_figure(figures: Mapping[str, object]) -> str:
    return f"{figures['pairs']} pairs at {figures['steps']} steps"


def _sample_and_rank(settings: PairsSettings, target: RunTarget) -> Result:
    weights = settle_weights(settings.weights, _names(settings.rewards))
    source = _source(settings, target)
    prepared = find_prompts(settings.data, settings.split, settings.model, source, target.run)
    plan = Plan(
        "pairs",
        {**resolve.plan_settings("pairs", settings), "protocol": prepared.protocol},
        {"data": prepared.digest, "model": source.digest, **function_files(settings.rewards)},
        run_folder.versions(),
    )
    _refuse_sampling_again(target, plan)
    if target.dry_run:
        return _dry_run(settings, target, plan, prepared, source, weights)
    if not settings.endpoint and (target.force or not (target.folder / SAMPLED).exists()):
        check_libraries(settings.engine)
    with run_folder.open_stage(target.folder, plan, force=target.force) as stage:
        asks_again = settings.unanswered == "ask"
        if stage.status == "done" and asks_again and stage.done.figures.get("unanswered"):
            stage.reopen()
            stage.outcome = "done"
        if stage.status != "done":
            try:
                # first of all: a user function that cannot be imported costs no sampling
                with UserFunctions(
                    settings.rewards, settings.reward_seconds, settings.reward_memory
                ) as user_functions:
                    models = lineage(settings.model, target.run)
                    _fill(stage, settings, prepared, source, models, user_functions)
            except UserError:
                if not (stage.folder / "candidates.jsonl").exists():  # nothing worth keeping yet
                    stage.fail()
                raise
        return with_next(stage, target, SAMPLE_MORE)


def _source(settings: PairsSettings, target: RunTarget) -> Source:
    """The model; behind servers, with the template of the model that prep was run for."""
    if not settings.endpoint:
        return find_model(settings.model, target.run, target.begun)
    begun = run_folder.read(target.begun).plan if target.begun else None
    servers = begun.inputs.get("model", "") if begun else ""
    return served(settings.model, settings, model_of_prep(settings.data, target.run), servers)


def _refuse_sampling_again(target: RunTarget, plan: Plan) -> None:
    """Other weights need no new candidates. Raises UserError 3 with the command that ranks the
    existing ones.
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
        raise UserError(
            f"its candidates were ranked with other settings: {'; '.join(changes)}.",
            f"`agentlite pairs --from {shlex.quote(target.out)} ... --out "
            f"{shlex.quote(f'{target.out}-2')}` ranks the candidates that are there, without a "
            "model; --force samples again.",
            location=str(target.folder),
            exit_code=OTHER_PLAN,
        )


def _dry_run(
    settings: PairsSettings,
    target: RunTarget,
    plan: Plan,
    prepared: Prompts,
    source: Source,
    weights: Mapping[str, float],
) -> Result:
    """How many candidates there would be, and how long the prompts are."""
    status = "new" if target.force else run_folder.compare(target.folder, plan)
    template = load_template(source.base)
    records = chosen_records(settings, prepared, weights)
    fitting, too_long = fitting_prompts(
        settings, prompts(records, settled(prepared.protocol, template).of, template)
    )
    longest = max(len(one.ids) for one in fitting)
    memory = dry_run_memory("pairs", settings, source.base, longest + settings.max_new_tokens)
    figures = {
        "folder": status,
        "steps": len(fitting),
        "candidates": len(fitting) * settings.num_samples,
        "too_long": too_long,
        "prompt_tokens": sum(len(one.ids) for one in fitting),
        "longest_prompt": longest,
        "memory_gib": memory,
    }
    return Result("pairs", "dry run", str(target.folder), figures, [], 0.0)


def _fill(
    stage: run_folder.StageFolder,
    settings: PairsSettings,
    prepared: Prompts,
    source: Source,
    models: list[str],
    user_functions: Mapping[str, Component],
) -> None:
    folder = stage.folder
    weights = settle_weights(settings.weights, user_functions)
    records = chosen_records(settings, prepared, weights)
    template = load_template(source.base)
    mixture = settled(prepared.protocol, template)
    with console.waiting(f"pairs: writing the prompts of {len(records)} records"):
        fitting, too_long = fitting_prompts(settings, prompts(records, mixture.of, template))
    write_rows(folder / "records.jsonl", map(to_row, records))
    stage.set_aside_changed("scores.jsonl")
    set_aside_changed(folder)
    is_whole = (folder / SAMPLED).exists()
    if is_whole and source.endpoints and settings.unanswered == "ask":
        known = {candidate.key for candidate in read_candidates(folder / CANDIDATES)}
        is_whole = not missing_samples(settings, fitting, known)
    if not is_whole:
        (folder / SAMPLED).unlink(missing_ok=True)
        sample_candidates(settings, source, fitting, mixture.protocols, stage)
        write_json(
            folder / SAMPLED,
            {name: file_digest(folder / f"{name}.jsonl") for name in ("records", "candidates")},
        )
    candidates = list(read_candidates(folder / CANDIDATES))
    unanswered = len(missing_samples(settings, fitting, {one.key for one in candidates}))
    if unanswered:
        console.notice(
            f"pairs: {unanswered} samples have no answer from {source.name} and give no candidate"
        )
    scorer = Scorer(
        {record.id: record for record in records},
        reading(prepared.protocol, source.base),
        user_functions,
    )
    tally = Tally(settings.max_failures, folder, rescore_hint(folder.name))
    scores = score_candidates(folder, candidates, scorer, tally)
    figures = rank(settings, folder, ScoredCandidates(candidates, scores, expected_calls(records)))
    counts: dict[str, object] = {"too_long": too_long, "failed_rewards": tally.failed}
    counts |= {"unanswered": unanswered} if source.endpoints else {}
    counts["lineage"] = models
    stage.finish(
        ["records.jsonl", "candidates.jsonl", "scores.jsonl", "pairs.jsonl", "stats.json"],
        {**figures, **counts},
    )


def _rank_again(settings: PairsSettings, target: RunTarget, stored: Stored) -> Result:
    user_components = {name for score in stored.scores.values() for name in score.components}
    user_components -= {*COMPONENTS, *PENALTIES}
    settle_weights(settings.weights, {*user_components, *_names(settings.rewards)})
    if target.folder.resolve() == stored.folder.resolve():
        raise UserError(
            "would write over the candidates' own folder.",
            "Give another one: --out NAME.",
            location="--out",
        )
    kept = resolve.plain_settings(settings)
    settled = {key: kept[key] for key in (*RANKING, "candidates")} | {
        key: stored.plan.settings[key]
        for key in ("model", "protocol", "data", "split", "max_length")
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
                folder = stage.folder
                shutil.copyfile(stored.folder / "records.jsonl", folder / "records.jsonl")
                tally = Tally(settings.max_failures, folder, rescore_hint(settings.candidates))
                figures = rank(settings, folder, stored_scores(settings, stored, folder, tally))
                rescored = ["scores.jsonl"] if (folder / "scores.jsonl").exists() else []
                models = lineage(str(stored.plan.settings["model"]), target.run)
                stage.finish(
                    ["records.jsonl", "pairs.jsonl", "stats.json", *rescored],
                    {**figures, "failed_rewards": tally.failed, "lineage": models},
                )
            except UserError:
                stage.fail()  # all of it can be made again
                raise
        return with_next(stage, target, RANKED)


def _names(functions: Iterable[str]) -> list[str]:
    return [text.rpartition(":")[2] for text in functions]
