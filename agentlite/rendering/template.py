"""A model's chat template and tokenizer, read without torch: how it writes a dialog, and its ids.

A template is a program from the internet: the sandbox keeps it from Python. It does not keep it
from running for ever; Ctrl-C does.
"""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
from jinja2 import TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from agentlite.core.errors import MODEL, UserError
from agentlite.core.records import Tool
from agentlite.rendering.protocol import THINK_END, THINK_TAG, THOUGHT, thought_and_words
from agentlite.rendering.token_cache import Encoder

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Messages = Sequence[Mapping[str, Any]]
Schemas = Sequence[Mapping[str, Any]]  # of tools

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
QUESTION, ANSWER_TEXT = "probe user", "probe answer"
USER = {"role": "user", "content": QUESTION}
ANSWER = {"role": "assistant", "content": ANSWER_TEXT}
TOOLS = [Tool("probe_tool").schema]
CALL_ID = "123456780"  # Mistral's templates take ids of nine characters alone
RESULT = {"role": "tool", "name": "probe_call", "content": "probe result", "tool_call_id": CALL_ID}
# Added tokens that a text may hold where they are not special: words, blanks, the tags of XML.
WORDS = re.compile(r"[\w\s]*|</?[\w:.-]+>")
THOUGHT_KEYS = ("reasoning_content", "reasoning", "thinking")  # of a message, for its thought
PROBE_THOUGHT = "probe thought"
# Apart from control tokens, what a prompt may have that a turn does not: the marks of a thought.
THOUGHT_WORDS = re.compile(r"(?:\s|</?think>|thought)*")


class Generation(Extension):
    """`{% generation %}` marks what a model writes, for trainers that mask by it; printed as is."""

    tags = {"generation"}  # noqa: RUF012  (jinja declares it so)

    def parse(self, parser: Any) -> Any:
        line = next(parser.stream).lineno
        return jinja2.nodes.Scope(
            parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line
        )


@lru_cache(maxsize=64)
def _compile(source: str) -> jinja2.Template:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    environment.filters["tojson"] = tojson
    environment.globals |= {"raise_exception": raise_exception, "strftime_now": today}
    return environment.from_string(source)


def render_source(source: str, **values: Any) -> str:
    """Raises jinja2.TemplateError, whatever is wrong in the template."""
    try:
        text = _compile(source).render(**values)
        text.encode()  # a lone surrogate is half a character
    except TemplateError:
        raise
    except Exception as error:  # {{ 1/0 }}, or nested too deep: the template's, as all that it runs
        raise TemplateError(f"{type(error).__name__}: {error}") from error
    return text


def tojson(value: Any, ensure_ascii: bool = False, indent: int | None = None, **style: Any) -> str:
    """`style`: separators and sort_keys, as transformers has them."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **style)


def raise_exception(message: str) -> None:
    raise TemplateError(message)


def today(date_format: str) -> str:
    """A template that prints the date must not make every day's rows different."""
    return datetime(2025, 1, 1).strftime(date_format)


