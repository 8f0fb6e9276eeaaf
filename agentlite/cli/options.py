"""The options of a command: a struct whose fields have types, sections and help, as settings have;
how they are read, and the two pages of help that show them."""

import inspect
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click
import msgspec
from click.formatting import join_options
from msgspec import Struct

from agentlite.config.fields import (
    ARGUMENT,
    COMMON,
    Count,
    Field,
    Flag,
    Folder,
    Metavar,
    Model,
    fields_of,
    holds_numbers,
    metavar,
    option_text,
)
from agentlite.config.pipeline import DEFAULT_MODEL
from agentlite.config.settings import Engine

if TYPE_CHECKING:
    from agentlite.deploy.chat_model import ChatModel


class Option(click.Option):
    """The option of a field, with its section on the full page of help. Its value stays a text:
    `read_option`, and agentlite.config.resolve for all settings, make it what the field is."""

    def __init__(self, key: str, field: Field, **keywords: Any):
        if not keywords.get("is_flag"):
            keywords |= {"type": str, "metavar": metavar(field.kind, repeat=field.flag.repeat)}
        super().__init__(
            [*field.names(key), key],
            multiple=field.flag.repeat or holds_numbers(field.kind),
            envvar=field.flag.variable or None,
            help=field.help,
            **keywords,
        )
        self.field = field
        # in words, or as it is typed; "" for none
        self.default_shown = "" if self.is_flag else field.words or option_text(field.default)

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        names, _ = join_options(self.opts)
        head = names if self.is_flag else f"{names} {self.make_metavar(ctx)}"
        facts = [
            "repeatable" if self.field.flag.repeat else "",
            f"env: {self.envvar}" if self.envvar else "",
            f"default: {self.default_shown}" if self.default_shown else "",
        ]
        brackets = f"  [{'; '.join(filter(None, facts))}]" if any(facts) else ""
        return head, f"{self.help}{brackets}"


class CommandOptions(Struct, frozen=True, kw_only=True):
    """What every command can be told.

    Output:
        as_json: print one JSON object, for errors as well
        debug: show the traceback of an error
    """

    as_json: Annotated[bool, Flag(name="--json")] = False
    debug: bool = False


class RunOptions(CommandOptions, frozen=True, kw_only=True):
    """What every command can be told that works in a workspace.

    Workspace:
        run: workspace: the folder that holds the folders of all stages
    """

    run: Annotated[Folder, Flag(variable="AGENTLITE_RUN"), COMMON] = "runs/default"


def parameters(options: type[Struct]) -> Iterator[click.Parameter]:
    """The arguments and options of a struct; what is peculiar to a command comes first."""
    fields = fields_of(options)
    # PrepOptions, StageOptions, SettingsOptions, RunOptions, ...: the nearest class stands first
    keys = [key for struct in options.__mro__ for key in inspect.get_annotations(struct)]
    for key in dict.fromkeys(keys):
        field = fields[key]
        if ARGUMENT not in field.marks:
            yield Option(key, field, is_flag=field.default is False, default=field.default)
        elif field.default is msgspec.NODEFAULT:
            yield click.Argument([key], type=str, metavar=metavar(field.kind))
        else:
            several = isinstance(field.default, tuple)
            yield click.Argument(
                [key],
                type=str,
                metavar=f"[{metavar(field.kind, repeat=several)}]{'...' * several}",
                nargs=-1 if several else 1,
                default=field.default,
            )


def read_option(key: str, field: Field, value: Any) -> Any:
    """The value of a field as it was typed. Raises UserError 2."""
    if value is None or isinstance(value, bool):
        return value
    from agentlite.config.resolve import ValueContext, read_value

    name = key if ARGUMENT in field.marks else field.names(key)[0]
    return read_value(value, field.kind, ValueContext(name, f"{name} ", field.default, field.help))


MOST_OPTIONS = 14  # options of a command that needs no second page, --help not counted
NAME_COLUMNS = 30  # columns for the names of options, on a page of 80 or more
IS_FULL = "agentlite.help_all"  # in the context: whether the full page is asked for


