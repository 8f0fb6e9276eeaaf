"""A chat template with fixed texts around turns -> Ollama's Go template, in a Modelfile."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from agentlite.core.errors import MODEL, UserError
from agentlite.core.records import Message, Record, Tool
from agentlite.rendering import Protocol, render
from agentlite.rendering.template import Messages, Template

SYSTEM, USER, ANSWER, AGAIN, RESULT = (
    "probesystem",
    "probeuser",
    "probesaid",
    "probeagain",
    "proberesult",
)
FENCE = '"""'


class TurnMarks(NamedTuple):
    """What stands before and after a turn's content, by role. `head`: before a dialog that begins
    without a system turn, a default one for example; `ask`: where the model goes on."""

    head: str
    before: Mapping[str, str]
    after: Mapping[str, str]
    ask: str

    def write(self, messages: Messages, tools: Sequence[Mapping[str, Any]], prompt: bool) -> str:
        """What the Go template writes; where it ends with an assistant's turn, that is left open
        there.
        """
        if tools:
            raise ValueError("it prints no tools")
        text = "" if messages[0]["role"] == "system" else self.head
        for message in messages:
            role = message["role"]
            text += self.before[role] + message["content"] + self.after[role]
        return text + self.ask if prompt else text


def turns_of(template: Template) -> TurnMarks:
    """Found by asking: whether it is all of the template, only a proof can tell. Raises UserError
    5.
    """
    user, answer = {"role": "user", "content": USER}, {"role": "assistant", "content": ANSWER}
    again, system = {"role": "user", "content": AGAIN}, {"role": "system", "content": SYSTEM}
    try:
        whole = template.render([system, user, answer, again])
        alone, closed = template.render([user]), template.render([user, answer])
        with_prompt = template.render([user], prompt=True)
        begin, rest = whole.split(SYSTEM)
        to_user, rest = rest.split(USER)
        to_answer, rest = rest.split(ANSWER)
        to_again, end = rest.split(AGAIN)
        first, _ = alone.split(USER)
        answer_end = closed.split(ANSWER)[1]
    except (UserError, ValueError, IndexError) as error:
        raise not_turnwise(template) from error
    of_user = to_again.removeprefix(answer_end)
    if not to_user.endswith(of_user):
        raise not_turnwise(template, "it puts the system turn into the first user turn")
    before = {"system": begin, "user": of_user, "assistant": to_answer.removeprefix(end)}
    after = {"system": to_user.removesuffix(of_user), "user": end, "assistant": answer_end}
    return TurnMarks(first.removesuffix(of_user), before, after, with_prompt.removeprefix(alone))


def with_results(turns: TurnMarks, protocol: Protocol, template: Template) -> TurnMarks:
    """With a turn of results, as the protocol has it or as the template prints it; without it
    otherwise.
    """
    if protocol.inline or protocol.exchanges:
        return turns
    role, frame = protocol.result_role, RESULT
    if not protocol.native:
        frame = protocol.results([Message("tool", RESULT)])
    if role not in turns.before:
        messages = [{"role": "user", "content": USER}, {"role": "assistant", "content": ANSWER}]
        try:
            text = template.render([*messages, {"role": role, "content": RESULT}])
            before, after = (
                text.split(ANSWER)[1].removeprefix(turns.after["assistant"]).split(RESULT)
            )
        except (UserError, ValueError, IndexError):
            return turns
        turns = turns._replace(
            before={**turns.before, role: before}, after={**turns.after, role: after}
        )
    opening, closing = frame.split(RESULT)
    return turns._replace(
        before={**turns.before, "tool": turns.before[role] + opening},
        after={**turns.after, "tool": closing + turns.after[role]},
    )


def without_bos(turns: TurnMarks, bos: str) -> TurnMarks:
    """For a file whose first token is added when it is run: twice would be once too often."""
    before = {**turns.before, "system": turns.before["system"].removeprefix(bos)}
    return turns._replace(head=turns.head.removeprefix(bos), before=before)


def go_template(turns: TurnMarks) -> str:
    """Every text is a Go string, so that no blank of the template itself is printed."""
    lines = [
        f'{{{{- if ne (index .Messages 0).Role "system" }}}}{_go(turns.head)}{{{{ end }}}}'
        if turns.head
        else "",
        "{{- range $i, $m := .Messages }}",
        "{{- $last := eq (len (slice $.Messages $i)) 1 }}",
    ]
    for number, role in enumerate(turns.before):
        end = _go(turns.after[role])
        if role == "assistant":  # one that is last is gone on with
            end = f"{{{{ if not $last }}}}{end}{{{{ end }}}}"
        word = "else if" if number else "if"
        lines.append(
            f'{{{{- {word} eq $m.Role "{role}" }}}}{_go(turns.before[role])}{{{{ $m.Content '
            f"}}}}{end}"
        )
    lines += [
        "{{- end }}",
        f'{{{{- if and $last (ne $m.Role "assistant") }}}}{_go(turns.ask)}{{{{ end }}}}',
        "{{- end }}",
    ]
    return "\n".join(filter(None, lines))


def _go(text: str) -> str:
    """A text as an action that prints it; JSON's strings are Go's, but for what lies beyond
    \\uffff, which stays.
    """
    return f"{{{{ {json.dumps(text, ensure_ascii=False)} }}}}" if text else ""


def system_text(tools: Sequence[Tool], protocol: Protocol, template: Template) -> str:
    """The first system turn of a dialog with these tools. Raises UserError 5 if none is found."""
    record = Record(
        messages=(Message("user", USER), Message("assistant", ANSWER)), tools=tuple(tools)
    )
    turns = turns_of(template)
    text = render(record, protocol, template)[0].text
    begin, end = turns.before["system"], turns.after["system"] + turns.before["user"] + USER
    if protocol.exchanges or not text.startswith(begin) or end not in text:
        raise UserError(
            f"protocol {protocol.name} does not list its tools in a system turn.",
            "Leave --tools out, and let the client write the prompts.",
            location="--tools",
            exit_code=MODEL,
        )
    return text[len(begin) : text.index(end)]


def modelfile(
    weights: str, turns: TurnMarks, stops: Sequence[str], system: str, context: int
) -> str:
    """Raises UserError 5 for a text that a Modelfile cannot hold."""
    parameters = [
        *(f"stop {json.dumps(stop, ensure_ascii=False)}" for stop in stops),
        f"num_ctx {context}",
        "temperature 0",
    ]
    lines = [
        f"FROM ./{weights}",
        f"TEMPLATE {_fenced(go_template(turns))}",
        *(f"PARAMETER {parameter}" for parameter in parameters),
    ]
    return "\n".join([*lines, *([f"SYSTEM {_fenced(system)}"] if system else [])]) + "\n"


def _fenced(text: str) -> str:
    """Ollama ends a text at three quotes."""
    if FENCE in text:
        raise UserError(
            f"a Modelfile cannot hold {FENCE}.",
            "Take it out of the descriptions of the tools.",
            location="--tools",
            exit_code=MODEL,
        )
    return f"{FENCE}{text}{FENCE}"


def not_turnwise(template: Template, why: str = "") -> UserError:
    reason = f" ({why})" if why else ""
    return UserError(
        f"its chat template does more than put texts around turns{reason}: no Ollama template is "
        "known for it.",
        (
            "Export --gguf instead: the file holds the chat template itself, for `llama-server "
            "--jinja`."
        ),
        location=template.name,
        exit_code=MODEL,
    )
