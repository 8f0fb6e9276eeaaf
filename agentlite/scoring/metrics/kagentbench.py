"""KAgentBench: planning, tool use, reflection, concluding, profile, and the overall.

It scores as the benchmark's own script does, to compare with published figures, the script's
defects included: ReAct's whole input is one argument, ModelScope's answers have no thought, an
empty text is read as the one before it, and a gold that repeats the last task gets no reflection.
"""

import json
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from statistics import fmean
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec
from msgspec import Struct

from agentlite.core.errors import UserError, require
from agentlite.core.records import text_or_json
from agentlite.core.row_files import read_rows
from agentlite.rendering.protocols import modelscope
from agentlite.scoring.metrics.confidence import Summary, bootstrap, draw_resamples, summary

Kind = Literal["plantooluse", "reflextion", "conclusion", "profile"]  # the benchmark's own spelling
Template = Literal["ReACT", "AutoGPT", "ToolLlama", "ModelScope", "KuaiAgent"]
NONE = "None"


# --- A text -> thought, tool and arguments, or the conclusion ---


class ParsedText(NamedTuple):
    """What was read from a model's text."""

    thought: Any = NONE
    tool: Any = NONE
    arguments: Mapping[str, Any] = MappingProxyType({})


Reader = Callable[[str, Sequence[Any]], ParsedText]


def _read_react(text: str, funcs: Sequence[object]) -> ParsedText:
    """All that is written as input is the first argument of the tool: of the last function of that
    name, as the script has it.
    """
    thought = _between(text, "", ("Final Answer", "Action")) or ""
    tool = _between(text, "Action:", ("Action Input:",), to_the_end=False)
    value = _between(text, "Action Input:", ("Observation",))
    functions = [f for f in funcs if isinstance(f, dict) and f.get("name") == tool]
    try:
        parameter = next(iter(functions[-1]["parameters"]["properties"].keys()))
    except (IndexError, KeyError, TypeError, AttributeError, StopIteration):
        parameter = ""
    is_known = tool is not None and parameter not in ("", NONE)
    arguments = {parameter: value} if is_known and value is not None else {}
    return ParsedText(thought, tool or NONE, arguments)


def _read_toolllama(text: str, funcs: Sequence[object]) -> ParsedText:
    """Without a thought the script compares with the text of an empty list."""
    thought: Any = _between(text, "Thought:", ("Action",))
    tool = _between(text, "Action:", ("Action Input:",))
    written = _between(text, "Action Input:", ("Thought",)) if tool is not None else None
    return ParsedText([] if thought is None else thought, tool or NONE, _json_object(written))


def _read_autogpt(text: str, funcs: Sequence[object]) -> ParsedText:
    value = _json_object(text)
    thoughts = value.get("thoughts")
    thought = thoughts.get("text", NONE) if isinstance(thoughts, dict) else NONE
    return _to_parsed(thought, value.get("command"))


def _read_kuaiagent(text: str, funcs: Sequence[object]) -> ParsedText:
    value = _json_object(text)
    return _to_parsed(value.get("task_name", NONE), value.get("command"))


def _read_modelscope(text: str, funcs: Sequence[object]) -> ParsedText:
    """The script never reads a thought here, so planning scores next to nothing."""
    value = _json_object(_between(text, modelscope.OPEN, (modelscope.CLOSE,), to_the_end=False))
    return _to_parsed(NONE, {"name": value.get("api_name", NONE), "args": value.get("parameters")})


def _to_parsed(thought: object, command: object) -> ParsedText:
    command = command if isinstance(command, dict) else {}
    name, arguments = command.get("name", NONE), command.get("args")
    return ParsedText(
        thought, NONE if name == "" else name, arguments if isinstance(arguments, dict) else {}
    )


READERS: dict[Template, Reader] = {
    "ReACT": _read_react,
    "AutoGPT": _read_autogpt,
    "ToolLlama": _read_toolllama,
    "ModelScope": _read_modelscope,
    "KuaiAgent": _read_kuaiagent,
}


def _autogpt_answer(text: str) -> str:
    """What follows `response="`; a search is not an answer."""
    _, *responses = text.split('response="')
    answer = responses[0].replace('")', "") if responses else text
    return "" if "web_search(" in text else answer


def _toolllama_answer(text: str) -> str:
    _, *answers = text.split('"final_answer": "')
    answer = answers[0].replace('"', "").replace("}", "") if answers else text
    return "" if answer == "\n" else answer


ANSWERS: dict[Template, Callable[[str], str]] = {
    "AutoGPT": _autogpt_answer,
    "ToolLlama": _toolllama_answer,
}


def _between(text: str, start: str, ends: Sequence[str], to_the_end: bool = True) -> str | None:
    """At least one character behind the first `start`, up to the first end; None for none."""
    begin = text.find(start) + len(start)
    if begin < len(start) or begin == len(text):
        return None
    stops = [end for end in (text.find(mark, begin + 1) for mark in ends) if end >= 0]
    return text[begin : min(stops, default=len(text))].strip() if stops or to_the_end else None


