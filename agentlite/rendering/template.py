"""A model's chat template and tokenizer, read without torch."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentlite.core.errors import MODEL, UserError
from agentlite.rendering.token_cache import described, encoder

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Messages = Sequence[Mapping[str, Any]]

# Put before the source of a template that has no system role: it joins the system turn to the first
# user turn, as the template of Gemma 3 does. Its last line break is trimmed, as behind any block.
SYSTEM_INTO_USER = """\
{%- if messages and messages[0]['role'] == 'system' -%}
{%- if messages|length > 1 and messages[1]['role'] == 'user' -%}
{%- set first = messages[0]['content'] + '\\n\\n' + messages[1]['content'] -%}
{%- set messages = [{'role': 'user', 'content': first}] + messages[2:] -%}
{%- else -%}
{%- set messages = [{'role': 'user', 'content': messages[0]['content']}] + messages[1:] -%}
{%- endif -%}
{%- endif %}
"""
# The same where a template takes every text as a list of parts.
PARTS_INTO_USER = SYSTEM_INTO_USER.replace("'\\n\\n'", "[{'type': 'text', 'text': '\\n\\n'}]")
# Apart from control tokens, what a prompt may have that a turn does not: the marks of a thought.
THOUGHT_WORDS = re.compile(r"(?:\s|</?think>|thought)*")
# What a tokenizer puts before a text that does not begin with a blank.
PREFIXES = {
    "Prepend": None,
    "Metaspace": {"prepend_scheme": "never"},
    "ByteLevel": {"add_prefix_space": False},
}


class Template:
    """How one model writes a dialog, and how its tokenizer cuts the text."""

    def __init__(
        self, name: str, tokenizer: "Tokenizer", chat_template: str, special: Mapping[str, str]
    ):
        self.name, self.tokenizer, self.source, self.special = (
            name,
            tokenizer,
            chat_template,
            dict(special),
        )
        tokenizer.no_truncation()
        tokenizer.no_padding()

    def render(
        self, messages: Messages, tools: Sequence[Mapping[str, Any]] = (), prompt: bool = False
    ) -> str:
        """The text of `messages`; with `prompt`, up to where the model goes on. Raises UserError
        5.
        """
        from jinja2 import TemplateError

        from agentlite.rendering.chat_template import Printed

        try:
            return str(
                self._compiled.render(
                    messages=self.as_taken(messages),
                    tools=list(tools) or None,
                    add_generation_prompt=prompt,
                    **self.special,
                )
            )
        except (TemplateError, TypeError, ValueError) as error:
            reason = str(error).replace(Printed.__name__, "dict")
            raise UserError(
                f"the chat template fails: {reason}",
                "Try another --protocol, for example hermes.",
                location=self.name,
                exit_code=MODEL,
            ) from error

    @cached_property
    def chat_template(self) -> str:
        """The source that renders, and that an export holds: the model's own, or, where that has no
        system role, with the lines that fold a system turn into the first user turn.
        """
        if not self.folds_system:
            return self.source
        return (PARTS_INTO_USER if self.takes_parts else SYSTEM_INTO_USER) + self.source

    @cached_property
    def folds_system(self) -> bool:
        """Whether the model's own template refuses a system turn, or leaves it out."""
        user = {"role": "user", "content": "probe user"}
        system = {"role": "system", "content": "probe system"}
        alone, with_system = (
            self._from_source(self.as_taken(messages)) for messages in ([user], [system, user])
        )
        return "probe user" in alone and "probe system" not in with_system

    @cached_property
    def takes_parts(self) -> bool:
        """Whether the template takes a text only as a list of parts, as those of models for images
        do.
        """
        user = [{"role": "user", "content": "probe user"}]
        return "probe user" not in self._from_source(user) and "probe user" in self._from_source(
            _in_parts(user)
        )

    def as_taken(self, messages: Messages) -> Messages:
        """The messages as the template takes them: it may want each text as a list of parts."""
        return _in_parts(messages) if self.takes_parts else messages

    def _from_source(self, messages: Messages) -> str:
        """A prompt, rendered by the model's own template; "" where that fails."""
        from jinja2 import TemplateError

        values = {"messages": messages, "tools": None, "add_generation_prompt": True}
        try:
            return str(self._own.render(**values, **self.special))
        except (TemplateError, TypeError, ValueError):
            return ""

    @cached_property
    def _own(self) -> Any:
        from agentlite.rendering.chat_template import Compiled

        return Compiled(self.source)

    @cached_property
    def _compiled(self) -> Any:
        from agentlite.rendering.chat_template import Compiled

        return Compiled(self.chat_template) if self.folds_system else self._own

    @cached_property
    def takes_tools(self) -> bool:
        """Whether the template prints tools and calls by itself."""
        tool = {
            "type": "function",
            "function": {"name": "probe_tool", "description": "", "parameters": {}},
        }
        call = {
            "type": "function",
            "id": "123456789",
            "function": {"name": "probe_call", "arguments": {"a": "b"}},
        }
        user = {"role": "user", "content": "x"}
        try:
            offered = self.render([user], [tool], prompt=True)
            called = self.render(
                [user, {"role": "assistant", "content": "", "tool_calls": [call]}], [tool]
            )
        except UserError:
            return False
        return "probe_tool" in offered and "probe_call" in called

    @cached_property
    def takes_several_calls(self) -> bool:
        """Whether the template prints several calls of one turn."""
        calls = [
            {
                "type": "function",
                "id": f"12345678{number}",
                "function": {"name": f"probe_call_{number}", "arguments": {"a": "b"}},
            }
            for number in (1, 2)
        ]
        user = {"role": "user", "content": "x"}
        turn = {"role": "assistant", "content": "", "tool_calls": calls}
        try:
            text = self.render([user, turn])
        except UserError:
            return False
        return "probe_call_1" in text and "probe_call_2" in text

    @cached_property
    def keeps_text_with_calls(self) -> bool:
        """Whether the template prints the words of a turn that holds a call."""
        call = {
            "type": "function",
            "id": "123456789",
            "function": {"name": "probe_call", "arguments": {"a": "b"}},
        }
        turn = {"role": "assistant", "content": "probe words", "tool_calls": [call]}
        try:
            text = self.render([{"role": "user", "content": "x"}, turn])
        except UserError:
            return False
        return "probe words" in text and "probe_call" in text

    @cached_property
    def turn_end(self) -> str:
        """The special token that ends an assistant turn."""
        user, answer = {"role": "user", "content": "x"}, "probe answer"
        text = self.render([user, {"role": "assistant", "content": answer}]).rstrip()
        end = self._mark_before(text[text.rfind(answer) + len(answer) :].strip())
        if answer not in text or not (end or self.unwritten_end):
            problem = (
                "writes no end of turn after an assistant's answer, so a model would never learn "
                "to stop."
                if answer in text
                else "drops or changes an assistant's answer."
            )
            raise UserError(
                f"the chat template {problem}",
                "Choose an instruction-tuned model.",
                location=self.name,
                exit_code=MODEL,
            )
        return end or self.unwritten_end

    @cached_property
    def unwritten_end(self) -> str:
        """The token that ends an assistant turn where the template itself writes none, as GLM-4's:
        the one that the next user turn begins with. "" where the template writes an end, or begins
        the assistant's turn with the same token.
        """
        user, answer = {"role": "user", "content": "probe user"}, "probe answer"
        dialog = [user, {"role": "assistant", "content": answer}]
        text = self.render(dialog)
        if answer not in text or text[text.rfind(answer) + len(answer) :].strip():
            return ""
        followed = self.render([*dialog, {"role": "user", "content": "probe again"}])
        mark = self._mark_before(followed[followed.rfind(answer) + len(answer) :].strip())
        return "" if mark in text[text.rfind("probe user") : text.rfind(answer)] else mark

    @cached_property
    def prompt_opens_thought(self) -> bool:
        """Whether a prompt ends inside a thought, which the model has to close."""
        try:
            return opens_thought(self.render([{"role": "user", "content": "x"}], prompt=True))
        except UserError:  # no row can be rendered: check() says why
            return False

    def _mark_before(self, text: str) -> str:
        return max(
            (mark for mark in self.control_tokens if text.startswith(mark)), key=len, default=""
        )

    @cached_property
    def prompt_head(self) -> str:
        """What a prompt ends with behind the dialog, where that holds a mark of a turn, which no
        text of a dialog holds; else "".
        """
        user = [{"role": "user", "content": "x"}]
        dialog, prompt = self.render(user), self.render(user, prompt=True)
        head = prompt[len(dialog) :] if prompt.startswith(dialog) else ""
        return head if any(token in head for token in self.turn_tokens) else ""

    @cached_property
    def prompt_extra(self) -> str:
        """The end of a prompt that a turn of a dialog does not begin with: `<think>` and a line
        break, say, or an empty thought. "" where a turn begins with the prompt's end, or with
        something else than a thought.
        """
        user, answer = {"role": "user", "content": "x"}, "probe answer"
        dialog, prompt = self.render([user]), self.render([user], prompt=True)
        whole = self.render([user, {"role": "assistant", "content": answer}])
        head = whole[: whole.rfind(answer)]
        pairs = zip(prompt, head, strict=False)
        shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        if not prompt.startswith(dialog) or shared < len(dialog):
            return ""
        words = (self._without_marks(text[shared:]) for text in (prompt, head))
        return prompt[shared:] if all(THOUGHT_WORDS.fullmatch(text) for text in words) else ""

    @cached_property
    def answer_head(self) -> str:
        """What the model has to write between a prompt and its words: a channel, say, with the
        marks around its name. "" where words come at once, or a thought does.
        """
        user, answer = {"role": "user", "content": "x"}, "probe answer"
        try:
            prompt = self.render([user], prompt=True)
            whole = self.render([user, {"role": "assistant", "content": answer}])
        except UserError:  # no row can be rendered: check() says why
            return ""
        head = whole[len(prompt) : whole.rfind(answer)] if whole.startswith(prompt) else ""
        marked = any(token in head for token in self.control_tokens)
        return "" if THOUGHT_WORDS.fullmatch(head) or not marked else head

    def _without_marks(self, text: str) -> str:
        for token in self.control_tokens:
            text = text.replace(token, "")
        return text

    @cached_property
    def turn_tokens(self) -> list[str]:
        """Special tokens that the template itself writes around turns: no user's text may hold
        them.
        """
        text = self.render(
            [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]
        )
        return [token for token in self.control_tokens if token in text]

    @cached_property
    def control_tokens(self) -> list[str]:
        return [
            token.content
            for token in self.tokenizer.get_added_tokens_decoder().values()
            if token.special
        ]

    @cached_property
    def longest_token(self) -> int:
        """Characters of the longest token, at least."""
        return max(map(len, self.tokenizer.get_vocab()), default=1)

    def token_id(self, token: str) -> int:
        index = self.tokenizer.token_to_id(token)
        if index is None:
            raise UserError(
                f"the tokenizer has no token {token}.", "", location=self.name, exit_code=MODEL
            )
        return int(index)

    def encode(self, text: str, before: Sequence[int] = ()) -> list[int]:
        """Text to token ids, none added. `before`: the ids of what stands before it, of which only
        the last one counts.
        """
        return self._encoders[self._inside(before)](text)

    def offsets(self, text: str, before: Sequence[int] = ()) -> list[tuple[int, int]]:
        """Where in the text each of its tokens begins and ends."""
        tokenizer = self._without_prefix[0] if self._inside(before) else self.tokenizer
        return list(tokenizer.encode(text, add_special_tokens=False).offsets)

    def _inside(self, before: Sequence[int]) -> bool:
        """Whether the tokenizer puts no prefix to a text there: behind other text, or behind an
        added token if only the first text has the prefix.
        """
        return bool(before) and (self._without_prefix[1] or before[-1] not in self._added)

    @cached_property
    def _added(self) -> frozenset[int]:
        return frozenset(self.tokenizer.get_added_tokens_decoder())

    @cached_property
    def _encoders(self) -> tuple[Callable[[str], list[int]], Callable[[str], list[int]]]:
        """With the tokenizer's prefix, and without."""
        other, _ = self._without_prefix
        plain = encoder(self.tokenizer)
        return plain, plain if other is self.tokenizer else encoder(other)

    @cached_property
    def _without_prefix(self) -> tuple["Tokenizer", bool]:
        """The same tokenizer, but for the prefix (`▁`, a blank) that SentencePiece's and some
        others put before a text; and whether only the very first text has it.
        """
        from tokenizers import Tokenizer

        parts = {
            "normalizer": described(self.tokenizer.normalizer),
            "pre_tokenizer": described(self.tokenizer.pre_tokenizer),
        }
        others = {key: _without_prefix(part) for key, part in parts.items()}
        if others == parts:
            return self.tokenizer, False
        only_first = '"prepend_scheme": "first"' in json.dumps(parts)
        other = json.loads(self.tokenizer.to_str()) | {
            key: part or None for key, part in others.items()
        }
        return Tokenizer.from_str(json.dumps(other)), only_first

    def decode(self, ids: Sequence[int]) -> str:
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=False))


