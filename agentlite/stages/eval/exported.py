"""A model as it was evaluated, and what an export wrote of it -> how far their answers differ."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from agentlite.config.settings import EvalSettings
from agentlite.core import console
from agentlite.core.errors import UserError
from agentlite.core.records import GreedyAnswer, Prediction, Step
from agentlite.engine.llama_server import ask_llama_cpp
from agentlite.rendering import mixture_of, prompts_of
from agentlite.report.read_run import ReportedEvaluation, ReportedStage
from agentlite.report.tables import difference_sentence
from agentlite.scoring.metrics.figures import HEADLINE
from agentlite.scoring.metrics.summarize import differences_of
from agentlite.scoring.predictions import prompt_key, read_answers, to_prediction
from agentlite.stages.eval.recorded import ANSWERS, ask_model
from agentlite.stages.eval.subjects import OF_A_MODEL, Questions, load_data
from agentlite.workspace.input_files import load_template
from agentlite.workspace.lookup import Source, find_model

EVALUATED = "as evaluated"
Read = dict[Step, tuple[GreedyAnswer, Prediction]]  # an answer, and how it is read and scored


def measure(
    source: Source,
    stages: Sequence[ReportedStage],
    evaluations: Sequence[ReportedEvaluation],
    forms: Mapping[str, Path],
    server: Path | None,
    limit: int,
) -> dict[str, Any]:
    """Test records are asked of the model and of each form of it: of a folder as other programs
    load it, of a GGUF file by llama.cpp's `server`. {} where nothing can be asked, with a notice.

    `differences`: of each form to the model; `sentences`: the same for people; `causes`: of the
    forms that are worse beyond noise, as far as they can be told from outside.
    """
    before = [
        model
        for evaluation in evaluations
        for model in evaluation.models.values()
        if model.plan.inputs.get("model") == source.digest and not evaluation.is_live
    ][-1:]  # of several, the last
    prepared = [stage.folder for stage in stages if stage.plan.command == "prep"]
    planned = [one.plan.settings for one in (*stages, *before)]
    # a later stage overrules an earlier one, and the evaluation all of them
    given = {key: of_one[key] for of_one in planned for key in OF_A_MODEL if key in of_one}
    settings = msgspec.convert({**given, "limit": limit}, EvalSettings)
    read: dict[str, Read] = {}
    for form, path in {EVALUATED: None, **forms}.items():
        try:
            if not prepared:
                raise UserError("no prep says what it should answer.", location=source.name)
            cached = before[0].folder / ANSWERS if before and not path else None
            read[form] = _read(settings, source, prepared[-1], cached, path, server)
        except UserError as error:
            told = f"{error.location}: {error.problem} {error.fix}"
            console.notice(f"export: {form} is not asked: {told}")
            if form == EVALUATED:
                return {}
    return _compare(read, settings.load_in_4bit or settings.load_in_8bit)


def _read(
    settings: EvalSettings,
    source: Source,
    prepared: Path,
    cached: Path | None,
    form: Path | None,
    server: Path | None,
) -> Read:
    """`cached`: answers of an evaluation, which are not asked for again."""
    if form and form.is_dir():  # as it is, whatever the adapter was trained on
        settings = replace(settings, load_in_4bit=False, load_in_8bit=False)
        source = find_model(str(form), form)._replace(name="merged")
    elif form and not server:
        fix = "Build llama.cpp's target llama-server, or put one on the PATH."
        raise UserError("there is no llama-server.", fix, location=form.name)
    data = load_data(replace(settings, data=prepared.name), prepared.parent)
    template = load_template(source.base)
    mixture = mixture_of(data.protocol, template)
    every = list(prompts_of(data.records, mixture.protocol_of, template))
    questions = Questions(settings, source, every, mixture.protocols)
    asked = questions.fitting
    keys = {step: prompt_key(prompt) for step, prompt in asked.items()}
    answers = read_answers(cached, keys) if cached else {}
    waiting = [prompt for step, prompt in asked.items() if step not in answers]
    if form and server and form.is_file():
        replies = ask_llama_cpp(server, form, settings, template, waiting, mixture.protocols)
    else:
        replies = ask_model(questions._replace(prompts=waiting), own_ends=bool(form))
    for answer in replies if waiting else ():
        answers[answer.step] = replace(answer, prompt=keys[answer.step])
    read: Read = {}
    for step, prompt in asked.items():
        protocol = mixture.protocols[prompt.protocol]
        read[step] = answers[step], to_prediction(prompt, answers[step], protocol)
    return read


def _compare(read: Mapping[str, Read], few_bits: bool) -> dict[str, Any]:
    """See `measure`. `few_bits`: whether the model was evaluated on weights of 4 or 8 bits."""
    scores = {
        form: {step: scored.metrics for step, (_, scored) in of.items()}
        for form, of in read.items()
    }
    first, (_, *forms) = read[EVALUATED], read
    differences = differences_of([(EVALUATED, form) for form in forms], scores, 0, HEADLINE)
    rows = msgspec.to_builtins(differences)
    sentences, causes = [difference_sentence(row) for row in rows], dict[str, str]()
    worse = {row["second"] for row in rows if row["beyond_noise"] and row["mean"] < 0}
    for form in forms:
        pairs = [(answer, read[form][step][0]) for step, (answer, _) in first.items()]
        alike = sum(answer.text == other.text for answer, other in pairs)
        sentences.append(f"{form}: {alike} of {len(pairs)} answers are the very same.")
        unended = sum(  # they go on where the model's own answer ended
            answer.ended != other.ended == "cut" and other.text.startswith(answer.text)
            for answer, other in pairs
        )
        if form in worse:
            # in this order: with other prompts every answer may differ, however it ends
            reworded = any(answer.prompt != other.prompt for answer, other in pairs)
            likely = [
                (reworded, "its template writes the prompts otherwise"),
                (
                    4 * unended > len(pairs),
                    f"{unended} of its answers do not end: a stop token is missing",
                ),
                (forms[0] not in worse, f"the numbers of the file, as {forms[0]} is not worse"),
                (few_bits, "it is merged in another precision than it was evaluated in"),
                (True, "its weights are not those that were evaluated"),
            ]
            causes[form] = next(cause for holds, cause in likely if holds)
    return {"differences": rows, "sentences": sentences, "causes": causes}