class Template:
    """How one model writes a dialog, and how its tokenizer cuts the text."""

    def __init__(
        self,
        name: str,
        tokenizer: "Tokenizer",
        source: str,
        special: Mapping[str, str],
        embedding_count: int = 0,
    ):
        self.name, self.tokenizer, self.source = name, tokenizer, source
        self.embedding_count = embedding_count  # of the model; 0 where it is not known
        self.special = dict(special)  # bos_token and the like, which templates print
        tokenizer.no_truncation()
        tokenizer.no_padding()

    def render(self, messages: Messages, tools: Schemas = (), prompt: bool = False) -> str:
        """The text of `messages`; with `prompt`, up to where the model goes on."""
        try:
            return self._run(self.chat_template, self.adapt_messages(messages), tools, prompt)
        except TemplateError as error:
            raise self.refusal(
                f"the chat template fails: {error}",
                "Try another --protocol, for example hermes.",
            ) from error

    def _run(self, source: str, messages: Messages, tools: Schemas, prompt: bool) -> str:
        return render_source(
            source,
            messages=messages,
            tools=list(tools) or None,
            add_generation_prompt=prompt,
            **self.special,
        )

    def refusal(self, problem: str, fix: str = "") -> UserError:
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
        without_system, with_system = (
            self._try(self.source, self.adapt_messages(messages), prompt=True)
            for messages in ([USER], [system, USER])
        )
        return QUESTION in without_system and "probe system" not in with_system

    @cached_property
    def takes_parts(self) -> bool:
        """Whether it takes a text only as a list of parts, as those of models for images do."""
        as_text, as_parts = (
            self._try(self.source, messages, prompt=True)
            for messages in ([USER], _as_parts([USER]))
        )
        return QUESTION not in as_text and QUESTION in as_parts

    def adapt_messages(self, messages: Messages) -> Messages:
        """The messages as the template takes them: it may want a thought under a key of its own,
        and each text as a list of parts.
        """
        messages = [*map(self._move_thought, messages)]
        return _as_parts(messages) if self.takes_parts else messages

    def _move_thought(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        if message["role"] != "assistant" or not THOUGHT.match(message["content"]):
            return message
        thought, words = thought_and_words(message["content"])
        key = self.thought_keys[bool(message.get("tool_calls"))]
        return {**message, "content": words, key: thought} if key else message

    @cached_property
    def thought_keys(self) -> tuple[str, str]:
        """The keys of an answer's thought and of a calling turn's; "" where it prints none."""

        def prints(message: Mapping[str, Any], key: str) -> bool:
            return PROBE_THOUGHT in self.probe([USER, {**message, key: PROBE_THOUGHT}], TOOLS)

        answer_key, call_key = (
            next((key for key in THOUGHT_KEYS if prints(message, key)), "")
            for message in (ANSWER, call_turn("probe_call"))
        )
        return answer_key, call_key

    @property
    def holds_thoughts(self) -> bool:
        """Whether it has a place for an answer's thought: a key, or tags that it knows."""
        return bool(self.thought_keys[0]) or THINK_END in self.source

    @cached_property
    def thought_marks(self) -> tuple[str, str]:
        """What the model writes before a thought and between it and its words; "" where it writes
        none under a key, or in `<think>`.
        """
        text = self.probe([USER, {**ANSWER, self.thought_keys[0]: PROBE_THOUGHT}])
        # gpt-oss: <|channel|>analysis<|message|> and, between, <|end|><|start|>assistant
        opening, _, text_behind = text.removeprefix(self._probe_texts[1]).partition(PROBE_THOUGHT)
        closing = text_behind.partition(ANSWER_TEXT)[0].removesuffix(self.answer_head)
        marks = opening.strip(), closing.strip()
        return marks if all(marks) and not THINK_TAG.search("".join(marks)) else ("", "")

    def probe(self, messages: Messages, tools: Schemas = (), prompt: bool = False) -> str:
        """As render(), but "" where the template fails: check_protocol() says why."""
        return self._try(self.chat_template, self.adapt_messages(messages), tools, prompt)

    def _try(
        self, source: str, messages: Messages, tools: Schemas = (), prompt: bool = False
    ) -> str:
        try:
            return self._run(source, messages, tools, prompt)
        except TemplateError:
            return ""

    @cached_property
    def prints_tools(self) -> bool:
        return "probe_tool" in self.probe([USER], TOOLS, prompt=True)

    @cached_property
    def prints_calls(self) -> bool:
        return "probe_call" in self.probe([USER, call_turn("probe_call")], TOOLS)

    @cached_property
    def parallel_calls(self) -> bool:
        """Whether the template prints several calls of one turn."""
        text = self.probe([USER, call_turn("probe_call_1", "probe_call_2")], TOOLS)
        return "probe_call_1" in text and "probe_call_2" in text

    @cached_property
    def keeps_text_with_calls(self) -> bool:
        """Whether the template prints the words of a turn before its call."""
        text = self.probe([USER, call_turn("probe_call", words="probe words")], TOOLS)
        return 0 <= text.find("probe words") < text.find("probe_call")

    @cached_property
    def turn_end(self) -> str:
        """The special token that ends an assistant turn."""
        # "...<|im_start|>assistant\nprobe answer<|im_end|>\n" -> "<|im_end|>"
        _, is_printed, behind = self.render([USER, ANSWER]).rpartition(ANSWER_TEXT)
        end = self._mark_at_start(behind) or self.unwritten_end
        if is_printed and end:
            return end
        raise self.refusal(
            "the chat template writes no end of turn after an assistant's answer, so a model would "
            "never learn to stop."
            if is_printed
            else "the chat template drops or changes an assistant's answer.",
            "Choose an instruction-tuned model.",
        )

    @cached_property
    def unwritten_end(self) -> str:
        """The token that ends an assistant turn where the template itself writes none, as GLM-4's:
        the one that the next user turn begins with. "" where the template writes an end, or begins
        the assistant's turn with the same token.
        """
        before, is_printed, behind = self.render([USER, ANSWER]).rpartition(ANSWER_TEXT)
        if not is_printed or behind.strip():
            return ""
        # GLM-4.5: "...<|assistant|>\n<think></think>\nprobe answer<|user|>\nprobe user"
        _, _, behind = self.render([USER, ANSWER, USER]).rpartition(ANSWER_TEXT)
        mark = self._mark_at_start(behind)
        return "" if mark in before[before.rfind(QUESTION) :] else mark

    @cached_property
    def call_end(self) -> str:
        """The special token that ends a turn with calls, where it is another one than `turn_end`,
        as in gpt-oss, Gemma 4 and GLM; else "".
        """
        dialog = [USER, call_turn("probe_call")]
        # gpt-oss writes <|call|> at the end of the call itself, GLM <|observation|> only with the
        # result: what both texts begin with ends with the mark, or the rest begins with it
        text, with_result = self.probe(dialog, TOOLS), self.probe([*dialog, RESULT], TOOLS)
        shared = with_result[: shared_length(text, with_result)].rstrip()
        end = next(filter(shared.endswith, self.control_tokens), "")
        end = end or self._mark_at_start(with_result[len(shared) :])
        return "" if end == self.turn_end else end

    def end_of(self, message: Mapping[str, Any]) -> str:
        """The special token that ends a turn of the assistant."""
        return (self.call_end if message.get("tool_calls") else "") or self.turn_end

    def _mark_at_start(self, text: str) -> str:
        match = self._control_pattern.match(text.lstrip())
        return match[0] if match else ""

    @cached_property
    def _probe_texts(self) -> tuple[str, str, str]:
        """A question; the prompt for its answer; and all that is written before the answer."""
        before, _, _ = self.probe([USER, ANSWER]).rpartition(ANSWER_TEXT)
        return self.probe([USER]), self.probe([USER], prompt=True), before

    @cached_property
    def prompt_opens_thought(self) -> bool:
        """Whether a prompt ends inside a thought, which the model has to close."""
        return opens_thought(self._probe_texts[1])

    @cached_property
    def prompt_head(self) -> str:
        """What a prompt ends with behind the dialog, where that holds a control token, which no
        text of a dialog holds; else "".
        """
        dialog, prompt, _ = self._probe_texts
        head = prompt[len(dialog) :] if prompt.startswith(dialog) else ""
        return head if self._control_pattern.search(head) else ""

    @cached_property
    def prompt_extra(self) -> str:
        """The end of a prompt that a turn of a dialog does not begin with: `<think>` and a line
        break, say, or an empty thought. "" where a turn begins with the prompt's end, or with
        something else than a thought.
        """
        dialog, prompt, before = self._probe_texts
        shared = shared_length(prompt, before)
        if not prompt.startswith(dialog) or shared < len(dialog):
            return ""
        # a prompt with <think> and a turn with </think> share the `<`, which belongs to the tag
        shared -= prompt[:shared].endswith("<")
        rests = (self.without_marks(text[shared:]) for text in (prompt, before))
        return prompt[shared:] if all(map(THOUGHT_WORDS.fullmatch, rests)) else ""

    @cached_property
    def answer_head(self) -> str:
        """What the model has to write between a prompt and its words: a channel, say, with the
        marks around its name. "" where words come at once, or a thought does.
        """
        _, prompt, before = self._probe_texts
        head = before[len(prompt) :] if before.startswith(prompt) else ""
        return (
            head if self._control_pattern.search(head) and not THOUGHT_WORDS.fullmatch(head) else ""
        )

    def without_marks(self, text: str) -> str:
        """The text without its control tokens."""
        return self._control_pattern.sub("", text)

    @cached_property
    def control_tokens(self) -> list[str]:
        """The special tokens, and the marks of turns, calls and results that a tokenizer has as
        other added tokens, as DeepSeek's and Kimi's do.
        """
        added_tokens = self.tokenizer.get_added_tokens_decoder().values()
        dialog = [USER, call_turn("probe_call"), RESULT]
        text = self.probe([USER, ANSWER]) + self.probe(dialog, TOOLS)
        return [
            token.content
            for token in added_tokens
            if token.special or (token.content in text and not WORDS.fullmatch(token.content))
        ]

    def control_token_in(self, text: str) -> str:
        """The first control token that the tokenizer finds in a text; "" if there is none."""
        if match := self._control_pattern.search(text):
            return match[0]
        ids = self.encode(text) if self._finds_other_writings else []
        return next((t for t in self.control_tokens if self.token_id(t) in ids), "")

    @cached_property
    def _control_pattern(self) -> re.Pattern[str]:
        longest_first = sorted(self.control_tokens, key=len, reverse=True)
        return re.compile("|".join(map(re.escape, longest_first)) or "(?!)")

    @cached_property
    def _finds_other_writings(self) -> bool:
        """Whether a control token is also found where it is written in full-width letters, say."""
        added = self.tokenizer.get_added_tokens_decoder().values()
        return any(token.normalized and token.content in self.control_tokens for token in added)

    def token_id(self, token: str) -> int:
        if (index := self.tokenizer.token_to_id(token)) is None:
            raise self.refusal(f"the tokenizer has no token {token}.")
        return int(index)

    @cached_property
    def encoder(self) -> "Encoder":
        return Encoder(self.tokenizer)

    def encode(self, text: str, before: Sequence[int] = ()) -> list[int]:
        """Text to token ids, none added, behind the ids `before`. Raises UserError 5 for a token
        that the model has no embedding of.
        """
        ids, count = self.encoder.encode(text, before), self.embedding_count
        if count and (highest := max(ids, default=0)) >= count:
            raise self.refusal(
                f"the tokenizer has {self.tokenizer.get_vocab_size()} tokens, and the model has "
                f"embeddings of {count}: {self.tokenizer.id_to_token(highest)} (id {highest}) was "
                "added, and the model was not resized.",
                "Load the model with transformers, call resize_token_embeddings(len(tokenizer)), "
                "and save it.",
            )
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=False))


