"""A model's chat template and tokenizer, read without torch."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import TemplateError

from agentlite.core.errors import MODEL, UserError
from agentlite.rendering import chat_template
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
# What a template is asked: how it writes these, and where.
ASKED, ANSWERED = "probe user", "probe answer"
USER = {"role": "user", "content": ASKED}
ANSWER = {"role": "assistant", "content": ANSWERED}
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

    def __init__(self, name: str, tokenizer: "Tokenizer", source: str, special: Mapping[str, str]):
        self.name, self.tokenizer, self.source = name, tokenizer, source
        self.special = dict(special)  # bos_token and the like, which templates print
        tokenizer.no_truncation()
        tokenizer.no_padding()

    def render(
        self, messages: Messages, tools: Sequence[Mapping[str, Any]] = (), prompt: bool = False
    ) -> str:
        """The text of `messages`; with `prompt`, up to where the model goes on. Raises UserError
        5.
        """
        try:
            return self._from(self.chat_template, self.as_taken(messages), tools, prompt)
        except TemplateError as error:
            raise self._refused(
                f"the chat template fails: {error}",
                "Try another --protocol, for example hermes.",
            ) from error

    def _from(
        self,
        source: str,
        messages: Messages,
        tools: Sequence[Mapping[str, Any]] = (),
        prompt: bool = True,
    ) -> str:
        return chat_template.render(
            source,
            messages=messages,
            tools=list(tools) or None,
            add_generation_prompt=prompt,
            **self.special,
        )

    def _refused(self, problem: str, fix: str = "") -> UserError:
        return UserError(problem, fix, location=self.name, exit_code=MODEL)

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
        system = {"role": "system", "content": "probe system"}
        return ASKED in self._own_prompt(
            self.as_taken([USER])
        ) and "probe system" not in self._own_prompt(self.as_taken([system, USER]))

    @cached_property
    def takes_parts(self) -> bool:
        """Whether the template takes a text only as a list of parts, as those of models for images
        do.
        """
        return ASKED not in self._own_prompt([USER]) and ASKED in self._own_prompt(
            _in_parts([USER])
        )

    def as_taken(self, messages: Messages) -> Messages:
        """The messages as the template takes them: it may want each text as a list of parts."""
        return _in_parts(messages) if self.takes_parts else messages

    def _own_prompt(self, messages: Messages) -> str:
        """A prompt, rendered by the model's own template; "" where that fails."""
        try:
            return self._from(self.source, messages)
        except TemplateError:
            return ""

    def _written(
        self,
        messages: Messages,
        tools: Sequence[Mapping[str, Any]] = (),
        prompt: bool = False,
    ) -> str:
        """As render(), but "" where the template fails: no row can be rendered, and check() says
        why.
        """
        try:
            return self.render(messages, tools, prompt)
        except UserError:
            return ""

    @cached_property
    def takes_tools(self) -> bool:
        """Whether the template prints tools and calls by itself."""
        function = {"name": "probe_tool", "description": "", "parameters": {}}
        tools = [{"type": "function", "function": function}]
        return "probe_tool" in self._written(
            [USER], tools, prompt=True
        ) and "probe_call" in self._written([USER, _calling("probe_call")], tools)

    @cached_property
    def takes_several_calls(self) -> bool:
        """Whether the template prints several calls of one turn."""
        text = self._written([USER, _calling("probe_call_1", "probe_call_2")])
        return "probe_call_1" in text and "probe_call_2" in text

    @cached_property
    def keeps_text_with_calls(self) -> bool:
        """Whether the template prints the words of a turn that holds a call."""
        text = self._written([USER, _calling("probe_call", words="probe words")])
        return "probe words" in text and "probe_call" in text

    @cached_property
    def turn_end(self) -> str:
        """The special token that ends an assistant turn."""
        _, written, behind = self.render([USER, ANSWER]).rpartition(ANSWERED)
        end = self._mark_at_start(behind) or self.unwritten_end
        if written and end:
            return end
        raise self._refused(
            "the chat template writes no end of turn after an assistant's answer, so a model would "
            "never learn to stop."
            if written
            else "the chat template drops or changes an assistant's answer.",
            "Choose an instruction-tuned model.",
        )

    @cached_property
    def unwritten_end(self) -> str:
        """The token that ends an assistant turn where the template itself writes none, as GLM-4's:
        the one that the next user turn begins with. "" where the template writes an end, or begins
        the assistant's turn with the same token.
        """
        before, written, behind = self.render([USER, ANSWER]).rpartition(ANSWERED)
        if not written or behind.strip():
            return ""
        _, _, behind = self.render([USER, ANSWER, USER]).rpartition(ANSWERED)
        mark = self._mark_at_start(behind)
        return "" if mark in before[before.rfind(ASKED) :] else mark

    def _mark_at_start(self, text: str) -> str:
        marks = (mark for mark in self.control_tokens if text.lstrip().startswith(mark))
        return max(marks, key=len, default="")

    @cached_property
    def prompt_opens_thought(self) -> bool:
        """Whether a prompt ends inside a thought, which the model has to close."""
        return opens_thought(self._written([USER], prompt=True))

    @cached_property
    def prompt_head(self) -> str:
        """What a prompt ends with behind the dialog, where that holds a mark of a turn, which no
        text of a dialog holds; else "".
        """
        dialog, prompt = self.render([USER]), self.render([USER], prompt=True)
        head = prompt[len(dialog) :] if prompt.startswith(dialog) else ""
        return head if any(token in head for token in self.turn_tokens) else ""

    @cached_property
    def prompt_extra(self) -> str:
        """The end of a prompt that a turn of a dialog does not begin with: `<think>` and a line
        break, say, or an empty thought. "" where a turn begins with the prompt's end, or with
        something else than a thought.
        """
        dialog, prompt = self.render([USER]), self.render([USER], prompt=True)
        head, _, _ = self.render([USER, ANSWER]).rpartition(ANSWERED)
        shared = shared_length(prompt, head)
        if not prompt.startswith(dialog) or shared < len(dialog):
            return ""
        rests = (self.without_marks(text[shared:]) for text in (prompt, head))
        return prompt[shared:] if all(map(THOUGHT_WORDS.fullmatch, rests)) else ""

    @cached_property
    def answer_head(self) -> str:
        """What the model has to write between a prompt and its words: a channel, say, with the
        marks around its name. "" where words come at once, or a thought does.
        """
        prompt = self._written([USER], prompt=True)
        before, _, _ = self._written([USER, ANSWER]).rpartition(ANSWERED)
        head = before[len(prompt) :] if before.startswith(prompt) else ""
        marked = any(token in head for token in self.control_tokens)
        return head if marked and not THOUGHT_WORDS.fullmatch(head) else ""

    def without_marks(self, text: str) -> str:
        """The text without its control tokens."""
        for token in self.control_tokens:
            text = text.replace(token, "")
        return text

    @cached_property
    def turn_tokens(self) -> list[str]:
        """Special tokens that the template itself writes around turns: no user's text may hold
        them.
        """
        text = self.render([USER, ANSWER])
        return [token for token in self.control_tokens if token in text]

    @cached_property
    def control_tokens(self) -> list[str]:
        added = self.tokenizer.get_added_tokens_decoder().values()
        return [token.content for token in added if token.special]

    @cached_property
    def longest_token(self) -> int:
        """Characters of the longest token, at least."""
        return max(map(len, self.tokenizer.get_vocab()), default=1)

    def token_id(self, token: str) -> int:
        index = self.tokenizer.token_to_id(token)
        if index is None:
            raise self._refused(f"the tokenizer has no token {token}.")
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
        changed = {key: _part_without_prefix(part) or None for key, part in parts.items()}
        if changed == {key: part or None for key, part in parts.items()}:
            return self.tokenizer, False
        only_first = '"prepend_scheme": "first"' in json.dumps(parts)
        other = json.loads(self.tokenizer.to_str()) | changed
        return Tokenizer.from_str(json.dumps(other)), only_first

    def decode(self, ids: Sequence[int]) -> str:
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=False))


