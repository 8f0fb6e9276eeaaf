"""The command line: a Click group, and errors -> a few lines and an exit code."""

import contextlib
import errno
import importlib
import os
import sys
from typing import Any

import click

from agentlite.cli.completion import completed
from agentlite.cli.stage_options import stage_command

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
    """Runs the command line; an error that a user can fix is a few lines and an exit code."""
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
        _print_error(error)
        sys.exit(error.exit_code)
    except BrokenPipeError:  # `| head`: the reader has gone; what is on disk is whole
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(141)
    except (KeyboardInterrupt, click.Abort):
        _stopped(130)
    except Exception as error:
        if code := getattr(error, "exit_code", 0):  # engine.trainer.Stopped, without importing it
            _stopped(code)
        if debug:
            raise
        if isinstance(error, OSError) and (
            error.filename or error.errno in (errno.EIO, errno.ENOSPC, errno.EDQUOT)
        ):
            from agentlite.core.row_files import way_out

            problem = f"the system says: {error.strerror}."
            _print_error(UserError(problem, way_out(error), location=str(error.filename or "")))
            sys.exit(DISK)
        click.echo(
            f"Error: {type(error).__name__}: {error}\n"
            "This is a fault of agentlite or of a library. "
            "--debug shows where; please report it.",
            err=True,
        )
        sys.exit(1)


def _print_error(error: Exception) -> None:
    head = click.style("Error:", fg="red", bold=True)
    click.echo(f"{head} {error}", err=True, color=False if os.environ.get("NO_COLOR") else None)


def _stopped(code: int) -> None:
    click.echo("Stopped. The same command again carries on.", err=True)
    sys.exit(code)


def _command(name: str) -> click.Command:
    if name in STAGES:
        return stage_command(name, _help(name))
    command: click.Command = importlib.import_module(f"agentlite.cli.commands.{name}").COMMAND
    command.help = _help(name)
    return command


def _help(name: str) -> str:
    """Examples first: they are what most people look for."""
    return "\n".join(
        [COMMANDS[name], "", "\b", *(f"  {line}" for line in EXAMPLES[name].splitlines())]
    )
