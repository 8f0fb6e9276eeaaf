"""KAgentBench's completions -> thought, tool and arguments, or the conclusion; and its ROUGE-L."""

import json
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

from agentlite.rendering.protocols import modelscope

NONE = "None"


class ParsedText(NamedTuple):
    """What was read from a model's text."""

    thought: Any = NONE
    tool: Any = NONE
    arguments: Mapping[str, Any] = MappingProxyType({})


Reader = Callable[[str, Sequence[Any]], ParsedText]


def _react(text: str, funcs: Sequence[object]) -> ParsedText:
    """All that is written as input is the tool's first argument."""
    thought = _between(text, "", ("Final Answer", "Action")) or ""
    tool = _between(text, "Action:", ("Action Input:",), to_the_end=False)
    first = _first_parameter(tool, funcs)
    value = _between(text, "Action Input:", ("Observation",))
    return ParsedText(thought, tool or NONE, {first: value} if first and value is not None else {})


def _first_parameter(tool: str | None, funcs: Sequence[object]) -> str | None:
    """Of the last function of that name, as the script has it."""
    named = [one for one in funcs if isinstance(one, dict) and one.get("name") == tool]
    functions = named if tool is not None else []
    try:
        name: str = next(iter(functions[-1]["parameters"]["properties"].keys()))
    except (IndexError, KeyError, TypeError, AttributeError, StopIteration):
        return None
    return None if name == NONE else name


def _toolllama(text: str, funcs: Sequence[object]) -> ParsedText:
    """Without a thought the script compares with the text of an empty list."""
    thought: Any = _between(text, "Thought:", ("Action",))
    tool = _between(text, "Action:", ("Action Input:",))
    written = _between(text, "Action Input:", ("Thought",)) if tool is not None else None
    arguments = _object(written or "") or {}
    return ParsedText([] if thought is None else thought, tool or NONE, arguments)


def _autogpt(text: str, funcs: Sequence[object]) -> ParsedText:
    value = _object(text) or {}
    thoughts = value.get("thoughts")
    thought = thoughts.get("text", NONE) if isinstance(thoughts, dict) else NONE
    return _command(thought, value.get("command"))


def _kuaiagent(text: str, funcs: Sequence[object]) -> ParsedText:
    value = _object(text) or {}
    return _command(value.get("task_name", NONE), value.get("command"))


def _modelscope(text: str, funcs: Sequence[object]) -> ParsedText:
    """The script never reads a thought here, so planning scores next to nothing."""
    written = _between(text, modelscope.OPEN, (modelscope.CLOSE,), to_the_end=False)
    value = _object(written or "") or {}
    return _command(NONE, {"name": value.get("api_name", NONE), "args": value.get("parameters")})


def _command(thought: object, command: object) -> ParsedText:
    if not isinstance(command, dict):
        return ParsedText(thought)
    name, arguments = command.get("name", NONE), command.get("args")
    arguments = arguments if isinstance(arguments, dict) else {}
    return ParsedText(thought, NONE if name == "" else name, arguments)


READERS: dict[str, Reader] = {
    "ReACT": _react,
    "AutoGPT": _autogpt,
    "ToolLlama": _toolllama,
    "ModelScope": _modelscope,
    "KuaiAgent": _kuaiagent,
}


def _autogpt_answer(text: str) -> str:
    """What follows `response="`; a search is not an answer."""
    before, mark, rest = text.partition('response="')
    searched = "web_search(" in text
    return "" if searched else rest.partition('response="')[0].replace('")', "") if mark else before


def _toolllama_answer(text: str) -> str:
    before, mark, rest = text.partition('"final_answer": "')
    quoted = rest.partition('"final_answer": "')[0].replace('"', "").replace("}", "")
    answer = quoted if mark else before
    return "" if answer == "\n" else answer


ANSWERS: dict[str, Callable[[str], str]] = {
    "AutoGPT": _autogpt_answer,
    "ToolLlama": _toolllama_answer,
}


def _between(text: str, start: str, ends: Sequence[str], to_the_end: bool = True) -> str | None:
    """At least one character behind the first `start`, up to the first of the ends; None if there
    is none.
    """
    begin = text.find(start) + len(start)
    if begin < len(start) or begin == len(text):
        return None
    found = [end for end in (text.find(mark, begin + 1) for mark in ends) if end >= 0]
    return text[begin : min(found, default=len(text))].strip() if found or to_the_end else None