def read_template(name: str, folder: Path) -> Template:
    """From the files of a tokenizer."""

    def refused(problem: str, fix: str = "") -> UserError:
        return UserError(problem, fix, location=str(folder), exit_code=MODEL)

    if not (folder / "tokenizer.json").exists():
        raise refused(
            "holds no tokenizer.json.", "Name the folder of a whole model, with its tokenizer."
        )
    try:
        config = json.loads((folder / "tokenizer_config.json").read_bytes())
        tokenizer = _tokenizer((folder / "tokenizer.json").read_bytes())
    except Exception as error:  # the tokenizers library raises a bare one
        raise refused(f"the tokenizer cannot be read: {error}") from error
    path = folder / "chat_template.jinja"
    source = path.read_text(encoding="utf-8") if path.exists() else config.get("chat_template")
    if isinstance(source, list):  # several, by name
        named = {entry["name"]: entry["template"] for entry in source}
        source = named.get("tool_use", named.get("default"))
    if not isinstance(source, str):
        raise refused("the model has no chat template.", "Choose an instruction-tuned model.")
    tokens = {
        key: config[key]
        for key in ("bos_token", "eos_token", "pad_token", "unk_token")
        if config.get(key)
    }
    special = {
        key: token["content"] if isinstance(token, dict) else str(token)
        for key, token in tokens.items()
    }
    return Template(name, tokenizer, source, special)


@lru_cache(maxsize=2)
def _tokenizer(content: bytes) -> "Tokenizer":
    """Kept, since reading one takes a quarter of a second and stages may share a process."""
    from tokenizers import Tokenizer

    return Tokenizer.from_buffer(content)


def shared_length(text: str, other: str) -> int:
    """How many characters the two begin with alike."""
    length = min(len(text), len(other))
    return next((i for i in range(length) if text[i] != other[i]), length)


def opens_thought(prompt: str) -> bool:
    """Whether a prompt ends inside a thought."""
    return prompt.rfind("<think>") > prompt.rfind("</think>")


def _in_parts(messages: Messages) -> Messages:
    return [
        {**message, "content": [{"type": "text", "text": message["content"]}]}
        for message in messages
    ]


def _calling(*names: str, words: str = "") -> dict[str, Any]:
    """A turn of the assistant that calls tools of these names."""
    calls = [
        {
            "type": "function",
            "id": f"12345678{number}",  # Mistral's templates take ids of nine characters alone
            "function": {"name": name, "arguments": {"a": "b"}},
        }
        for number, name in enumerate(names)
    ]
    return {"role": "assistant", "content": words, "tool_calls": calls}


def _part_without_prefix(part: Any) -> Any:
    """A normalizer or pre-tokenizer as tokenizer.json describes it; None if nothing is left."""
    for key in ("normalizers", "pretokenizers"):
        if key in part:
            return {**part, key: list(filter(None, map(_part_without_prefix, part[key])))}
    if part.get("type") not in PREFIXES:
        return part
    change = PREFIXES[part["type"]]
    return None if change is None else {**part, **change}
