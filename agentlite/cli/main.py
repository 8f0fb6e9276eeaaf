"""The command line: a Click group. Stages are built from their settings; other commands bring their
own options.
"""

import contextlib
import errno
import importlib
import os
import sys
from collections.abc import Callable
from typing import Any

import click

from agentlite.cli.completion import completed
from agentlite.cli.options import AS_JSON, DEBUG, RUN

STAGES = {
    "prep": "Raw agent dialogs -> checked, de-duplicated records in train, dev and test.",
    "retriever": (
        "Train a model to bring the few tools, of many, that a question needs; and an "
        "index of them."
    ),
    "sft": "Train an adapter to say what the assistant says in the records.",
    "pairs": "Sample several answers at every step, score them, pair the best with the worst.",
    "dpo": "Train an adapter to prefer the chosen answers of pairs to the rejected ones.",
    "grpo": "Train an adapter on answers it samples itself, each against the others of its group.",
    "eval": "Ask models at every step of the test records, score them, set them side by side.",
}
OTHERS = {
    "init": "Make a folder with sample rows, settings with comments and a README, to start from.",
    "doctor": "Say what this machine has and can train, what is missing, and what to do about it.",
    "plan": (
        "Say what memory, time and disk a command will need, and what would fit; nothing is run."
    ),
    "runs": (
        "List the stages of a workspace: state, key figure, size, age; free what is not "
        "needed "
        "any more."
    ),
    "chat": (
        "Talk to a model in its own protocol, and answer its calls: by hand, from a file, by "
        "functions."
    ),
    "export": (
        "Write a trained model as others want it: merged weights, GGUF, Ollama, or the "
        "adapter alone."
    ),
    "serve": "Answer OpenAI's chat completions on this machine, with tools, from one model.",
}
COMMANDS = {**STAGES, **OTHERS}
EXAMPLES = {
    "prep": """agentlite prep dialogs.jsonl
agentlite prep bfcl:simple_python,multiple,irrelevance --show 2
agentlite prep agent.jsonl chat.jsonl --mix general=chat.jsonl:0.2 --holdout bench.jsonl --personal mask
cat rows.jsonl | agentlite prep - --run runs/weather --json""",  # noqa: E501  (verbatim text)
    "retriever": """agentlite retriever
agentlite retriever --tools agent_tools.jsonl --num-epochs 5 --json
agentlite retriever --model BAAI/bge-small-en-v1.5 --out retriever-bge
agentlite retriever --max-steps 0 --out untrained""",
    "sft": """agentlite sft
agentlite sft --model Qwen/Qwen2.5-1.5B-Instruct --profile rtx4090
agentlite sft --out sft-r64 --set sft.lora_r=64 --set sft.trl.weight_decay=0.01""",
    "pairs": """agentlite pairs -n 8 --gold
agentlite pairs --from pairs --weights tool_accuracy=.5,efficiency=0 --out pairs-b
agentlite pairs --from pairs --grid weights.yaml
cat prompts.jsonl | agentlite pairs --data - --model sft --json""",
    "dpo": """agentlite dpo
agentlite dpo --data pairs-b --out dpo-b --beta 0.3
agentlite dpo --loss-type ipo --out dpo-ipo""",
    "grpo": """agentlite grpo
agentlite grpo --model dpo --out grpo-2 --weights exact=1,task_completion=0
agentlite grpo --rewards mine.py:short --skip-solved""",
    "eval": """agentlite eval
agentlite eval --model smollm2-135m --model sft --gate 'tool_selection_accuracy>=0.8,end_to_end_success>=0.5'
agentlite eval --predictions others.jsonl --json
agentlite eval --compare runs/a/eval/prep/sft --compare runs/b/eval/prep/sft""",  # noqa: E501  (verbatim text)
    "plan": """agentlite plan --model Qwen/Qwen2.5-7B-Instruct --fit 12GB
agentlite plan --command grpo --profile rtx4090 --set grpo.group_size=8
agentlite plan --config-json config.json --command dpo --sweep memory.svg --json""",
    "init": """agentlite init weather
cd weather && agentlite prep data.jsonl && agentlite sft && agentlite eval""",
    "doctor": """agentlite doctor
agentlite doctor --json | jq -r '.findings[] | select(.state != "ok") | .fix'""",
    "runs": """agentlite runs
agentlite runs runs/* --json
agentlite runs --rm sft""",
    "chat": """agentlite chat sft --tools tools.json
agentlite chat sft --tools tools.json --exec tools.py
agentlite chat sft --tools tools.json --replay dialog.jsonl --json""",
    "export": """agentlite export sft --merged weather-model
agentlite export sft --gguf weather.gguf --llama-cpp ~/llama.cpp
agentlite export sft --ollama weather-ollama --llama-cpp ~/llama.cpp""",
    "serve": """agentlite serve sft
agentlite serve dpo --port 8080 --max-new-tokens 512""",
}
SHORT = {"batch_size": "-b", "num_epochs": "-e", "num_samples": "-n"}
ALSO = {("prep", "max_length"): "--max-tokens", ("eval", "num_samples"): "-k"}
LONG = {"candidates": "--from"}  # `from` is no name for a setting in Python
SEVERAL = {
    ("prep", "holdout"),
    ("prep", "mix"),
    ("retriever", "tools"),
    ("eval", "model"),
    ("eval", "predictions"),
    ("eval", "compare"),
    ("eval", "ratings"),
    ("pairs", "weights"),
    ("pairs", "grid"),
    ("pairs", "rewards"),
    ("grpo", "rewards"),
}