def _object(text: str) -> dict[str, object] | None:
    """The JSON object of a text after the script's repairs: braces balanced, bare keys quoted, bad
    escapes dropped.
    """
    try:
        value = json.loads(_repair_json(_close_braces(text)))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _close_braces(text: str) -> str:
    """Braces that are left open are closed; with fewer than five of them, from the first brace to
    the last pair.
    """
    open_ones = text.count("{") - text.count("}")
    if open_ones > 0:
        text = text.rstrip("\n") + "\n}" * open_ones
    first, last = text.find("{"), text.rfind("}\n}")
    return text if open_ones >= 5 or first < 0 or last < 0 else text[first : last + 3].strip()


def _repair_json(text: str) -> str:
    """Raises ValueError where quoting the keys does not help, as the script gives up there."""
    problem = _json_problem(text)
    if not problem:
        return text
    if problem.startswith("Invalid \\escape"):
        text = re.sub(r'\\(?:(["\\/bfnrtu])|)', lambda match: match[0] if match[1] else "", text)
    elif problem.startswith("Expecting property name enclosed in double quotes"):
        quoted = re.sub(r"(\w+):", r'"\1":', text)
        json.loads(quoted)
        return quoted
    extra = text.count("}") - text.count("{")
    balanced = text.rstrip("}") if extra > 0 else text + "}" * -extra
    return text if _json_problem(balanced) else balanced


def _json_problem(text: str) -> str:
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        return error.msg
    return ""


# --- ROUGE-L as KAgentBench counts it: nltk's tokens, or characters in texts with Chinese ---

# What Punkt's English model knows, so that nltk needs none of its data: abbreviations, and words
# that begin a sentence behind one. Its words that are written small are left out.
ABBREVIATIONS = """
a.m adm aug ave bros c calif co col colo conn corp ct d d.c dec dr e f feb fla fri ft g ga gen h
ill inc jan jr k l lt ltd m maj messrs mich minn mr mrs ms n n.y nov oct okla p p.m pa ph.d prof r
rep s sen sep sept sr st t tenn tues u.k u.n u.s u.s.a v va vs vt w wash wed wis yr
"""
STARTERS = """
according although among both but despite even he however i if in indeed instead it many meanwhile
moreover most nevertheless nor separately similarly since so some the there these they this though
thus under when while yet
"""
# rouge_chinese cuts sentences here and puts them together again: what stays is a cut inside a token
CUTS = [
    re.compile(pattern)
    for pattern in (r"([。！？?])(?=[^”’])", r"(\.{6})(?=[^”’])", r"(…{2})(?=[^”’])")
]


def rouge_l(gold: object, text: object) -> float:
    """The F measure of their longest common subsequence of tokens; 0 where one has none."""
    expected, given = mixed_tokens(str(gold)), mixed_tokens(str(text))
    if not expected or not given:
        return 0.0
    common = common_length(expected, given)
    precision, recall = common / len(given), common / len(expected)
    return 2 * precision * recall / (precision + recall + 1e-8)


@lru_cache(maxsize=4096)
def mixed_tokens(text: str) -> tuple[str, ...]:
    """A token with a letter that has no case (`Lo`: Chinese, say) is taken apart."""
    parted = (
        list(token) if any(unicodedata.category(c) == "Lo" for c in token) else [token]
        for token in tokens(text)
    )
    joined = " ".join(piece for token in parted for piece in token)
    for cut in CUTS:
        joined = cut.sub(r"\1 ", joined)
    return tuple(joined.split())


def tokens(text: str) -> list[str]:
    """As `nltk.word_tokenize` has them: the words of each of Punkt's sentences."""
    split_sentences, split_words = _nltk()
    return [word for sentence in split_sentences(text) for word in split_words(sentence)]


@cache
def _nltk() -> tuple[Callable[[str], list[str]], Callable[[str], list[str]]]:
    from nltk.tokenize.destructive import NLTKWordTokenizer
    from nltk.tokenize.punkt import PunktParameters, PunktSentenceTokenizer

    english = PunktParameters()
    english.abbrev_types = set(ABBREVIATIONS.split())
    english.sent_starters = set(STARTERS.split())
    return PunktSentenceTokenizer(english).tokenize, NLTKWordTokenizer().tokenize


def common_length(first: Sequence[str], second: Sequence[str]) -> int:
    """The length of the longest common subsequence, a bit for each token of the first (Hyyro
    2004).
    """
    places: dict[str, int] = {}
    for index, token in enumerate(first):
        places[token] = places.get(token, 0) | 1 << index
    whole = (1 << len(first)) - 1
    unmatched = whole
    for token in second:
        matched = unmatched & places.get(token, 0)
        unmatched = (unmatched + matched | unmatched - matched) & whole
    return len(first) - unmatched.bit_count()
