"""Options that several commands share: workspace, --json, --debug, and how a model answers."""

import click

RUN = click.Option(
    ["--run"],
    default="runs/default",
    envvar="AGENTLITE_RUN",
    metavar="DIR",
    help="the workspace [AGENTLITE_RUN, runs/default]",
)
AS_JSON = click.Option(
    ["--json", "as_json"], is_flag=True, help="one JSON object on stdout, of an error as well"
)
DEBUG = click.Option(["--debug"], is_flag=True, help="show tracebacks")
DECODING = [
    click.Option(
        ["--protocol"],
        default="",
        metavar="NAME",
        help="how calls are written [that of the training]",
    ),
    click.Option(
        ["--system"],
        default=None,
        metavar="TEXT",
        help="system text of a dialog without one; '' for none [that of the model's prep]",
    ),
    click.Option(
        ["--engine"],
        type=click.Choice(["unsloth", "hf"]),
        default="unsloth",
        help="unsloth, or plain transformers + peft [unsloth]",
    ),
    click.Option(
        ["--max-length"],
        type=click.IntRange(1, 2**31 - 1),
        default=2048,
        metavar="N",
        help="tokens of dialog and answer together [2048]",
    ),
    click.Option(
        ["--max-new-tokens"],
        type=click.IntRange(1, 2**31 - 1),
        default=256,
        metavar="N",
        help="tokens of an answer [256]",
    ),
    click.Option(["--load-in-4bit"], is_flag=True, help="base model in 4 bit (CUDA)"),
    click.Option(["--load-in-8bit"], is_flag=True, help="base model in 8 bit (CUDA)"),
]