# where a command has too many settings for one list; the others stand under Options
SECTIONS = {
    "prep": {
        "What is read": (
            "format",
            "repair",
            "retry_rejects",
            "max_rejects",
            "workers",
            "formats",
            "explain",
        ),
        "What is learned from": (
            "personal",
            "duplicates",
            "near",
            "contradictions",
            "holdout",
            "mix",
            "task_weights",
            "limit",
            "coreset_strategy",
            "coreset_target_size",
            "coreset_loss",
            "coreset_model",
            "replay",
            "continual_buffer_size",
            "continual_replay_ratio",
            "why",
        ),
        "What training rows look like": (
            "model",
            "protocol",
            "max_length",
            "long_rows",
            "distractors",
            "join",
            "join_tokens",
            "remove_tool",
            "mask_names",
            "retrieve",
            "retriever",
            "retrieve_by",
            "no_call_answer",
            "no_call_answer_zh",
            "model_name",
            "model_author",
            "show",
        ),
    },
    "eval": {
        "What is evaluated": (
            "model",
            "endpoint",
            "endpoint_key",
            "predictions",
            "data",
            "split",
            "retrieve",
            "retriever",
            "retrieve_by",
            "limit",
            "compare",
            "kagent",
        ),
        "What is measured besides": ("gate", "general", "num_samples", "temperature"),
        "What others think of the answers": (
            "judge",
            "judge_model",
            "judge_key",
            "sheet",
            "ratings",
        ),
    },
}


class Commands(click.Group):
    """Knows its commands by name; the settings of one are looked up when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        return completed(_command(name)) if name in COMMANDS else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, commands in (("Stages", STAGES), ("Beside them", OTHERS)):
            with formatter.section(title):
                formatter.write_dl(list(commands.items()))

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            import difflib

            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            fix = f"Did you mean '{near[0]}'?" if near else f"Known: {', '.join(COMMANDS)}."
            raise click.UsageError(f"no command '{args[0]}'. {fix}")
        return super().resolve_command(ctx, args)


class Command(click.Command):
    """Lists its options in sections, if it has any."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            if "unexpected extra argument" not in error.message:
                raise
            fix = "Files are read by `agentlite prep FILE`; other stages read the one before them."
            raise click.UsageError(f"{error.message}. {fix}", ctx) from error

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        options = [option for option in self.get_params(ctx) if isinstance(option, click.Option)]
        sections = SECTIONS.get(self.name or "", {})
        named = {key for keys in sections.values() for key in keys}
        others = tuple(option.name for option in options if option.name not in named)
        for title, keys in {**sections, "Options": others}.items():
            with formatter.section(title):
                formatter.write_dl(
                    [
                        row
                        for one in options
                        if one.name in keys and (row := one.get_help_record(ctx))
                    ]
                )


