"""finished prep -> pairs without sampling: the gold, and the gold with one thing wrong."""

import shlex
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, Literal, NamedTuple

from msgspec import UNSET
from msgspec.structs import replace

from agentlite.config import resolve
from agentlite.config.settings import PairsSettings
from agentlite.core import console
from agentlite.core.errors import RowError, UserError
from agentlite.core.records import (
    GOLD,
    Candidate,
    Message,
    PreferencePair,
    Record,
    Side,
    digest,
    to_row,
)
from agentlite.core.row_files import write_json, write_rows
from agentlite.data.prompt_records import Prompts, find_prompts
from agentlite.rendering import (
    Mixture,
    Prompt,
    encode_answer,
    prompt_at,
    prompts,
    render_last,
    settled,
)
from agentlite.rendering.template import Template
from agentlite.scoring.gold_edits import (
    EDITS,
    EditStep,
    Elsewhere,
    applies,
    edited_turns,
    elsewhere,
)
from agentlite.scoring.metrics.model_metrics import read_metrics
from agentlite.scoring.metrics.wrong_answers import IN_WORDS, WrongKind, wrong_kind
from agentlite.scoring.preference_pairs import UNIT, write_pairs
from agentlite.scoring.read_turn import read_turn
from agentlite.scoring.rewards import settle_weights, total
from agentlite.scoring.rewards.scorer import Scorer
from agentlite.stages.pairs.next_command import EDITED, with_next
from agentlite.stages.pairs.sample import chosen_records
from agentlite.workspace import run_folder
from agentlite.workspace.lineage import lineage
from agentlite.workspace.model_source import find_model, load_template
from agentlite.workspace.run_folder import Plan, Result, RunTarget

EQUAL = "equal"  # in place of a model: every kind as often as the others
SETTINGS = ("edits", "model", "data", "split", "limit", "seed", "margin", "weights", "max_length")
WITHOUT = ("candidates", "grid", "preferences", "rewards", "endpoint", "balance")
TRIES = 4  # edits of a kind at a step that are rendered and scored
# why an edit cannot be taken, or a step has no pair
NOT_POSSIBLE = "nothing of the step can be changed so"
SMALL_MARGIN = "the reward differs by less than the margin"
UNKNOWN = "the data does not know the arguments"
WRONG_GOLD = "the recorded answer is not right itself"
NO_EDIT = "no edit is possible"
SURPLUS = "beyond the share of its kind"
TOO_LONG = "longer than max_length"


class EditShares(NamedTuple):
    """How often each kind is wanted, in relation to the others. `mistakes`: the wrong answers of
    the model that they are taken from, by kind.
    """

    weights: dict[WrongKind, float]
    mistakes: dict[WrongKind, int]


class Draw:
    """Says which kind is wanted next at a step, so that the counts come as near to the shares as
    the steps allow.
    """

    def __init__(self, weights: Mapping[WrongKind, float]):
        self.weights, self.counts = weights, Counter[WrongKind]()

    def order(self, random: Random) -> list[WrongKind]:
        """All kinds; first the one whose count would stay furthest below its share."""
        ties = {kind: random.random() for kind in self.weights}
        return sorted(
            self.weights,
            key=lambda kind: ((self.counts[kind] + 1) / self.weights[kind], ties[kind]),
        )

    def most(self) -> dict[WrongKind, int]:
        """How many pairs of each kind are kept: none has more, for its share, than the next pair
        of another kind would give that one. Steps without a call know one kind only, and may be
        most of the data.
        """
        after = {kind: (n + 1) / self.weights[kind] for kind, n in self.counts.items() if n}
        kept: dict[WrongKind, int] = {}
        for kind in after:
            others = [share for other, share in after.items() if other != kind]
            limit = int(self.weights[kind] * max(others) + 1e-9) if others else self.counts[kind]
            kept[kind] = min(self.counts[kind], limit)
        return kept


class Editor(NamedTuple):
    """All that edits are made from, rendered by and compared with."""

    settings: PairsSettings
    elsewhere: Elsewhere
    mixture: Mixture
    template: Template
    weights: Mapping[str, float]