def read_template(name: str, folder: Path) -> Template:
    """The template of a model, from the files of its tokenizer. Raises UserError 5."""

    def refusal(problem: str, fix: str = "") -> UserError:
        return UserError(problem, fix, location=str(folder), exit_code=MODEL)

    if not (folder / "tokenizer.json").is_file():
        raise refusal(
            "holds no tokenizer.json.", "Name the folder of a whole model, with its tokenizer."
        )
    try:
        config = json.loads((folder / "tokenizer_config.json").read_bytes())
        config_path = folder / "config.json"
        model_config = json.loads(config_path.read_bytes()) if config_path.exists() else {}
        tokenizer = _tokenizer((folder / "tokenizer.json").read_bytes())
    except Exception as error:  # the tokenizers library raises a bare one
        raise refusal(f"the tokenizer cannot be read: {error}") from error
    path = folder / "chat_template.jinja"
    source = path.read_text(encoding="utf-8") if path.exists() else config.get("chat_template")
    if isinstance(source, list):  # several, by name
        sources = {entry["name"]: entry["template"] for entry in source}
        source = sources.get("default", sources.get("tool_use"))
        if "tool_use" in sources:  # taken where tools are given, as transformers does
            source = f"{{% if tools %}}\n{sources['tool_use']}{{% else %}}\n{source}{{% endif %}}"
    if not isinstance(source, str):
        raise refusal("the model has no chat template.", "Choose an instruction-tuned model.")
    keys = ("bos_token", "eos_token", "pad_token", "unk_token")
    special = {
        key: token["content"] if isinstance(token, dict) else str(token)
        for key in keys
        if (token := config.get(key))
    }
    embedding_count = (model_config.get("text_config") or model_config).get("vocab_size") or 0
    return Template(name, tokenizer, source, special, embedding_count)


@lru_cache(maxsize=2)
def _tokenizer(content: bytes) -> "Tokenizer":
    """Kept, since reading one takes a quarter of a second and stages may share a process."""
    from tokenizers import Tokenizer

    return Tokenizer.from_buffer(content)


def shared_length(text: str, other: str) -> int:
    """How many characters the two texts begin with alike."""
    length = min(len(text), len(other))
    return next((i for i in range(length) if text[i] != other[i]), length)


def opens_thought(prompt: str) -> bool:
    """Whether a prompt ends inside a thought."""
    return prompt.rfind("<think>") > prompt.rfind("</think>")


def _as_parts(messages: Messages) -> Messages:
    return [
        {**message, "content": [{"type": "text", "text": message["content"]}]}
        for message in messages
    ]


def call_turn(
    *names: str, words: str = "", arguments: Mapping[str, Any] = {"a": "b"}
) -> dict[str, Any]:
    """A turn of the assistant that calls tools of these names."""
    calls = [
        {
            "type": "function",
            "id": f"{CALL_ID[:-1]}{number}",
            "function": {"name": name, "arguments": dict(arguments)},
        }
        for number, name in enumerate(names)
    ]
    return {"role": "assistant", "content": words, "tool_calls": calls}
