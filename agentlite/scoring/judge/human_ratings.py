"""Blind sheets on which people score the answers of several models, and how far raters agree."""

import csv
import io
import json
import random
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from itertools import permutations
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec

from agentlite.core import console
from agentlite.core.errors import UserError
from agentlite.core.records import canonical, digest
from agentlite.core.row_files import replacing, write_json
from agentlite.scoring.judge.llm_judge import RUBRIC, USABLE, Item
from agentlite.scoring.metrics.confidence import Summary, bootstrap, draw_resamples, summary

COLUMNS = ["row", "question", "reference", "answer", "score", "remark"]
LONGEST = 30_000  # a cell of the usual programs holds 32,767 characters
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet would run a cell that begins so
DELIMITERS = ",;\t"


def key_path(sheet: Path) -> Path:
    return sheet.with_name(f"{sheet.stem}.key.json")


def write_sheet(answers: Mapping[str, Sequence[Item]], sheet: Path, seed: int) -> None:
    """One row for each answer, in an order that tells nothing; a rater gets it, not the key."""
    items = {(item.name, model): item for model, group in answers.items() for item in group}
    order = sorted(items)
    random.Random(seed).shuffle(order)
    # another sheet has other rows
    mark = digest(canonical([seed, [[*key, *items[key]] for key in order]]))[:4]
    width = len(str(len(order)))
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    rows: dict[str, dict[str, str]] = {}
    for number, (name, model) in enumerate(order, 1):
        item, row = items[name, model], f"{mark}-{number:0{width}}"
        writer.writerow([row, *map(_cell, (item.question, item.reference, item.answer)), "", ""])
        rows[row] = {"model": model, "item": name}
    write_json(key_path(sheet), {"seed": seed, "rows": rows, "rubric": RUBRIC})
    with replacing(sheet) as file:  # the mark tells spreadsheets that it is UTF-8
        file.write(text.getvalue().encode("utf-8-sig"))
    console.notice(
        f"eval: {sheet} is to be scored: copy it for each rater; {key_path(sheet).name} says whose "
        "they are"
    )


def _cell(text: str) -> str:
    """As much as a cell holds, and nothing that a spreadsheet would run."""
    text = text.encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")
    if len(text) > LONGEST:
        text = f"{text[:LONGEST]}\n[{len(text) - LONGEST} characters left out]"
    return f"'{text}" if text.startswith(FORMULA) else text


def read_key(sheet: Path) -> dict[str, dict[str, str]]:
    """What the sheet does not say: of each row the model and the item."""
    return dict(json.loads(key_path(sheet).read_bytes())["rows"])


def read_scores(sheet: Path, rows: Collection[str]) -> dict[str, int]:
    """What one rater gave, by row; `rows`: all that there are. Raises UserError for one that is
    missing, twice, unknown, or without a score.
    """
    try:
        text = sheet.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(
            "not UTF-8.", "Save the sheet as `CSV UTF-8`.", location=str(sheet)
        ) from error
    scores: dict[str, int] = {}
    delimiter = max(DELIMITERS, key=text.partition("\n")[0].count)
    for cells in csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter):
        row, score = ((cells.get(name) or "").strip() for name in ("row", "score"))
        if row or score:
            number = score.removesuffix(".0")
            if row not in rows or row in scores or number not in map(str, RUBRIC):
                raise UserError(
                    f"row {row!r} with score {score!r}: another row, a second time, or no score.",
                    "A rater gives every row of the sheet one whole number from 0 to 5.",
                    location=str(sheet),
                )
            scores[row] = int(number)
    if missing := sorted(set(rows) - set(scores)):
        raise UserError(
            f"{missing[0]} and {len(missing) - 1} more have no score.",
            "A rater scores every row of the sheet.",
            location=str(sheet),
        )
    return scores


def read_ratings(sheet: Path, filled_sheets: Sequence[Path], seed: int) -> dict[str, Any]:
    """By model the mean score and the share of usable answers, an answer's score being the mean
    over its raters; and how far the raters agree.
    """
    key = read_key(sheet)
    raters = [read_scores(path, key) for path in filled_sheets]
    by_model: dict[str, list[float]] = defaultdict(list)
    for row, entry in sorted(key.items()):
        by_model[entry["model"]].append(fmean(scores[row] for scores in raters))
    models = {}
    for model, values in sorted(by_model.items()):
        usable = [float(value >= USABLE) for value in values]
        models[model] = {
            "metrics": {"score": summary(values, seed), "usable": summary(usable, seed)}
        }
    by_row = [[scores[row] for scores in raters] for row in sorted(key)]
    ratings = {"models": models, "agreement": agreement(by_row, seed), "differences": []}
    return dict(msgspec.to_builtins(ratings))


# --- Krippendorff's alpha: 1 is agreement, 0 is chance ---


def agreement(units: Sequence[Sequence[float]], seed: int) -> dict[str, Summary | None]:
    """Ordinal alpha, by units drawn again. `count`: the units with two values or more."""
    rated_units = sorted(sorted(values) for values in units if len(values) > 1)
    if (value := alpha(rated_units)) is None:
        return {"ordinal": None}
    alphas = (alpha(resample) for resample in draw_resamples(rated_units, seed))
    estimates = [estimate for estimate in alphas if estimate is not None]
    if len(estimates) < 2:  # a percentile needs two values
        estimates = [value] * 2
    return {"ordinal": bootstrap(value, estimates, len(rated_units))}


def alpha(units: Sequence[Sequence[float]]) -> float | None:
    """By what was given to each unit, by however many raters. None where no unit has two, or all
    values are one.

    Krippendorff, Computing Krippendorff's alpha-reliability (2011): observed over expected
    disagreement, both from the pairs of values within a unit. Two values differ by how many values
    lie from one to the other, half of those at the ends.
    """
    pairs: dict[tuple[float, float], float] = defaultdict(float)
    for values in units:
        for pair in permutations(values, 2):
            pairs[pair] += 1 / (len(values) - 1)
    totals: dict[float, float] = defaultdict(float)
    for (first, _), weight in pairs.items():
        totals[first] += weight

    def difference(first: float, second: float) -> float:
        low, high = sorted((first, second))
        between = sum(count for value, count in totals.items() if low <= value <= high)
        return (between - (totals[first] + totals[second]) / 2) ** 2 if first != second else 0.0

    expected = sum(
        totals[first] * totals[second] * difference(first, second)
        for first in totals
        for second in totals
    )
    if not expected:
        return None
    observed = sum(weight * difference(*pair) for pair, weight in pairs.items())
    return 1 - (sum(totals.values()) - 1) * observed / expected