def _json_object(text: str | None) -> dict[str, Any]:
    """The JSON object of a text after the script's repairs: braces balanced, bare keys quoted, bad
    escapes dropped. Empty where there is none.
    """
    try:
        value = json.loads(_repair_json(_close_braces(text or "")))
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _close_braces(text: str) -> str:
    """Open braces are closed; fewer than five: from the first brace to the last pair."""
    open_braces = text.count("{") - text.count("}")
    if open_braces > 0:
        text = text.rstrip("\n") + "\n}" * open_braces
    # of 'So:\n{"a": {"b": 1}\n}\nDone.' that leaves '{"a": {"b": 1}\n}'
    first, last = text.find("{"), text.rfind("}\n}")
    return text if open_braces >= 5 or first < 0 or last < 0 else text[first : last + 3].strip()


def _repair_json(text: str) -> str:
    if not (problem := _json_problem(text)):
        return text
    if problem.startswith("Expecting property name enclosed in double quotes"):
        return re.sub(r"(\w+):", r'"\1":', text)  # no other repair, where this one does not help
    if problem.startswith("Invalid \\escape"):
        text = re.sub(r'\\(?:(["\\/bfnrtu])|)', lambda match: match[0] if match[1] else "", text)
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
    gold_tokens, tokens = mixed_tokens(str(gold)), mixed_tokens(str(text))
    if not gold_tokens or not tokens:
        return 0.0
    common = common_length(gold_tokens, tokens)
    precision, recall = common / len(tokens), common / len(gold_tokens)
    return 2 * precision * recall / (precision + recall + 1e-8)


@lru_cache(maxsize=4096)
def mixed_tokens(text: str) -> tuple[str, ...]:
    """A token with a letter that has no case (`Lo`: Chinese, say) is taken apart: "北京 is 3.5" has
    the tokens 北, 京, is and 3.5.
    """
    split_tokens = (
        list(token) if any(unicodedata.category(c) == "Lo" for c in token) else [token]
        for token in word_tokenizer()(text)
    )
    joined = " ".join(piece for pieces in split_tokens for piece in pieces)
    for cut in CUTS:
        joined = cut.sub(r"\1 ", joined)
    return tuple(joined.split())


@cache
def word_tokenizer() -> Callable[[str], list[str]]:
    """Text -> tokens as `nltk.word_tokenize` has them: the words of each of Punkt's sentences."""
    from nltk.tokenize.destructive import NLTKWordTokenizer
    from nltk.tokenize.punkt import PunktParameters, PunktSentenceTokenizer

    english = PunktParameters()
    english.abbrev_types = set(ABBREVIATIONS.split())
    english.sent_starters = set(STARTERS.split())
    sentences, words = PunktSentenceTokenizer(english), NLTKWordTokenizer()
    return lambda text: [
        word for sentence in sentences.tokenize(text) for word in words.tokenize(sentence)
    ]


def common_length(first: Sequence[str], second: Sequence[str]) -> int:
    """The longest common subsequence's length, a bit for each token of the first (Hyyro 2004)."""
    positions: dict[str, int] = {}
    for index, token in enumerate(first):
        positions[token] = positions.get(token, 0) | 1 << index
    unmatched = all_bits = (1 << len(first)) - 1
    for token in second:
        matched = unmatched & positions.get(token, 0)
        # Bit i is 0 where the common subsequence with first[: i + 1] is longer than with first[:i].
        # From one 0 up to the next, the lowest match moves that next one down to itself; above the
        # last 0 it makes a new one.
        unmatched = (unmatched + matched | unmatched - matched) & all_bits
    return len(first) - unmatched.bit_count()


# --- Rows and their scores ---


class StepTask(Struct, frozen=True):
    """The action of a step, as the gold has it; `golden_result`: the text, of the other types."""

    thought: Any = NONE
    tool_name: Any = NONE
    tool_args: dict[str, Any] = {}
    golden_result: Any = ""


class Answer(Struct, frozen=True):
    """What a model said to each prompt of a query: a text by template, or one for a profile."""

    id: str | int
    type: Kind
    model_predict: dict[Template, Any] | str

    def __post_init__(self) -> None:
        if (self.type == "profile") != isinstance(self.model_predict, str):
            raise ValueError("model_predict is one text of a profile, and of others an object")


class Row(Struct, frozen=True):
    """A query with its gold and what a model said to it."""

    id: str | int
    type: Kind
    golden_result_list: list[StepTask]
    funcs: list[Any] = []
    memory_last_task: Any = None
    model_predict: dict[Template, Any] | str = {}


AnyRow = TypeVar("AnyRow", Row, Answer)


def read(benchmark: Path, predictions: Path) -> list[Row]:
    """The rows of the benchmark, each with its prediction. Raises UserError for one that is
    missing, twice, unknown.
    """
    require("KAgentBench's ROUGE", ["nltk"], "pip install 'agentlite[kagent]'", "--kagent")
    questions, answers = _by_id(benchmark, Row), _by_id(predictions, Answer)
    if unpaired := sorted(questions.keys() ^ answers.keys()):
        kind, name = unpaired[0]
        raise UserError(
            f"{name} ({kind}) stands in one of the two files only, and {len(unpaired) - 1} more.",
            f"Predict all rows of {benchmark}, and no others.",
            location=str(predictions),
        )
    return [
        msgspec.structs.replace(row, model_predict=answers[key].model_predict)
        for key, row in questions.items()
    ]


