"""A model's greedy completions at the steps of records, cached in answers.jsonl as they come."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from agentlite.config.settings import EvalSettings
from agentlite.core import console
from agentlite.core.openai_client import refuse_unanswered
from agentlite.core.records import Ending, GreedyAnswer, Step
from agentlite.core.row_files import Appender, count_rows
from agentlite.engine.decoding import Decoding
from agentlite.engine.remote import RemoteRequest, replies
from agentlite.rendering import Prompt, Protocol
from agentlite.scoring.predictions import prompt_key, read_answers
from agentlite.workspace.input_files import load_template
from agentlite.workspace.lookup import Source
from agentlite.workspace.stage_folder import StageFolder

ANSWERS = "answers.jsonl"


class Questions(NamedTuple):
    """What a model is asked, and how. `protocols`: those of the prompts, by name."""

    settings: EvalSettings
    source: Source
    prompts: Sequence[Prompt]
    protocols: Mapping[str, Protocol]

    @property
    def room(self) -> int:
        """The tokens of the longest prompt that leaves room for an answer."""
        return self.settings.max_length - self.settings.max_new_tokens

    @property
    def fitting(self) -> dict[Step, Prompt]:
        return {one.step: one for one in self.prompts if len(one.ids) <= self.room}


def ask(questions: Questions, stage: StageFolder) -> dict[Step, GreedyAnswer]:
    """An answer to each prompt: the cached ones, and those of the prompts that were not asked yet,
    appended to the file as they come. What a server answered is kept where it leaves others
    unanswered.
    """
    settings, source, prompts, _ = questions
    keys = {prompt.step: prompt_key(prompt) for prompt in prompts}
    stage.set_aside_changed(ANSWERS)
    path = stage.folder / ANSWERS
    answers = read_answers(path, keys)
    if settings.unanswered == "ask":  # the last answer to a prompt is the one that counts
        answers = {step: answer for step, answer in answers.items() if not answer.problem}
    waiting = questions._replace(prompts=[one for one in prompts if one.step not in answers])
    if not waiting.prompts:
        return answers
    stage.reopen()
    stage.expect(ANSWERS, count_rows(path) + len(waiting.prompts))
    cached = f", {len(answers)} there already" if answers else ""
    most = f"answers of at most {settings.max_new_tokens} tokens"
    console.notice(f"eval: {source.name}, {len(waiting.prompts)} prompts{cached}, {most}")
    fitting = waiting.fitting
    with Appender(path) as file:

        def keep(answer: GreedyAnswer) -> None:
            answers[answer.step] = answer
            file.append(msgspec.to_builtins(answer))

        for prompt in waiting.prompts:
            if prompt.step not in fitting:  # an empty answer, and no model is loaded for that
                keep(GreedyAnswer(*prompt.step, "", "", "cut"))
        if too_long := len(waiting.prompts) - len(fitting):
            console.notice(
                f"eval: {too_long} prompts are longer than {waiting.room} tokens: they score 0"
            )
        send = _ask_server if source.endpoints else ask_model
        unanswered = []
        for answer in send(waiting._replace(prompts=[*fitting.values()])) if fitting else ():
            answer = msgspec.structs.replace(answer, prompt=keys[answer.step])
            if answer.problem:
                unanswered.append(answer)
            else:
                keep(answer)
        # where nothing was answered, the model was not measured, whoever is to blame
        none = len(unanswered) == len(prompts)
        if settings.unanswered == "ask" or none:
            problems = [answer.problem for answer in unanswered]
            effect = "" if none else "counts them as wrong"
            refuse_unanswered(problems, len(prompts), source.name, effect)
        for answer in unanswered:
            keep(answer)
    return answers


def ask_model(questions: Questions, *, own_ends: bool = False) -> Iterator[GreedyAnswer]:
    """Protocol by protocol: each has stop strings of its own. `own_ends`: an answer ends only where
    the model's configuration says, as for other programs."""
    from agentlite.engine.load import load_for_inference, loading_of
    from agentlite.engine.local_sampler import generate

    settings, source, prompts, protocols = questions
    decoding = Decoding(settings.max_new_tokens)
    if not own_ends:
        decoding = decoding.under(load_template(source.base))
    loaded = load_for_inference(source, loading_of(settings))
    done = 0
    with console.progress(f"eval {source.name}", len(prompts)) as advance:
        for name, protocol in protocols.items():
            alike = [prompt for prompt in prompts if prompt.protocol == name]
            ids, ending = [prompt.ids for prompt in alike], decoding._replace(stops=protocol.stops)
            for batch in generate(loaded, ids, ending, batch_size=settings.batch_size):
                for answer in batch:
                    ended: Ending = "cut" if answer.ended == "cut" else "turn"
                    step, tokens = alike[answer.prompt].step, len(answer.ids)
                    yield GreedyAnswer(*step, "", answer.text, ended, tokens)
                advance(done := done + len(batch))


def _ask_server(questions: Questions) -> Iterator[GreedyAnswer]:
    """With a `problem` where the server has no answer."""
    settings, source, prompts, protocols = questions
    decoding = Decoding(settings.max_new_tokens)
    requests = [RemoteRequest(prompt, protocols[prompt.protocol]) for prompt in prompts]
    with console.progress(f"eval {source.name}", len(prompts)) as advance:
        for done, reply in enumerate(replies(source, requests, decoding), 1):
            step = prompts[reply.request].step
            yield GreedyAnswer(*step, "", reply.text, reply.ended, reply.new_tokens, reply.problem)
            advance(done)
