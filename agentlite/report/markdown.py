"""A workspace -> report.md: the models side by side, and the stages they were made by."""

from collections.abc import Iterable, Iterator, Sequence

from agentlite.report import ablation, retrieval_tables, tables
from agentlite.report.bfcl_scores import SENTENCE, BfclTable, bfcl_table, figures_of, missing
from agentlite.report.headline import headline
from agentlite.report.read_run import Evaluation, ReportedStage, WorkspaceRun
from agentlite.report.rollouts import RolloutFile, file_of, files_of, read_rollouts
from agentlite.report.tables import Table

WIDEST = 8  # a table with more figures than that is turned


def markdown(run: WorkspaceRun) -> str:
    blocks = [f"# Report of {_cell(run.name)}"]
    if not any(evaluation.models for evaluation in run.evaluations):
        blocks.append(tables.NO_EVALUATION)
    for evaluation in run.evaluations:
        blocks += _evaluation(run, evaluation)
    if table := bfcl_table(run):
        blocks += _bfcl(table)
    for stage in run.stages:
        if files := file_of(stage):
            blocks += [f"## Rollouts of {_cell(stage.name)}", *_rollouts(files)]
    blocks += _ablations(run)
    blocks += _retrievers(run)
    if run.stages:
        blocks.append("## Stages")
    blocks += [*map(_cell, run.unread), *map(described, run.stages)]
    return "\n\n".join(blocks) + "\n"


def _evaluation(run: WorkspaceRun, evaluation: Evaluation) -> Iterator[str]:
    yield f"## Evaluation on {_cell(evaluation.name)}"
    yield from map(_cell, evaluation.unread)
    if not evaluation.models:
        return
    metrics = evaluation.metrics
    if sentences := headline(metrics, tables.differences(evaluation)):
        yield _cell(" ".join(sentences))
    yield from map(_cell, tables.learned_before(metrics))
    if run.is_bfcl(evaluation):
        yield tables.BFCL_SENTENCE
    yield tables.MEAN_SENTENCE
    yield as_table(tables.models(metrics).cells)
    for figures in (*tables.slices(metrics), *tables.groups(metrics)):
        yield from _titled(figures)
    differences, outdated = tables.differences(evaluation), tables.outdated(evaluation)
    if differences or outdated:
        yield "### Paired differences"
        yield "\n".join(f"- {_cell(tables.in_words(row))}" for row in differences) or outdated
    if wrong := tables.wrong_answers(metrics):
        yield f"### {wrong.title}"
        yield tables.WRONG_SENTENCE
        yield as_table(wrong.cells)
    problems = tables.problems(metrics)
    yield f"### {problems.title}"
    yield as_table(problems.cells) if problems.rows else tables.ALL_READABLE
    if files := files_of(evaluation):
        yield "### Rollouts"
        yield from _rollouts(files)
    yield "### How it was measured"
    yield "\n\n".join(map(described, evaluation.models.values()))


def _titled(table: Table) -> Iterator[str]:
    yield f"### {_cell(table.title)}"
    is_wide = len(table.head) - table.labels > WIDEST
    yield as_table((table.turned if is_wide else table).cells)


def _bfcl(table: BfclTable) -> Iterator[str]:
    yield "## BFCL v4"
    yield SENTENCE
    yield as_table(figures_of(table).cells)
    yield "\n".join(f"- {_cell(sentence)}" for sentence in [*missing(table), *table.left_out])


def _rollouts(files: Sequence[RolloutFile]) -> Iterator[str]:
    """How many failed."""
    found = read_rollouts(files, 0)
    yield f"{found.failed} of {found.total} rollouts failed. The page shows them in full."


def _ablations(run: WorkspaceRun) -> Iterator[str]:
    for one in ablation.ablations(run):
        yield f"## {_cell(one.title)}"
        yield _cell(" ".join(one.table["verdict"]))
        yield as_table(ablation.rows(one.table, one.costs))
        if notes := ablation.notes(one.table):
            yield "\n".join(f"- {_cell(sentence)}" for sentence in notes)


def _retrievers(run: WorkspaceRun) -> Iterator[str]:
    for stage in run.stages:
        if stage.kind == "retriever" and (figures := stage.json("metrics.json")):
            yield f"## Retrieval by {_cell(stage.name)}"
            for view in retrieval_tables.tables(figures):
                yield from _titled(view)
            yield "\n".join(
                f"- {_cell(tables.in_words(row))}" for row in retrieval_tables.differences(figures)
            )
            yield retrieval_tables.milliseconds(figures)


def described(stage: ReportedStage) -> str:
    """A stage in a few lines: settings, digests of its inputs (its lineage), versions, figures."""
    values = {
        "settings": stage.settings,
        "inputs": stage.inputs,
        "versions": stage.plan.versions,
        "figures": stage.figures,
    }
    lines = [f"- {key}: {_cell(tables.listed(value))}" for key, value in values.items() if value]
    if done := stage.done:
        lines.append(f"- seconds: {done.seconds:.0f}")
    return "\n".join(
        [
            f"**{_cell(stage.name)}**{'' if stage.done else ' (not finished)'}",
            "",
            *lines,
        ]
    )


def as_table(rows: Iterable[list[str]]) -> str:
    head, *body = ([_cell(text) for text in row] for row in rows)
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *body))


def _cell(text: str) -> str:
    """Text on one line, escaped, so that a table shows it as it is."""
    return " ".join(text.split()).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")
