"""Proof that an exported template and tokenizer render dialogs byte for byte as in training."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from agentlite.core.errors import MODEL, RowError, UserError
from agentlite.deploy.export.golden_dialogs import Golden
from agentlite.rendering import Rendered, render
from agentlite.rendering.chat_template import refused, to_json, today
from agentlite.rendering.template import Messages, Template

Write = Callable[[Messages, Sequence[Mapping[str, Any]], bool], str]


class Proof(NamedTuple):
    """How many dialogs, by whom; those that training itself cannot write are left out."""

    dialogs: int
    renderers: list[str]
    left_out: list[str]


class Rewritten(Template):
    """The same tokenizer, with another program that writes the dialog."""

    def __init__(self, template: Template, write: Write):
        super().__init__(
            template.name, template.tokenizer, template.chat_template, template.special
        )
        self.write = write

    def render(
        self, messages: Messages, tools: Sequence[Mapping[str, Any]] = (), prompt: bool = False
    ) -> str:
        return self.write(self.as_taken(messages), list(tools), prompt)


def prove(template: Template, goldens: Sequence[Golden], writers: Mapping[str, Write]) -> Proof:
    """Raises UserError 5, naming the first dialog that differs: in a text, or in where a prompt
    ends.
    """
    expected: list[tuple[Golden, list[Rendered]]] = []
    left_out: list[str] = []
    for golden in goldens:
        try:
            expected.append((golden, render(golden.record, golden.protocol, template)))
        except (RowError, UserError):  # a row like it was never trained
            left_out.append(golden.name)
    if not expected:
        raise UserError(
            "can write none of the dialogs that prove an export.",
            "Choose an instruction-tuned model.",
            location=template.name,
            exit_code=MODEL,
        )
    for by, write in writers.items():
        other = Rewritten(template, write)
        for golden, rows in expected:
            try:
                problem = "" if render(golden.record, golden.protocol, other) == rows else "."
            except Exception as error:  # whatever another renderer raises, it wrote no dialog
                problem = f": it fails ({' '.join(str(error).split())[:200]})."
            if problem:
                raise _unproved(
                    template, f"{by} writes the dialog '{golden.name}' differently{problem}"
                )
    return Proof(len(expected), list(writers), left_out)


def prove_tokens(
    template: Template, goldens: Sequence[Golden], ids: Callable[[str], list[int]]
) -> None:
    """Raises UserError 5 for a text that the exported tokenizer cuts otherwise."""
    for golden in goldens:
        for message in golden.record.messages:
            if ids(message.content) != template.encode(message.content):
                raise _unproved(
                    template, f"its tokenizer cuts a text of '{golden.name}' differently."
                )


def _unproved(template: Template, problem: str) -> UserError:
    fix = (
        "Nothing was exported: a server would prompt the model differently from its training. "
        "Please report it."
    )
    return UserError(problem, fix, location=template.name, exit_code=MODEL)


def minijinja_writer(template: Template) -> Write | None:
    """A renderer that is not Python's; None where it is not installed. It is given what servers
    give their own: transformers' `tojson`, `raise_exception` and `strftime_now`."""
    try:
        from minijinja import Environment
    except ImportError:
        return None
    environment = Environment(
        trim_blocks=True,
        lstrip_blocks=True,
        pycompat=True,
        filters={"tojson": to_json},
        globals={"raise_exception": refused, "strftime_now": today},
    )

    def write(messages: Messages, tools: Sequence[Mapping[str, Any]], prompt: bool) -> str:
        variables = {"messages": list(messages), "tools": list(tools) or None}
        return str(
            environment.render_str(
                template.chat_template,
                **json.loads(json.dumps(variables)),
                add_generation_prompt=prompt,
                **template.special,
            )
        )

    return write