class EditedPairs(NamedTuple):
    """`impossible`: by kind and reason, at how many steps the kind was wanted and could not be
    made; `no_pair`: by reason, how many steps have no pair.
    """

    steps: int
    records: list[Record]
    pairs: list[PreferencePair]
    kinds: Counter[WrongKind]
    impossible: dict[WrongKind, Counter[str]]
    no_pair: Counter[str]


def pair_edits(settings: PairsSettings, target: RunTarget) -> Result:
    """Edits, renders and scores every step. Raises UserError 2, 3 or 5."""
    _refuse_others(settings)
    weights = settle_weights(settings.weights)
    source = find_model(settings.model, target.run, target.begun)
    prepared = find_prompts(settings.data, settings.split, settings.model, source, target.run)
    shares = _shares(settings, prepared, target)
    plan = Plan(
        "pairs",
        {key: resolve.plain_settings(settings)[key] for key in SETTINGS}
        | {"protocol": prepared.protocol, "wrong_answers": dict(shares.mistakes)},
        {"data": prepared.digest, "model": source.digest},
        run_folder.versions(),
    )

    def make() -> EditedPairs:
        with console.waiting("pairs: editing the correct answers"):
            template = load_template(source.base)
            mixture = settled(prepared.protocol, template)
            records = chosen_records(settings, prepared, weights)
            editor = Editor(settings, elsewhere(records), mixture, template, weights)
            return edited_pairs(editor, records, shares)

    if target.dry_run:
        status = "new" if target.force else run_folder.compare(target.folder, plan)
        figures = {"folder": status, **_figures(make())}
        return Result("pairs", "dry run", str(target.folder), figures, [], 0.0)
    with run_folder.open_stage(target.folder, plan, force=target.force) as stage:
        if stage.status != "done":
            try:
                made = make()
                _report(settings, shares, made)
                write_rows(stage.folder / "records.jsonl", map(to_row, made.records))
                write_pairs(stage.folder / "pairs.jsonl", made.pairs)
                write_json(stage.folder / "stats.json", _statistics(made, shares, weights))
                models = lineage(settings.model, target.run)
                stage.finish(
                    ["records.jsonl", "pairs.jsonl", "stats.json"],
                    {**_figures(made), "lineage": models},
                )
            except UserError:
                stage.fail()  # all of it can be made again
                raise
        return with_next(stage, target, EDITED)


def _refuse_others(settings: PairsSettings) -> None:
    for key in WITHOUT:
        if getattr(settings, key):
            name = "from" if key == "candidates" else key
            raise UserError(
                "asks no model and ranks nothing: its pairs are made from the correct answers.",
                f"Leave --{name} out, or leave --edits out.",
                location="--edits",
            )


def _shares(settings: PairsSettings, prepared: Prompts, target: RunTarget) -> EditShares:
    """Raises UserError 2 where the model was not evaluated on dev, or has no mistake to learn
    from.
    """
    if settings.edits == EQUAL:
        return EditShares(dict.fromkeys(EDITS, 1.0), {})
    mistakes = _mistakes_on_dev(settings, prepared, target)
    weights = {kind: float(mistakes[kind]) for kind in EDITS if mistakes.get(kind)}
    if not weights:
        raise UserError(
            f"{settings.edits} makes no mistake on the dev records that an edit can make.",
            f"Draw every kind equally often: --edits {EQUAL}.",
            location="--edits",
        )
    return EditShares(weights, mistakes)


def _mistakes_on_dev(
    settings: PairsSettings, prepared: Prompts, target: RunTarget
) -> dict[WrongKind, int]:
    """Of the newest evaluation of the model, as it is now, on the dev records of the prep."""
    model = find_model(settings.edits, target.run)
    command = f"agentlite eval --model {shlex.quote(settings.edits)} --split dev --out eval-dev"
    digest = ""
    if prepared.prepared:
        command += "" if settings.data == "prep" else f" --data {shlex.quote(settings.data)}"
        outputs = run_folder.finished(Path(prepared.location).parent, "prep").outputs
        digest = next((one for name, one in outputs.items() if name.startswith("dev.")), "")
    found = [
        stored
        for folder in run_folder.stages_in(target.run, "*/*/*")
        if (stored := run_folder.read(folder)).done
        and (plan := stored.plan)
        and plan.command == "eval"
        and plan.settings.get("split") == "dev"
        and plan.inputs.get("model") == model.digest
        and plan.inputs.get("data", "").startswith(digest)
    ]
    if not found:
        raise UserError(
            f"{settings.edits}, as it is now, was not evaluated on the dev records.",
            f"Run `{target.next(command)}` first, or draw every kind equally often: --edits "
            f"{EQUAL}.",
            location="--edits",
        )
    newest = max(found, key=lambda one: one.begun)
    run_folder.finished(newest.folder, "eval")
    mistakes = read_metrics(newest.folder / "metrics.json").wrong_answers
    if mistakes is UNSET:
        raise UserError(
            "does not count wrong answers by kind: an earlier version wrote it.",
            f"Run that eval again, which asks nothing anew: `{target.next(command)}`.",
            location=str(newest.folder / "metrics.json"),
        )
    return mistakes