def read_template(name: str, folder: Path) -> Template:
    """From the files of a tokenizer. Raises UserError 5."""
    if not (folder / "tokenizer.json").exists():
        raise UserError(
            "holds no tokenizer.json.",
            "Name the folder of a whole model, with its tokenizer.",
            location=str(folder),
            exit_code=MODEL,
        )
    try:
        config = json.loads((folder / "tokenizer_config.json").read_bytes())
        tokenizer = _tokenizer((folder / "tokenizer.json").read_bytes())
    except Exception as error:  # the tokenizers library raises a bare one
        raise UserError(
            f"the tokenizer cannot be read: {error}", "", location=str(folder), exit_code=MODEL
        ) from error
    return Template(name, tokenizer, _chat_template(folder, config), _special_tokens(config))


def opens_thought(prompt: str) -> bool:
    """Whether a prompt ends inside a thought."""
    return prompt.rfind("<think>") > prompt.rfind("</think>")


def _in_parts(messages: Messages) -> Messages:
    return [
        {**message, "content": [{"type": "text", "text": message["content"]}]}
        for message in messages
    ]


def _without_prefix(part: Any) -> Any:
    """A normalizer or pre-tokenizer as tokenizer.json describes it; None if nothing is left."""
    for key in ("normalizers", "pretokenizers"):
        if key in part:
            return {**part, key: list(filter(None, map(_without_prefix, part[key])))}
    if part.get("type") not in PREFIXES:
        return part
    change = PREFIXES[part["type"]]
    return None if change is None else {**part, **change}


@lru_cache(maxsize=2)
def _tokenizer(content: bytes) -> "Tokenizer":
    """Kept, since reading one takes a quarter of a second and stages may share a process."""
    from tokenizers import Tokenizer

    return Tokenizer.from_buffer(content)


def _chat_template(folder: Path, config: Mapping[str, object]) -> str:
    path = folder / "chat_template.jinja"
    template: Any = (
        path.read_text(encoding="utf-8") if path.exists() else config.get("chat_template")
    )
    if isinstance(template, list):  # several, by name
        named = {entry["name"]: entry["template"] for entry in template}
        template = named.get("tool_use", named.get("default"))
    if not isinstance(template, str):
        raise UserError(
            "the model has no chat template.",
            "Choose an instruction-tuned model.",
            location=str(folder),
            exit_code=MODEL,
        )
    return template


def _special_tokens(config: Mapping[str, object]) -> dict[str, str]:
    """bos_token and the like, which templates print; each is a string or an object with
    `content`.
    """
    tokens = {
        key: config[key]
        for key in ("bos_token", "eos_token", "pad_token", "unk_token")
        if config.get(key)
    }
    return {
        key: token["content"] if isinstance(token, dict) else str(token)
        for key, token in tokens.items()
    }
