"""A workspace -> report.md: the models side by side, and the stages they were made by."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from agentlite.report import ablation, retrieval_tables, tables
from agentlite.report.bfcl_scores import SENTENCE, bfcl_table, figures_of, missing
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
        notes = [*missing(table), *table.left_out]
        blocks += ["## BFCL v4", SENTENCE, as_table(figures_of(table).cells), _list(notes)]
    for stage in run.stages:
        if files := file_of(stage):
            blocks += [f"## Rollouts of {_cell(stage.name)}", _failed(files)]
    for one in ablation.ablations(run):
        blocks += [f"## {_cell(one.title)}", _cell(" ".join(one.table["verdict"]))]
        blocks += [as_table(ablation.rows(one.table, one.costs)), _list(ablation.notes(one.table))]
    for stage in run.stages:
        if stage.kind == "retriever" and (figures := stage.json("metrics.json")):
            blocks.append(f"## Retrieval by {_cell(stage.name)}")
            blocks += chain.from_iterable(map(_titled, retrieval_tables.tables(figures)))
            blocks.append(_list(map(tables.in_words, retrieval_tables.differences(figures))))
            blocks.append(retrieval_tables.milliseconds(figures))
    if run.stages:
        blocks.append("## Stages")
    blocks += [*map(_cell, run.unread), *map(described, run.stages)]
    return "\n\n".join(filter(None, blocks)) + "\n"


def _evaluation(run: WorkspaceRun, evaluation: Evaluation) -> Iterator[str]:
    yield f"## Evaluation on {_cell(evaluation.name)}"
    yield from map(_cell, evaluation.unread)
    if not evaluation.models:
        return
    metrics, differences = evaluation.metrics, tables.differences(evaluation)
    yield _cell(" ".join(headline(metrics, differences)))
    yield from map(_cell, tables.learned_before(metrics))
    if run.is_bfcl(evaluation):
        yield tables.BFCL_SENTENCE
    yield tables.MEAN_SENTENCE
    yield as_table(tables.models(metrics).cells)
    for table in (*tables.slices(metrics), *tables.groups(metrics).values()):
        yield from _titled(table)
    outdated = tables.outdated(evaluation)
    if differences or outdated:
        yield "### Paired differences"
        yield _list(map(tables.in_words, differences)) or outdated
    if wrong := tables.wrong_answers(metrics):
        yield f"### {wrong.title}"
        yield tables.WRONG_SENTENCE
        yield as_table(wrong.cells)
    problems = tables.problems(metrics)
    yield f"### {problems.title}"
    yield as_table(problems.cells) if problems.rows else tables.ALL_READABLE
    if files := files_of(evaluation):
        yield "### Rollouts"
        yield _failed(files)
    yield "### How it was measured"
    yield from map(described, evaluation.models.values())


def _titled(table: Table) -> Iterator[str]:
    yield f"### {_cell(table.title)}"
    is_wide = len(table.head) - table.labels > WIDEST
    yield as_table((table.turned if is_wide else table).cells)


def _list(sentences: Iterable[str]) -> str:
    return "\n".join(f"- {_cell(sentence)}" for sentence in sentences)


def _failed(files: Sequence[RolloutFile]) -> str:
    found = read_rollouts(files, 0)
    return f"{found.failed} of {found.total} rollouts failed. The page shows them in full."


def described(stage: ReportedStage) -> str:
    """A stage in a few lines: settings, digests of its inputs (its lineage), versions, figures."""
    values = {
        "settings": stage.settings,
        "inputs": stage.inputs,
        "versions": stage.plan.versions,
        "figures": stage.figures,
    }
    lines = [f"- {key}: {_cell(tables.listed(value))}" for key, value in values.items() if value]
    if stage.done:
        lines.append(f"- seconds: {stage.done.seconds:.0f}")
    title = f"**{_cell(stage.name)}**{'' if stage.done else ' (not finished)'}"
    return "\n".join([title, "", *lines])


def as_table(rows: Iterable[list[str]]) -> str:
    head, *body = ([_cell(text) for text in row] for row in rows)
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *body))


def _cell(text: str) -> str:
    """Text on one line, escaped, so that a table shows it as it is."""
    return " ".join(text.split()).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")