def edited_pairs(editor: Editor, records: Sequence[Record], shares: EditShares) -> EditedPairs:
    made = EditedPairs(0, [*records], [], Counter(), {}, Counter())
    draw, steps = Draw(shares.weights), 0
    for prompt in prompts(records, editor.mixture.of, editor.template):
        steps += 1
        if problem := _gold_problem(prompt, editor):
            made.no_pair[problem] += 1
            continue
        random = Random(f"{editor.settings.seed} {prompt.record.id} {prompt.turn}")
        for kind in draw.order(random):
            if not applies(kind, prompt.record.messages[prompt.turn]):
                continue
            pair = _pair(prompt, kind, editor, random)
            if isinstance(pair, PreferencePair):
                made.pairs.append(pair)
                draw.counts[kind] += 1
                break
            made.impossible.setdefault(kind, Counter())[pair] += 1
        else:
            made.no_pair[NO_EDIT] += 1
    kept = _within_shares(made.pairs, draw.most(), editor.settings.seed)
    if surplus := len(made.pairs) - len(kept):
        made.no_pair[SURPLUS] += surplus
    return made._replace(steps=steps, pairs=kept, kinds=Counter(draw.most()))


def _within_shares(
    pairs: Sequence[PreferencePair], most: Mapping[WrongKind, int], seed: int
) -> list[PreferencePair]:
    """At most so many of each kind, drawn by seed and step, in their order."""
    by_kind: dict[str, list[int]] = defaultdict(list)
    for index, pair in enumerate(pairs):
        by_kind[pair.rejected.model].append(index)
    kept: set[int] = set()
    for kind, limit in most.items():
        found = by_kind[f"({kind})"]
        found.sort(key=lambda index: digest(f"{seed} {pairs[index].step}"))
        kept.update(found[:limit])
    return [pair for index, pair in enumerate(pairs) if index in kept]


def _gold_problem(prompt: Prompt, editor: Editor) -> str:
    """Why the gold cannot be chosen; "" if it can."""
    record, turn = prompt.record, prompt.turn
    if record.unknown_arguments(turn):
        return UNKNOWN
    if not prompt.answer.strip() or _kind_of(prompt.answer, prompt, editor):
        return WRONG_GOLD
    return TOO_LONG if _length(prompt, prompt, editor) > editor.settings.max_length else ""


def _pair(prompt: Prompt, kind: WrongKind, editor: Editor, random: Random) -> PreferencePair | str:
    """The gold against an edit of this kind, or why there is none."""
    reason = NOT_POSSIBLE
    step = EditStep(prompt.record, prompt.turn, editor.elsewhere, random)
    for message in islice(edited_turns(kind, step), TRIES):
        rejected = _written(prompt, message, editor)
        if isinstance(rejected, str):
            reason = rejected
        elif (read := _kind_of(rejected.answer, prompt, editor)) != kind:
            reason = f"reads as: {IN_WORDS[read]}" if read else "reads as right"
        elif _length(prompt, rejected, editor) > editor.settings.max_length:
            reason = TOO_LONG
        else:
            pair = _scored(prompt, rejected, kind, editor)
            if round(pair.margin * UNIT) >= max(1, editor.settings.margin * UNIT - 0.5):
                return pair
            reason = SMALL_MARGIN
    return reason