@click.group(
    cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.version_option(package_name="agentlite")
def group() -> None:
    """Tune a language model to use tools, on one GPU.

    Each stage reads the one before from the workspace (--run, default runs/default) and can be
    stopped, carried on and repeated: agentlite prep dialogs.jsonl; agentlite sft; agentlite pairs;
    agentlite dpo; agentlite eval
    """


def main() -> None:
    """Runs the command line; every error that a user can mend is told in a few lines, with its exit
    code.
    """
    from agentlite.core.console import Forgiving, open_streams
    from agentlite.core.errors import DISK, UserError

    open_streams()
    for stream in (sys.stdout, sys.stderr):  # a terminal that is not UTF-8 must not end a run
        with contextlib.suppress(AttributeError, ValueError):
            stream.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]  # a TextIOWrapper
    sys.stderr = Forgiving(sys.stderr)
    debug = "--debug" in sys.argv
    try:
        group(prog_name="agentlite", standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except UserError as error:
        if debug:
            raise
        _tell(error)
        sys.exit(error.exit_code)
    except BrokenPipeError:  # `| head`: the reader has gone; what is on disk is whole
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(141)
    except (KeyboardInterrupt, click.Abort):
        _stopped(130)
    except Exception as error:
        if code := getattr(error, "exit_code", 0):  # engine.training.Stopped, without importing it
            _stopped(code)
        if debug:
            raise
        if isinstance(error, OSError) and (
            error.filename or error.errno in (errno.EIO, errno.ENOSPC, errno.EDQUOT)
        ):
            from agentlite.core.row_files import way_out

            _tell(
                UserError(
                    f"the system says: {error.strerror}.",
                    way_out(error),
                    location=str(error.filename or ""),
                )
            )
            sys.exit(DISK)
        click.echo(
            f"Error: {type(error).__name__}: {error}\nThis is a fault of agentlite or of a "
            "library. "
            "--debug shows where; please report it.",
            err=True,
        )
        sys.exit(1)


def _tell(error: Any) -> None:
    first, *rest = str(error).split("\n")
    click.echo(
        "\n".join([f"{click.style('Error:', fg='red', bold=True)} {first}", *rest]),
        err=True,
        color=None if not os.environ.get("NO_COLOR") else False,
    )


def _stopped(code: int) -> None:
    click.echo("Stopped. The same command again carries on.", err=True)
    sys.exit(code)


def _command(name: str) -> click.Command:
    if name == "plan":
        return Command(name, params=_plan_options(), callback=_plan, help=_help(name))
    if name in OTHERS:
        own: click.Command = importlib.import_module(f"agentlite.cli.commands.{name}").COMMAND
        own.help = _help(name)
        return own
    parameters: list[click.Parameter] = [_option(name, key) for key in _keys(name)]
    if name == "prep":
        parameters = [
            click.Argument(["sources"], nargs=-1, metavar="SOURCE..."),
            *parameters,
            *_ways_out(),
        ]
    return Command(
        name, params=[*parameters, *_shared(name)], callback=_callback(name), help=_help(name)
    )


def _help(name: str) -> str:
    """Examples first: they are what most people look for."""
    return "\n".join(
        [COMMANDS[name], "", "\b", *(f"  {line}" for line in EXAMPLES[name].splitlines())]
    )


def _plan_options() -> list[click.Parameter]:
    """Settings are those of the planned command, so that plan and run cannot differ: --set,
    --config, --profile.
    """
    planned = [name for name in STAGES if name not in ("prep", "retriever")]
    own = [
        click.Option(
            ["--command"], type=click.Choice(planned), default="sft", help="what is planned [sft]"
        ),
        click.Option(
            ["--model"],
            metavar="VALUE",
            help="alias, path, hub id or earlier stage [as the command has it]",
        ),
        click.Option(
            ["--config-json"],
            default="",
            metavar="FILE",
            help="a model's config.json; no weights are read",
        ),
        click.Option(
            ["--data"],
            metavar="VALUE",
            help="finished stage whose longest row counts [as the command has it]",
        ),
        click.Option(
            ["--fit"],
            default="",
            metavar="12GB",
            help="say what would fit into a GPU with so much memory",
        ),
        click.Option(
            ["--sweep"],
            default="",
            metavar="FILE",
            help="draw memory against context for several cards (SVG)",
        ),
    ]
    left_out = {"out", "force", "dry_run", "print_config"}
    return [*own, *(option for option in _shared("sft") if option.name not in left_out)]


def _plan(
    command: str,
    model: str | None,
    data: str | None,
    fit: str,
    sweep: str,
    config_json: str,
    run: str,
    config: tuple[str, ...],
    sets: tuple[str, ...],
    profile: str,
    as_json: bool,
    debug: bool,
) -> None:
    from pathlib import Path

    from agentlite.cli.commands.plan import PlanRequest, present
    from agentlite.cli.commands.plan import run as answer
    from agentlite.config.hardware import profile_for
    from agentlite.config.resolve import Given
    from agentlite.engine.planning.gpus import gigabytes
    from agentlite.stages.api import settle

    if fit and profile == "auto":
        profile = profile_for(gigabytes(fit))
    named = (model,) if model and command == "eval" else model
    flags = {key: value for key, value in (("model", named), ("data", data)) if value}
    settings = settle(command, Given(flags, sets, config, profile), Path(run)).settings
    present(
        answer(PlanRequest(command, profile, config_json, fit, sweep), settings, Path(run)), as_json
    )


def _ways_out() -> list[click.Parameter]:
    """What prep shows, and what it can be asked without a source."""
    return [
        click.Option(
            ["--show"],
            type=int,
            default=0,
            metavar="N",
            help="print N records, the trained tokens between ⟦ and ⟧",
        ),
        click.Option(
            ["--as", "shape"],
            default="",
            metavar="NAME",
            help="write the records to stdout as openai, sharegpt, ms-swift or llamafactory rows",
        ),
        click.Option(
            ["--why"],
            default="",
            metavar="ID",
            help=(
                "say where a record came from, what was done to it and where it ended; FILE:LINE "
                "for a row"
            ),
        ),
        click.Option(
            ["--formats"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_tell_formats,
            help="list the formats that are read, with a row of each",
        ),
        click.Option(
            ["--explain"],
            metavar="CODE",
            is_eager=True,
            expose_value=False,
            callback=_explain,
            help="say what the code of a rejected row means and how to mend it",
        ),
    ]


def _tell_formats(context: click.Context, option: click.Parameter, asked: bool) -> None:
    if asked:
        from agentlite.data.formats import FORMATS

        for name, known in FORMATS.items():
            click.echo(f"{click.style(name, bold=True)}\n  {known.example}")
        context.exit()


def _explain(context: click.Context, option: click.Parameter, code: str | None) -> None:
    if code is not None:
        from agentlite.core.reject_codes import explain

        click.echo(explain(code))
        context.exit()


def _keys(name: str) -> list[str]:
    from agentlite.config.settings import fields

    return [key for key in fields(name) if key not in ("sources", "trl", "peft")]


def _option(name: str, key: str) -> click.Option:
    from agentlite.config.settings import default, describe

    value = default(name, key)
    given: dict[str, Any] = {"is_flag": False, "flag_value": "true"} if value is False else {}
    shown = (
        ",".join(map(str, value))
        if isinstance(value, tuple)
        else ""
        if value in (None, {})
        else str(value)
    )
    text = describe(name, key) + (f" [{shown}]" if shown and "[" not in describe(name, key) else "")
    flags = [
        LONG.get(key, f"--{key.replace('_', '-')}"),
        *([SHORT[key]] if key in SHORT else []),
        *([ALSO[name, key]] if (name, key) in ALSO else []),
    ]
    return click.Option(
        [*flags, key], multiple=(name, key) in SEVERAL, metavar="VALUE", help=text, **given
    )


def _shared(name: str) -> list[click.Parameter]:
    """What every command takes beside its settings."""
    flag: dict[str, Any] = {"is_flag": True}
    return [
        RUN,
        click.Option(["--out"], metavar="NAME", help=f"folder in the workspace [{name}]"),
        click.Option(
            ["--config"],
            multiple=True,
            metavar="FILE",
            help="YAML, a section a command; repeatable",
        ),
        click.Option(
            ["--set", "sets"],
            multiple=True,
            metavar="KEY=VALUE",
            help=f"any setting: {name}.seed=1; repeatable",
        ),
        click.Option(
            ["--profile"],
            default="auto",
            metavar="NAME",
            help="cpu, rtx3060, t4, rtx4090, a100 [auto: by free memory]",
        ),
        click.Option(["--force"], help="start over", **flag),
        click.Option(["--dry-run"], help="check everything, write nothing", **flag),
        click.Option(["--print-config"], help="show each setting and where it came from", **flag),
        AS_JSON,
        DEBUG,
    ]


def _callback(name: str) -> Callable[..., None]:
    def run(
        run: str,
        out: str | None,
        config: tuple[str, ...],
        sets: tuple[str, ...],
        profile: str,
        force: bool,
        dry_run: bool,
        print_config: bool,
        as_json: bool,
        debug: bool,
        show: int = 0,
        shape: str = "",
        why: str = "",
        **flags: Any,
    ) -> None:
        from pathlib import Path

        from agentlite.config.resolve import Given, as_yaml
        from agentlite.stages.api import execute, settle
        from agentlite.workspace.run_folder import RunTarget

        if why:
            _tell_why(Path(run) / (out or name), why, as_json)
            return
        given = Given(_weightings(flags), sets, config, profile)
        resolved = settle(name, given, Path(run))
        if print_config:
            click.echo(as_yaml(name, resolved))
            return
        if shape:
            _check_shape(shape)
        result = execute(name, resolved.settings, RunTarget(Path(run), out or name, force, dry_run))
        _present(result, as_json, show, shape, resolved.settings)

    return run


def _tell_why(folder: Any, asked: str, as_json: bool) -> None:
    import json

    from agentlite.stages.prep.provenance import told, why

    found = why(folder, asked)
    click.echo(json.dumps(found, ensure_ascii=False) if as_json else "\n".join(map(told, found)))


def _weightings(flags: dict[str, Any]) -> dict[str, Any]:
    """What was given. One --weights is a setting; several are a grid of them."""
    given = {key: value for key, value in flags.items() if value not in (None, ())}
    weights = given.pop("weights", ())
    if len(weights) > 1 and not isinstance(weights, str):
        given["grid"] = (*given.get("grid", ()), *weights)
    elif weights:
        given["weights"] = weights if isinstance(weights, str) else weights[0]
    return given


def _check_shape(shape: str) -> None:
    from agentlite.core.errors import UserError, nearest
    from agentlite.data.write_formats import SHAPES

    if shape not in SHAPES:
        raise UserError(f"no shape '{shape}'.", nearest(shape, SHAPES), location="--as")


def _present(result: Any, as_json: bool, show: int, shape: str, settings: Any) -> None:
    """stdout holds one thing: the JSON object, the records of `--rows -` or `--as`, or a table."""
    from agentlite.cli.output import OWN, present

    present(
        result,
        as_json=as_json,
        show=show,
        shape=shape or (OWN if getattr(settings, "rows", "") == "-" else ""),
    )
    if result.failed:
        from agentlite.core.errors import GATE, UserError

        raise UserError(
            f"the gate is not passed: {'; '.join(result.failed)}.",
            location="--gate",
            exit_code=GATE,
        )