def _by_id(path: Path, kind: type[AnyRow]) -> dict[tuple[str, str], AnyRow]:
    """By type and id."""
    rows: dict[tuple[str, str], AnyRow] = {}
    for number, raw_row in enumerate(read_rows(path), 1):
        try:
            row = msgspec.convert(raw_row, kind)
            problem = f"{row.id} ({row.type}) appears twice."
        except msgspec.ValidationError as error:
            row, problem = None, f"{error}."
        if row is None or (key := (row.type, str(row.id))) in rows:
            raise UserError(
                problem, "Give each row of KAgentBench once.", location=f"{path}:{number}"
            )
        rows[key] = row
    return rows


def score(rows: Sequence[Row], seed: int) -> dict[str, Summary | None]:
    """Each part over its queries, and the overall; None where nothing, or not all, was measured."""
    values = {
        name: [measure(row) for row in rows if row.type == kind]
        for name, (kind, _, measure) in PARTS.items()
    }
    parts = {name: summary(values[name], seed) if values[name] else None for name in PARTS}
    if not all(values.values()):
        return {**parts, "overall": None}
    # queries are drawn again within their kind; planning and tool use together, as they are of the
    # same ones
    weighted: dict[Kind, list[float]] = {}
    for name, (kind, weight, _) in PARTS.items():
        sums = weighted.get(kind, [0.0] * len(values[name]))
        terms = zip(sums, values[name], strict=True)
        weighted[kind] = [total + weight * value for total, value in terms]
    resamples = (draw_resamples(sorted(kind), seed + n) for n, kind in enumerate(weighted.values()))
    estimates = (sum(map(fmean, resample)) for resample in zip(*resamples, strict=True))
    mean = overall({name: fmean(values[name]) for name in PARTS})
    return {**parts, "overall": bootstrap(mean, estimates, sum(map(len, weighted.values())))}


def overall(parts: Mapping[str, float]) -> float:
    return sum(weight * parts[name] for name, (_, weight, _) in PARTS.items())


def reflection(row: Row) -> float:
    """Thought and arguments, .3 to .7; nothing for a gold that repeats the last task."""
    task = row.memory_last_task
    last_call = (task.get("tool_name"), task.get("tool_args")) if isinstance(task, dict) else None

    def agreement(parsed: ParsedText, gold: StepTask) -> float:
        if gold.thought == NONE or last_call == (gold.tool_name, gold.tool_args):
            return 0.0
        return 0.3 * _thought_agreement(parsed, gold) + 0.7 * _argument_agreement(parsed, gold)

    return _mean_over_prompts(row, agreement)


def concluding(row: Row) -> float:
    assert isinstance(row.model_predict, dict)
    answers = [ANSWERS.get(t, str)(text_or_json(text)) for t, text in row.model_predict.items()]
    return fmean([_best_rouge(row, answer) for answer in answers]) if answers else 0.0


# with their published weights
PARTS: dict[str, tuple[Kind, float, Callable[[Row], float]]] = {
    "planning": ("plantooluse", 0.25, lambda row: _mean_over_prompts(row, _thought_agreement)),
    "tool_use": ("plantooluse", 0.35, lambda row: _mean_over_prompts(row, _argument_agreement)),
    "reflection": ("reflextion", 0.10, reflection),
    "concluding": ("conclusion", 0.20, concluding),
    "profile": ("profile", 0.10, lambda row: _best_rouge(row, row.model_predict)),
}


def _mean_over_prompts(row: Row, agreement: Callable[[ParsedText, StepTask], float]) -> float:
    """The mean over the prompts, each with the nearest gold that calls the same tool."""
    assert isinstance(row.model_predict, dict)
    agreements, parsed = [], ParsedText()
    for template, text in row.model_predict.items():
        if template != "ReACT" or text:  # an empty text is read as the one before it
            parsed = READERS[template](text_or_json(text), row.funcs)
        golds = [gold for gold in row.golden_result_list if NONE != gold.tool_name == parsed.tool]
        agreements.append(max((agreement(parsed, gold) for gold in golds), default=0.0))
    return fmean(agreements) if agreements else 0.0


def _thought_agreement(parsed: ParsedText, gold: StepTask) -> float:
    return rouge_l(gold.thought, parsed.thought) if gold.thought != NONE else 0.0


def _argument_agreement(parsed: ParsedText, gold: StepTask) -> float:
    """The mean over the gold's arguments; others cost nothing, but where the gold has none."""
    expected, given = gold.tool_args, parsed.arguments
    if not expected or not given:
        return float(expected == given)
    return fmean(
        rouge_l(value, given[name]) if name in given else 0.0 for name, value in expected.items()
    )


def _best_rouge(row: Row, answer: object) -> float:
    return max(
        (rouge_l(gold.golden_result, answer) for gold in row.golden_result_list), default=0.0
    )