def _written(prompt: Prompt, message: Message, editor: Editor) -> Prompt | str:
    """The edited turn as the model would write it at the step, or why its protocol cannot."""
    record, turn = prompt.record, prompt.turn
    gold = {earlier: one for earlier, one in record.gold.items() if earlier < turn}
    edited = replace(record, messages=(*record.messages[:turn], message), gold=gold)
    protocol = editor.mixture.protocols[prompt.protocol]
    try:
        rendered = render_last(edited, protocol, editor.template)
    except RowError as error:
        return f"{protocol.name} cannot write it ({error.code})"
    return prompt_at(edited, turn, [rendered], protocol, editor.template)


def _kind_of(text: str, prompt: Prompt, editor: Editor) -> WrongKind | Literal[""]:
    protocol = editor.mixture.protocols[prompt.protocol]
    parsed = read_turn(text, protocol, prompt.record, prompt.turn)
    return wrong_kind(parsed, prompt.record.expected(prompt.turn), prompt.record.tools)


def _length(prompt: Prompt, answer: Prompt, editor: Editor) -> int:
    """Tokens of the prompt and an answer to it."""
    ids = encode_answer(answer.answer, answer.ended, editor.template, prompt.ids)
    return len(prompt.ids) + len(ids)


def _scored(prompt: Prompt, rejected: Prompt, kind: WrongKind, editor: Editor) -> PreferencePair:
    """The name of a kind stands for the model that gave the rejected answer."""
    candidates = [
        Candidate(*prompt.step, prompt.protocol, model, 0, answer.answer, answer.ended, 0)
        for model, answer in ((GOLD, prompt), (f"({kind})", rejected))
    ]
    score = Scorer({prompt.record.id: prompt.record}, editor.mixture.protocols, {})
    earned = [round(total(one.components, editor.weights) * UNIT) for one in score(candidates)]
    chosen, worse = (
        Side(one.text, one.ended, one.model, one.sample, points / UNIT)
        for one, points in zip(candidates, earned, strict=True)
    )
    return PreferencePair(*prompt.step, prompt.protocol, chosen, worse)


def _report(settings: PairsSettings, shares: EditShares, made: EditedPairs) -> None:
    left_out = {kind: n for kind, n in shares.mistakes.items() if kind not in EDITS}
    if left_out:
        named = ", ".join(f"{IN_WORDS[kind]} {n}" for kind, n in left_out.items())
        console.notice(
            f"pairs: {sum(left_out.values())} of {sum(shares.mistakes.values())} wrong answers of "
            f"{settings.edits} are of kinds that no edit makes: {named}"
        )
    if made.no_pair:
        named = ", ".join(f"{reason} {n}" for reason, n in made.no_pair.items())
        console.notice(f"pairs: {made.no_pair.total()} of {made.steps} steps have no pair: {named}")


def _figures(made: EditedPairs) -> dict[str, Any]:
    margins = [pair.margin for pair in made.pairs]
    return {
        "steps": made.steps,
        "pairs": len(made.pairs),
        "edits": _in_order(made.kinds),
        "impossible": {
            kind: made.impossible[kind].total() for kind in EDITS if kind in made.impossible
        },
        "no_pair": dict(made.no_pair),
        "mean_margin": round(sum(margins) / len(margins), 4) if margins else 0.0,
    }


def _statistics(
    made: EditedPairs, shares: EditShares, weights: Mapping[str, float]
) -> dict[str, Any]:
    wanted = sum(shares.weights.values())
    return {
        "weights": dict(weights),
        "wrong_answers": dict(shares.mistakes),
        "edits": {
            kind: {
                "wanted": round(shares.weights[kind] / wanted, 4),
                "pairs": made.kinds[kind],
                "mean_margin": _mean_margin(made.pairs, kind),
                "impossible": dict(made.impossible.get(kind, {})),
            }
            for kind in EDITS
            if kind in shares.weights
        },
        "no_pair": dict(made.no_pair),
    }


def _mean_margin(pairs: Iterable[PreferencePair], kind: WrongKind) -> float | None:
    margins = [pair.margin for pair in pairs if pair.rejected.model == f"({kind})"]
    return round(sum(margins) / len(margins), 4) if margins else None


def _in_order(counts: Mapping[WrongKind, int]) -> dict[WrongKind, int]:
    return {kind: counts[kind] for kind in EDITS if counts.get(kind)}
