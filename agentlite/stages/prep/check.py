"""What prep refuses: mistakes in its settings, changed inputs, too many rejects, no rows left."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace

from agentlite.config.settings import PrepSettings
from agentlite.core import console
from agentlite.core.conditions import parse_keep
from agentlite.core.errors import REJECTS, UserError, exceeds_share
from agentlite.core.reject_codes import CODES
from agentlite.core.row_files import check_parquet, refuse_unwritable
from agentlite.data.curation.doubts import CHECKS
from agentlite.data.curation.mix import full_task_weights, parse_mix
from agentlite.data.formats import FORMATS
from agentlite.data.formats.format import check_formats
from agentlite.data.formats.json_decode import quote
from agentlite.data.formats.raw_rows import files_of
from agentlite.data.ingest import IngestedRows
from agentlite.data.rejects import name_lines, report
from agentlite.environments.synthesis.dialog import DIALOGS
from agentlite.environments.trajectories import finished_trajectories, is_rollout
from agentlite.stages.pairs.stored import CANDIDATE_FILES, candidates_file
from agentlite.stages.prep.select import Selection
from agentlite.stages.tool_retrieval import check_packages
from agentlite.workspace import lookup
from agentlite.workspace.lookup import Plan

UNCOUNTED = ("E104", "E105")  # nobody knows how many rows such a reject stands for
CORRECTION = "Correct them in the source."
TOO_LONG = re.compile(r"(\d+) tokens, max_length is \d+")  # the reason of a row that is


def stage_file(folder: Path) -> tuple[str, bool]:
    """The rows of a finished stage that `--from` names, and whether they are candidates of pairs or
    grpo; else they are trajectories of a rollout, or dialogs of a make.
    """
    command = lookup.read_stage(folder).command
    if command == "make":
        lookup.finished_stage(folder, command)
        return str(folder / DIALOGS), False
    if command in CANDIDATE_FILES and not is_rollout(folder):
        return str(candidates_file(folder)), True
    return str(finished_trajectories(folder)), False


def expand_settings(settings: PrepSettings, old_plan: Plan | None = None) -> PrepSettings:
    """The settings with every file of rows by its own name. `old_plan`: of the stage that is
    carried on. Raises UserError for a mistake in them.
    """
    if not settings.sources:
        fix = "agentlite prep dialogs.jsonl, or - for stdin, or bfcl:multiple."
        raise UserError("no SOURCE is given.", fix, location="prep.sources")
    settings = replace(
        settings,
        task_weights=full_task_weights(settings.task_weights),
        sources=_files(settings.sources, old_plan),
        tools=tuple(file for source in settings.tools for file in files_of(source)),
    )
    check_formats(settings.format, settings.sources, FORMATS)
    parse_mix(settings.mix, settings.sources)
    parse_keep(settings.keep)
    strategy, size = settings.coreset_strategy, settings.coreset_target_size
    if bool(strategy) != bool(size):
        missing = "coreset_target_size=500" if strategy else "coreset_strategy=hybrid"
        raise UserError(
            "a coreset needs a strategy and a size.",
            f"Add --set prep.{missing}.",
            location="prep.coreset",
        )
    return replace(settings, holdout=_files(settings.holdout, old_plan))


def _files(sources: Sequence[str], old_plan: Plan | None) -> tuple[str, ...]:
    """`bfcl:simple_python,multiple` is two sources; a folder or a data set is the files in it."""
    old_files = [*old_plan.settings["sources"], *old_plan.settings["holdout"]] if old_plan else []
    files: list[str] = []
    for source in sources:
        scheme, colon, categories = source.partition(":")
        if colon and scheme == "bfcl":
            files += [f"bfcl:{category}" for category in categories.split(",")]
        else:
            files += files_of(source, old_files)
    return tuple(files)


def refuse_missing_packages(settings: PrepSettings) -> None:
    """Raises UserError 5 or 74 before a row is read."""
    if settings.rows == "parquet":
        check_parquet()
    if settings.retrieve:
        check_packages(settings.retrieve_by)
    if settings.replay:
        refuse_unwritable(Path(settings.replay))


def refuse_rejects(settings: PrepSettings, ingested: IngestedRows, file: Path) -> None:
    """Shows the rejects of each kind and what to do; raises UserError 4 if there are more than the
    settings allow. `file`: where all of them are, unless nothing is written.
    """
    rejects, rows_read = ingested.rejects, ingested.rows_read
    for line in report(rejects, str(file) if file.exists() else ""):
        console.row_notice(line)
    uncounted = [reject for reject in rejects if reject.code in UNCOUNTED]
    if uncounted and settings.max_rejects < 1:
        raise UserError(
            f"{uncounted[0].reason}: rows may be missing.",
            "Fetch or repair the file; or take what was read of it: --max-rejects 1.",
            location=uncounted[0].location,
            exit_code=REJECTS,
        )
    if exceeds_share(len(rejects), rows_read, settings.max_rejects, allowed=1):
        fix = CORRECTION
        if len(rejects) < rows_read:
            percent = -(-100 * len(rejects) // rows_read)  # rounded up
            fix += f" To leave them out: --max-rejects {percent / 100:.2f}."
        if lengths := [int(m[1]) for reject in rejects if (m := TOO_LONG.match(reject.reason))]:
            too_long = "1 of them is" if len(lengths) == 1 else f"{len(lengths)} of them are"
            fix = (
                f"{too_long} too long: --max-length {max(lengths)} keeps them all, --long-rows cut "
                f"keeps the steps that fit. {fix}"
            )
        raise UserError(
            f"{len(rejects)} of {rows_read} rows rejected, {settings.max_rejects:.0%} allowed.",
            fix,
            location=str(file),
            exit_code=REJECTS,
        )
    if rejects:
        console.notice(f"prep: {len(rejects)} of {rows_read} rows are left out. {CORRECTION}")


def notes(ingested: IngestedRows, declared: int) -> Iterator[str]:
    """What the user should know of the rows that were read. `declared`: the number of tools that
    the rows and --tools declare.
    """
    if count := ingested.done["in_tags"].total():
        yield (
            f"{count} rows hold thoughts, for which the model's chat template has no place: they "
            "are learned in <think>, and later turns are prompted with them; --thoughts drop "
            "leaves them out"
        )
    for method, rows in ingested.repairs.items():
        yield f"--fix ({method}) changed {name_lines(rows)}; provenance.jsonl has each"
    if invalid := ingested.done["invalid_schemas"]:
        yield (
            f"the schema of {invalid.most_common(1)[0][0]} is not valid JSON Schema. Only types "
            f"and required parameters were checked in {invalid.total()} calls of such tools "
            f"({len(invalid)}), which stats.json names"
        )
    for source, blocks in ingested.blocks.items():
        for name, count in blocks.items():
            if count > max(1, ingested.sources.count(source) / 2):
                yield (
                    f"{count} records of {source} are trained on a block {name!r} right behind "
                    "another. If it holds results, the model learns to invent them: write each as "
                    "a turn of the tool"
                )
    if names := ingested.done["undescribed"]:
        fix = f"the {declared} declared tools do not have them" if declared else "add --tools FILE"
        yield (
            f"{len(names)} tools have no more than an id, {min(names)} among them, so a model "
            f"cannot know what they do: {fix}"
        )
    if count := ingested.done["for_tests"].total():
        yield (
            f"{count} records are only for tests: any call is right in them, so there is nothing "
            "to learn"
        )


def doubt_notes(selection: Selection) -> Iterator[str]:
    """A line per check that kept rows do not pass: the places, and what is doubtful in the first.
    Counts the rows.
    """
    rows: dict[str, list[tuple[str, str]]] = {name: [] for name in CHECKS}
    for index, (location, pieces) in selection.ingested.doubts.items():
        for name, piece in pieces.items() if index in selection.kept else ():
            rows[name].append((location, piece))
    if counts := {name: len(doubts) for name, doubts in rows.items() if doubts}:
        selection.figures["doubts"] = counts
        yield "prep: look at these rows, which are kept (provenance.jsonl has all, as `doubts`):"
    for name in counts:
        (location, piece), *others = rows[name]
        also = f" (also {name_lines([other for other, _ in others])})" if others else ""
        check = CHECKS[name]
        yield f"{location}: {check['problem']}: {quote(piece)}; {check['cure']}{also}"


def refuse_nothing_left(selection: Selection, file: Path) -> None:
    """Raises UserError 4 if no record is kept. `file`: where the rejects are."""
    if selection.kept:
        return
    ingested = selection.ingested
    left_out = ingested.left_out(selection.ends).most_common()
    reasons = "".join(f", {code} {count}" for code, count in left_out)
    raise UserError(
        f"no row left of {ingested.rows_read} read: {len(ingested.rejects)} rejected{reasons}.",
        CODES[left_out[0][0]].hint if left_out else "That file says why." * bool(ingested.rejects),
        location=str(file) if ingested.rejects else "",
        exit_code=REJECTS,
    )
