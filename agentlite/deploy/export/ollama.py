"""A model -> Ollama's Modelfile: by its chat template, or by the same texts in Go's language."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from agentlite.core.errors import MODEL, UserError
from agentlite.core.records import Message, Record, Tool
from agentlite.deploy.export.proof import goldens, prove
from agentlite.rendering import Mixture, Protocol, render
from agentlite.rendering.template import Messages, Template

SYSTEM, USER, ANSWER, AGAIN, RESULT = (
    f"probe{word}" for word in ("system", "user", "said", "again", "result")
)
FENCE = '"""'
REQUIRES = "0.30.0"  # the first Ollama that takes a file's own chat template
# architectures of GGUF whose dialogs Ollama 0.33 writes and reads by code of its own
OWN_CODE = ("gemma4", "laguna", "nemotron_h", "nemotron_h_moe", "nemotron_h_omni")


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

    def with_role(self, role: str, before: str, after: str) -> "TurnMarks":
        return self._replace(
            before={**self.before, role: before}, after={**self.after, role: after}
        )


def takes_chat_template(chat_template: str) -> bool:
    """Whether Ollama has llama.cpp write and read dialogs by the file's own chat template, even if
    the Modelfile has a TEMPLATE: where it finds these words in the one and no tools in the other.
    """
    return "tools" in chat_template or "tool_call" in chat_template


def refuse_own_code(architecture: str) -> None:
    """Raises UserError 5: no Modelfile can have such a model prompted as in training."""
    if architecture in OWN_CODE:
        raise UserError(
            f"Ollama writes the dialogs of {architecture} models by code of its own.",
            "Export --gguf instead, for `llama-server --jinja`.",
            location="--ollama",
            exit_code=MODEL,
        )


def proved_turns(template: Template, mixture: Mixture) -> TurnMarks:
    """The texts that Ollama puts around turns. Raises UserError 5 where these are not all that the
    template writes. Blanks around a text are left out: Ollama does not trim.
    """
    turns = turns_of(template)
    for protocol in mixture.protocols.values():
        turns = with_results(turns, protocol, template)
    plain = [
        golden
        for golden in goldens(mixture)
        if all(message.content == message.content.strip() for message in golden.record.messages)
    ]
    try:
        prove(template, plain, {"Ollama": turns.write})
    except UserError as error:
        raise _not_turnwise(template) from error
    return turns


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
        raise _not_turnwise(template) from error
    of_user = to_again.removeprefix(answer_end)
    if not to_user.endswith(of_user):
        raise _not_turnwise(template, " (it puts the system turn into the first user turn)")
    before = {"system": begin, "user": of_user, "assistant": to_answer.removeprefix(end)}
    after = {"system": to_user.removesuffix(of_user), "user": end, "assistant": answer_end}
    return TurnMarks(first.removesuffix(of_user), before, after, with_prompt.removeprefix(alone))


def with_results(turns: TurnMarks, protocol: Protocol, template: Template) -> TurnMarks:
    """With a turn of results, as the protocol has it or as the template prints it; without it
    otherwise.
    """
    if protocol.inline or protocol.exchanges:
        return turns
    role = protocol.result_role
    if role not in turns.before:
        messages = [{"role": "user", "content": USER}, {"role": "assistant", "content": ANSWER}]
        try:
            text = template.render([*messages, {"role": role, "content": RESULT}])
            turn = text.split(ANSWER)[1].removeprefix(turns.after["assistant"])
            before, after = turn.split(RESULT)
        except (UserError, ValueError, IndexError):
            return turns
        turns = turns.with_role(role, before, after)
    opening, closing = protocol.results([Message("tool", RESULT)]).split(RESULT)
    return turns.with_role("tool", turns.before[role] + opening, closing + turns.after[role])


def without_bos(turns: TurnMarks, bos: str) -> TurnMarks:
    """For a file whose first token is added when it is run: twice would be once too often."""
    before = {**turns.before, "system": turns.before["system"].removeprefix(bos)}
    return turns._replace(head=turns.head.removeprefix(bos), before=before)


def go_template(turns: TurnMarks) -> str:
    """Every text is a Go string, so that no blank of the template itself is printed."""
    lines = [
        "{{- range $i, $m := .Messages }}",
        "{{- $last := eq (len (slice $.Messages $i)) 1 }}",
    ]
    if turns.head:
        first = '{{- if ne (index .Messages 0).Role "system" }}'
        lines.insert(0, f"{first}{_go(turns.head)}{{{{ end }}}}")
    for number, role in enumerate(turns.before):
        end = _go(turns.after[role])
        if role == "assistant":  # one that is last is gone on with
            end = f"{{{{ if not $last }}}}{end}{{{{ end }}}}"
        condition = f'{{{{- {"else if" if number else "if"} eq $m.Role "{role}" }}}}'
        lines.append(f"{condition}{_go(turns.before[role])}{{{{ $m.Content }}}}{end}")
    asks = '{{- if and $last (ne $m.Role "assistant") }}'
    return "\n".join([*lines, "{{- end }}", f"{asks}{_go(turns.ask)}{{{{ end }}}}", "{{- end }}"])


def _go(text: str) -> str:
    """A text as an action that prints it; JSON's strings are Go's, but for what lies beyond
    \\uffff, which stays.
    """
    return f"{{{{ {json.dumps(text, ensure_ascii=False)} }}}}" if text else ""


def system_text(tools: Sequence[Tool], protocol: Protocol, template: Template) -> str:
    """The first system turn of a dialog with these tools. Raises UserError 5 if none is found."""
    messages = (Message("user", USER), Message("assistant", ANSWER))
    text = render(Record(messages=messages, tools=tuple(tools)), protocol, template)[0].text
    turns = turns_of(template)
    begin, end = turns.before["system"], turns.after["system"] + turns.before["user"] + USER
    if protocol.exchanges or not text.startswith(begin) or end not in text:
        raise UserError(
            f"protocol {protocol.name} does not list its tools in a system turn.",
            "Leave --tools out, and let the client write the prompts.",
            location="--tools",
            exit_code=MODEL,
        )
    return text[len(begin) : text.index(end)]


def modelfile(weights: str, template: str, stops: Sequence[str], system: str, context: int) -> str:
    """`template`: in Go's language; "" for the one in the file. Raises UserError 5 for a text that
    a Modelfile cannot hold.
    """
    if FENCE in template + system:  # Ollama ends a text there
        raise UserError(
            f"a Modelfile cannot hold {FENCE}.",
            "Take it out of the descriptions of the tools.",
            location="--tools",
            exit_code=MODEL,
        )
    lines = [
        f"FROM ./{weights}",
        f"TEMPLATE {FENCE}{template}{FENCE}" if template else f"REQUIRES {REQUIRES}",
        *(f"PARAMETER stop {json.dumps(stop, ensure_ascii=False)}" for stop in stops),
        f"PARAMETER num_ctx {context}",
        "PARAMETER temperature 0",
        # 1.1 in Ollama 0.30: a name that stands in the prompt would be less likely in the call
        "PARAMETER repeat_penalty 1",
        *([f"SYSTEM {FENCE}{system}{FENCE}"] if system else []),
    ]
    return "\n".join(lines) + "\n"


def _not_turnwise(template: Template, why: str = "") -> UserError:
    return UserError(
        f"its chat template does more than put texts around turns{why}: no Ollama template is "
        "known for it.",
        "Export --gguf instead: the file holds the chat template itself, for `llama-server "
        "--jinja`.",
        location=template.name,
        exit_code=MODEL,
    )
