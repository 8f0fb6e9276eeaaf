"""The two help pages of a command: about a dozen options, and all of them in sections."""

from collections.abc import Callable, Sequence
from typing import Any

import click
from msgspec import Struct

from agentlite.cli.options import OUTPUT, parameters

MOST = 14  # options of a command that needs no second page, --help not counted
NAMES = 30  # columns for the names of options, on a page of 80 or more
IS_FULL = "agentlite.help_all"  # in the context: whether the full page is asked for


class Command(click.Command):
    """`--help` shows the common options, `--help-all` every one. `run` gets the options."""

    def __init__(self, name: str, options: type[Struct], run: Callable[..., None], **rest: Any):
        help_all = click.Option(
            ["--help-all"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_show_all,
            help="show every option",
        )
        params = [*rest.pop("params", ()), *parameters(options), help_all]

        def callback(**values: Any) -> None:
            own = {key: values.pop(key) for key in options.__struct_fields__}
            run(options(**own), **values)

        super().__init__(name, params=params, callback=callback, **rest)

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        option = super().get_help_option(ctx)
        if option:
            option.help = "show this help"
        return option

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        options = [one for one in self.get_params(ctx) if isinstance(one, click.Option)]
        sections: dict[str, list[click.Option]] = {}
        if ctx.meta.get(IS_FULL):
            for option in options:
                sections.setdefault(getattr(option, "section", OUTPUT.title), []).append(option)
        else:
            sections["Options"] = _common(options)
        for title, listed in sections.items():
            with formatter.section(title):
                _write(formatter, [one.get_help_record(ctx) or ("", "") for one in listed])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_epilog(ctx, formatter)
        options = [one for one in self.get_params(ctx) if isinstance(one, click.Option)]
        more = len(options) - len(_common(options)) - 1  # --help-all
        if more and not ctx.meta.get(IS_FULL):
            formatter.write_paragraph()
            formatter.write_text(f"{more} more options: {ctx.command_path} --help-all")


def _common(options: Sequence[click.Option]) -> list[click.Option]:
    """Those of the short page: all, where they are few."""
    listed = [one for one in options if "--help-all" not in one.opts]
    if len(listed) - 1 <= MOST:
        return listed
    return [one for one in listed if getattr(one, "common", "--help" in one.opts)]


def _write(formatter: click.HelpFormatter, rows: list[tuple[str, str]]) -> None:
    """Names that are wider than the page go on below; Click would leave them to the terminal."""
    width = formatter.width - formatter.current_indent
    names = [_broken(name, width, " " * (formatter.current_indent + 4)) for name, _ in rows]
    column = NAMES if formatter.width >= 60 else max(8, formatter.width // 3)
    helps = [text for _, text in rows]
    formatter.write_dl(list(zip(names, helps, strict=True)), col_max=column)


def _broken(names: str, width: int, indent: str) -> str:
    if len(names) <= width:
        return names
    import textwrap

    words = names.replace("|", "| ").replace(", ", ",  ")
    lines = textwrap.wrap(
        words, width - 4, break_long_words=False, break_on_hyphens=False, drop_whitespace=True
    )
    return f"\n{indent}".join(line.replace("| ", "|").replace(",  ", ", ") for line in lines)


def _show_all(context: click.Context, option: click.Parameter, is_set: bool) -> None:
    if is_set and not context.resilient_parsing:
        context.meta[IS_FULL] = True
        click.echo(context.get_help(), color=context.color)
        context.exit()
