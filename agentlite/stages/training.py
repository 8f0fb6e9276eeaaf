"""The frame of the trainer stages: from a model and settings to an adapter in a finished folder."""

import shlex
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from agentlite.config.resolve import Origins, find_config_file
from agentlite.config.settings import (
    DistillSettings,
    GrpoSettings,
    PairsSettings,
    TrainerSettings,
    default,
)
from agentlite.core import console, distributed
from agentlite.core.errors import UserError
from agentlite.data.curation.mix import sample
from agentlite.data.prompt_records import Prompts
from agentlite.engine import check_libraries, processes, trainer
from agentlite.engine.load import loading_of, refuse_unusable
from agentlite.engine.planning.choose import dry_run_memory
from agentlite.engine.refusals import refuse, training_cases
from agentlite.rendering import Mixture, Prompt, mixture_of, prompts_of
from agentlite.rendering.template import Template
from agentlite.stages.frame import Figures, Work, plan_of, resume, run_stage
from agentlite.workspace import lookup
from agentlite.workspace.input_files import file_digest, trained_files
from agentlite.workspace.lookup import Result, RunTarget, Source

# Reads, and yields the figures of a dry run and the tokens of the longest row; it gets the folder,
# trains in it, and returns the figures.
Training = Generator[tuple[Figures, int], Path, Figures]


def train_stage(
    command: str,
    settings: TrainerSettings,
    target: RunTarget,
    source: Source,
    training: Training,
    *,
    protocol: str,
    inputs: Mapping[str, str],
    outputs: Sequence[str] = (),
    keep: Sequence[str] = (),
    eval_options: str = "",
) -> Result:
    """Refuses what does not go together, then trains in the frame of a stage.

    `inputs`: digests of what is read, without the model. `outputs`: the files that `training`
    writes next to the weights and metrics.jsonl.
    `keep`: see `frame.run_stage`. `eval_options`: options of the command that is suggested next.
    """
    refuse(command, training_cases(command, settings, source))
    refuse_unusable(loading_of(settings))
    trainer.check_trackers(settings.report_to)
    digests = {**inputs, "model": source.digest}
    if settings.deepspeed:  # with another file, or number of processes, no checkpoint can be read
        digests["deepspeed"] = file_digest(find_config_file(settings.deepspeed))
        digests["processes"] = str(distributed.world_size())
    plan = plan_of(command, settings, digests, protocol=protocol)

    def work() -> Work:
        if not target.dry_run:
            processes.start_others()  # the checks above were the first process's alone
        # only these can be refused; without them the rows are read first, which takes no libraries
        if settings.trl or settings.peft:
            trainer.check(command, settings)
        with closing(training):  # a dry run ends at its yield, with functions of the user's open
            forecast, longest = next(training)
            if target.dry_run:
                memory = dry_run_memory(command, settings, source.base, longest, target.run)
                forecast = {**forecast, "memory_gib": memory}
            stage = yield forecast
            figures = resume(training, stage.folder)
        files = [*trained_files(stage.folder, source.base), "metrics.jsonl", *outputs]
        return files, {**figures, "lineage": [*source.lineage, stage.folder.name]}

    names = shlex.join(["--model", source.name, "--model", target.out])
    return run_stage(
        plan,
        target,
        work(),
        before_work=lambda: check_libraries(settings.engine),
        keep=["checkpoints/checkpoint-*", trainer.MICRO_BATCH_FILE, *keep],
        next_command=f"agentlite eval {names}{eval_options}",
    )


def inherit_settings(command: str, settings: TrainerSettings, run: Path) -> Origins:
    """The model of the data and the length of its rows, the shape of the adapter that is continued;
    and for all weights a smaller learning rate than for an adapter: a tenth of its default.
    """
    origins: dict[str, tuple[object, str]] = {}
    model = settings.model
    if not getattr(settings, "env", ""):  # tasks of an environment have no rows of prep
        origins |= lookup.max_length_of(command, settings.data, run)
    if not model and (model := str(lookup.stored_settings(settings.data, run).get("model") or "")):
        origins["model"] = (model, settings.data)
    shape = lookup.adapter_shape(lookup.stored_settings(model, run))
    origins |= {key: (value, model) for key, value in shape.items()}
    if settings.full:
        origins["learning_rate"] = (default(command, "learning_rate") / 10, "--full")
    return origins


def data_option(data: str) -> str:
    """The option of eval that names the prep a stage was trained on."""
    return "" if data == "prep" else f" --data {shlex.quote(data)}"


def refuse_longer(
    lengths: Mapping[str, int], max_length: int, noun: str, other_fix: str = ""
) -> None:
    """Raises UserError 2 if something is longer than `max_length`, and names the longest.

    `lengths`: in tokens, by file and line; `noun`: row or pair; `other_fix`: what helps as well.
    """
    longer = [length for length in lengths.values() if length > max_length]
    if longer:
        location = max(lengths, key=lengths.__getitem__)
        are = f"1 {noun} is" if len(longer) == 1 else f"{len(longer)} of {len(lengths)} {noun}s are"
        raise UserError(
            f"{are} longer than max_length ({max_length}). The longest has {max(longer)} tokens.",
            f"Raise it: --max-length {max(longer)}{other_fix and ', ' + other_fix}.",
            location=location,
        )


def fitting_prompts(
    command: str,
    settings: PairsSettings | GrpoSettings | DistillSettings,
    prompt_data: Prompts,
    template: Template,
    room: int,
) -> tuple[list[Prompt], int, Mixture]:
    """The prompts of a sample of the records that are at most `room` tokens, how many are longer,
    and their protocols. Raises UserError if none fits.
    """
    usable = [record for record in prompt_data.records() if record.prompted_turns]
    records = [usable[index] for index in sample(usable, settings.limit, settings.seed)]
    mixture = mixture_of(prompt_data.protocol, template)
    with console.waiting(f"{command}: writing the prompts of {len(records)} records"):
        all_prompts = list(prompts_of(records, mixture.protocol_of, template))
    fitting = [prompt for prompt in all_prompts if len(prompt.ids) <= room]
    too_long = len(all_prompts) - len(fitting)
    if too_long:
        console.notice(f"{command}: {too_long} prompts are longer than {room} tokens and left out")
    if not fitting:
        raise UserError(
            f"holds no prompt of {max(0, room)} tokens or fewer with tools.",
            "Raise --max-length, or run prep on rows with tools, or with a larger split.",
            location=prompt_data.location,
        )
    return fitting, too_long, mixture
