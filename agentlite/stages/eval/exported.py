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
from agentlite.stages.eval.subjects import MODEL_SETTINGS, Questions, load_data
from agentlite.workspace.input_files import load_template
from agentlite.workspace.lookup import Source, find_model

EVALUATED = "as evaluated"
ScoredAnswers = dict[Step, tuple[GreedyAnswer, Prediction]]  # each with how it is read and scored


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
    evaluated_models = [
        model
        for evaluation in evaluations
        for model in evaluation.models.values()
        if model.plan.inputs.get("model") == source.digest and not evaluation.is_live
    ][-1:]  # of several, the last
    preps = [stage.folder for stage in stages if stage.plan.command == "prep"]
    stage_settings = [stage.plan.settings for stage in (*stages, *evaluated_models)]
    # a later stage overrules an earlier one, and the evaluation all of them
    planned = {key: s[key] for s in stage_settings for key in MODEL_SETTINGS if key in s}
    settings = msgspec.convert({**planned, "limit": limit}, EvalSettings)
    answers: dict[str, ScoredAnswers] = {}
    for form, path in {EVALUATED: None, **forms}.items():
        try:
            if not preps:
                raise UserError("no prep says what it should answer.", location=source.name)
            cached = evaluated_models[0].folder / ANSWERS if evaluated_models else None
            answers[form] = _ask(settings, source, preps[-1], cached, path, server)
        except UserError as error:
            reason = f"{error.location}: {error.problem} {error.fix}"
            console.notice(f"export: {form} is not asked: {reason}")
            if form == EVALUATED:
                return {}
    return _compare(answers, settings.load_in_4bit or settings.load_in_8bit)


def _ask(
    settings: EvalSettings,
    source: Source,
    prep: Path,
    cached: Path | None,
    form: Path | None,
    server: Path | None,
) -> ScoredAnswers:
    """The answers of a form, or of the model, whose `cached` ones are not asked for again."""
    if form and form.is_dir():  # as it is, whatever the adapter was trained on
        settings = replace(settings, load_in_4bit=False, load_in_8bit=False)
        source = find_model(str(form), form)._replace(name="merged")
    elif form and not server:
        fix = "Build llama.cpp's target llama-server, or put one on the PATH."
        raise UserError("there is no llama-server.", fix, location=form.name)
    data = load_data(replace(settings, data=prep.name), prep.parent)
    template = load_template(source.base)
    mixture = mixture_of(data.protocol, template)
    all_prompts = list(prompts_of(data.records, mixture.protocol_of, template))
    questions = Questions(settings, source, all_prompts, mixture.protocols)
    fitting = questions.fitting
    keys = {step: prompt_key(prompt) for step, prompt in fitting.items()}
    answers = read_answers(cached, keys) if cached and not form else {}
    missing = [prompt for step, prompt in fitting.items() if step not in answers]
    if form and server and form.is_file():
        replies = ask_llama_cpp(server, form, settings, template, missing, mixture.protocols)
    else:
        replies = ask_model(questions._replace(prompts=missing), own_ends=bool(form))
    for answer in replies if missing else ():
        answers[answer.step] = replace(answer, prompt=keys[answer.step])
    scored_answers: ScoredAnswers = {}
    for step, prompt in fitting.items():
        protocol = mixture.protocols[prompt.protocol]
        scored_answers[step] = answers[step], to_prediction(prompt, answers[step], protocol)
    return scored_answers


def _compare(answers: Mapping[str, ScoredAnswers], is_quantized: bool) -> dict[str, Any]:
    """See `measure`. `is_quantized`: the model was evaluated on weights of 4 or 8 bits."""
    scores = {
        form: {step: prediction.metrics for step, (_, prediction) in form_answers.items()}
        for form, form_answers in answers.items()
    }
    model_answers, (_, *forms) = answers[EVALUATED], answers
    differences = differences_of([(EVALUATED, form) for form in forms], scores, 0, HEADLINE)
    rows = msgspec.to_builtins(differences)
    sentences, causes = [difference_sentence(row) for row in rows], dict[str, str]()
    worse_forms = {row["second"] for row in rows if row["beyond_noise"] and row["mean"] < 0}
    for form in forms:
        pairs = [(answer, answers[form][step][0]) for step, (answer, _) in model_answers.items()]
        same_count = sum(answer.text == other.text for answer, other in pairs)
        sentences.append(f"{form}: {same_count} of {len(pairs)} answers are the very same.")
        unended = sum(  # they go on where the model's own answer ended
            answer.ended != other.ended == "cut" and other.text.startswith(answer.text)
            for answer, other in pairs
        )
        if form in worse_forms:
            # in this order: with other prompts every answer may differ, however it ends
            has_other_prompts = any(answer.prompt != other.prompt for answer, other in pairs)
            likely_causes = [
                (has_other_prompts, "its template writes the prompts otherwise"),
                (
                    4 * unended > len(pairs),
                    f"{unended} of its answers do not end: a stop token is missing",
                ),
                (
                    forms[0] not in worse_forms,
                    f"the numbers of the file, as {forms[0]} is not worse",
                ),
                (is_quantized, "it is merged in another precision than it was evaluated in"),
                (True, "its weights are not those that were evaluated"),
            ]
            causes[form] = next(cause for holds, cause in likely_causes if holds)
    return {"differences": rows, "sentences": sentences, "causes": causes}