class Command(click.Command):
    """`--help` shows the common options, `--help-all` every one. `run` gets the options."""

    def __init__(self, name: str, options: type[Struct], run: Callable[..., None], **keywords: Any):
        help_all = click.Option(
            ["--help-all"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_show_all,
            help="show every option",
        )
        params = [*keywords.pop("params", ()), *parameters(options), help_all]

        def callback(**values: Any) -> None:
            fields = {k: read_option(k, f, values.pop(k)) for k, f in fields_of(options).items()}
            run(options(**fields), **values)

        super().__init__(name, params=params, callback=callback, **keywords)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        options = [p for p in self.get_params(ctx) if isinstance(p, click.Option)]
        sections: dict[str, list[click.Option]] = {}
        if ctx.meta.get(IS_FULL):
            for option in options:
                title = option.field.section if isinstance(option, Option) else "Output"
                sections.setdefault(title, []).append(option)
        else:
            sections["Options"] = _common(options)
        for title, group in sections.items():
            with formatter.section(title):
                _write_options(formatter, [o.get_help_record(ctx) or ("", "") for o in group])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_epilog(ctx, formatter)
        options = [p for p in self.get_params(ctx) if isinstance(p, click.Option)]
        count = len(options) - len(_common(options)) - 1  # --help-all
        if count and not ctx.meta.get(IS_FULL):
            formatter.write_paragraph()
            formatter.write_text(f"{count} more options: {ctx.command_path} --help-all")


def _common(options: Sequence[click.Option]) -> list[click.Option]:
    """Those of the short page: all, where they are few."""
    shown = [option for option in options if "--help-all" not in option.opts]
    if len(shown) - 1 <= MOST_OPTIONS:
        return shown
    return [o for o in shown if not isinstance(o, Option) or COMMON in o.field.marks]


def _write_options(formatter: click.HelpFormatter, rows: list[tuple[str, str]]) -> None:
    """Names that are wider than the page go on below; Click would leave them to the terminal."""
    width, indent = formatter.width - formatter.current_indent, formatter.current_indent + 4
    rows = [(_wrap_names(names, width, " " * indent), text) for names, text in rows]
    column = NAME_COLUMNS if formatter.width >= 60 else max(8, formatter.width // 3)
    formatter.write_dl(rows, col_max=column)


def _wrap_names(names: str, width: int, indent: str) -> str:
    if len(names) <= width:
        return names
    import textwrap

    # a blank after each | is where `--loss-type [sigmoid|hinge|...]` may be cut; it is taken out
    # again where it was not
    lines = textwrap.wrap(
        names.replace("|", "| "), width - 4, break_long_words=False, break_on_hyphens=False
    )
    return f"\n{indent}".join(line.replace("| ", "|") for line in lines)


def _show_all(context: click.Context, option: click.Parameter, is_set: bool) -> None:
    if is_set and not context.resilient_parsing:
        context.meta[IS_FULL] = True
        click.echo(context.get_help(), color=context.color)
        context.exit()


class DecodingOptions(RunOptions, frozen=True, kw_only=True):
    """What every command that answers with a model can be told.

    Data and model:
        protocol: text format of tool calls, or the file of a prompt template [that of the training]
        system: system prompt of a dialog without one; '' for none [that of the model's prep]
    Sampling:
        max_length: maximum tokens of dialog and answer together
        max_new_tokens: maximum tokens of an answer
    Engine and memory:
        engine: library: unsloth, or plain transformers with PEFT
        load_in_4bit: load the base model in 4 bit (needs CUDA)
        load_in_8bit: load the base model in 8 bit (needs CUDA)
    """

    model: Annotated[Model, ARGUMENT] = DEFAULT_MODEL
    protocol: Annotated[str, Metavar("PROTOCOL|FILE")] = ""
    system: Annotated[str | None, COMMON] = None
    max_length: Annotated[Count, COMMON] = 2048
    max_new_tokens: Annotated[Count, COMMON] = 256
    engine: Engine = "unsloth"
    load_in_4bit: Annotated[bool, COMMON] = False
    load_in_8bit: bool = False

    def chat_model(self) -> "ChatModel":
        from agentlite.deploy.chat_model import ChatModel

        keys = [key for key in inspect.get_annotations(DecodingOptions) if key != "model"]
        settings = {key: getattr(self, key) for key in keys}
        return ChatModel(self.model, Path(self.run), **settings)
