"""Every shape of gold through every metric, every reward and what a report shows of them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import ALL, QUICK, examples
from support.unknown_arguments import INVALID, RECORD, VALID

from agentlite import evaluate, prep
from agentlite.core.records import Call, Message, Prediction, Record, from_row, to_row
from agentlite.core.row_files import read_rows
from agentlite.data.curation.validate import validate
from agentlite.data.formats import bfcl, to_record
from agentlite.rendering import PROTOCOLS, Prompt
from agentlite.report.readers import PredictionRows, confusion, pack_predictions
from agentlite.scoring.metrics.bfcl import RULES
from agentlite.scoring.metrics.dialogs import dialogs
from agentlite.scoring.metrics.figures import means, read_metrics
from agentlite.scoring.metrics.step_metrics import WRONG_KINDS, calls_right
from agentlite.scoring.metrics.summarize import figures
from agentlite.scoring.predictions import ExternalAnswer, external_prediction, to_prediction_row
from agentlite.scoring.rewards import COMPONENTS, PENALTIES, WEIGHTS, Attempt, score_attempt, total

HERMES = PROTOCOLS["hermes"]
ZERO_IF_RIGHT = {"hallucinated_tools", "repeated_calls"}


class Argument(NamedTuple):
    """A parameter's schema, the value that the gold call has, all that the gold accepts, and values
    that it does not.
    """

    schema: dict[str, Any]
    value: Any
    accepted: list[Any]
    wrong: list[Any]


def scalars() -> st.SearchStrategy[Argument]:
    texts = st.sampled_from(["Oslo", "Lima", "a b", "München", "北京", "x.y"])
    return st.one_of(
        st.builds(
            lambda one, other: Argument({"type": "string"}, one, [one, other], ["Quito", 3, [one]]),
            texts,
            texts,
        ),
        st.builds(
            lambda one, other: Argument(
                {"type": "integer"}, one, [one, other], [one + 100, f"{one}!", None, 0.5]
            ),
            st.integers(0, 9),
            st.integers(0, 9),
        ),
        st.builds(
            lambda one: Argument({"type": "number"}, one, [one], [one + 100, "many"]),
            st.floats(-9, 9),
        ),
        st.builds(
            lambda one: Argument({"type": "boolean"}, one, [one], [not one, "maybe"]), st.booleans()
        ),
        st.just(Argument({"type": "string", "enum": ["day", "night"]}, "day", ["day"], ["night"])),
        st.just(Argument({}, "open", ["open"], ["shut", 7])),  # as "any" is read
        st.just(Argument({"type": "string"}, "-", ["-", "*"], ["/", "", "+"])),
        st.just(Argument({"type": "string"}, "007", ["007", "8"], ["7", 7, "0.07"])),
        st.just(Argument({"type": "string"}, "1.5", ["1.5"], ["15", "1.6", 1.5])),
        st.just(Argument({"type": "string"}, "2*3", ["2*3"], ["2/3", "23", "2*4"])),
        st.just(Argument({"type": ["string", "null"]}, None, [None, "x"], ["None", "y", 0])),
        st.just(Argument({"type": "integer"}, 2**63 + 1, [2**63 + 1], [2**63, 0])),
        st.just(
            Argument(
                {"anyOf": [{"type": "integer"}, {"type": "string"}]},
                "five",
                ["five", 5],
                [6, [5], "six"],
            )
        ),
    )


def lists_of(inner: st.SearchStrategy[Argument]) -> st.SearchStrategy[Argument]:
    def listed(one: Argument, length: int, extra: dict[str, Any]) -> Argument:
        value = [one.value] * length
        wrong = [[bad, *value[1:]] for bad in one.wrong] + [[], value + value, "text"]
        answers = [[answer] * length for answer in one.accepted[:1]]
        return Argument({"type": "array", "items": one.schema, **extra}, value, answers, wrong)

    tuples = st.sampled_from([{}, {"format": "Python tuple"}])
    return st.builds(listed, inner, st.integers(1, 3), tuples)


def objects_of(inner: st.SearchStrategy[Argument]) -> st.SearchStrategy[Argument]:
    def filled(parts: dict[str, Argument], as_data_sets_write_it: bool) -> Argument:
        value = {name: part.value for name, part in parts.items()}
        name, part = next(iter(parts.items()))
        wrong = [{**value, name: bad} for bad in part.wrong]
        wrong += [{**value, "z": 1}, {key: one for key, one in value.items() if key != name}, []]
        choices = {key: one.accepted for key, one in parts.items()}
        plain = as_data_sets_write_it and not all(isinstance(one, list) for one in value.values())
        schema = {
            "type": "object",
            "properties": {key: one.schema for key, one in parts.items()},
            "required": [*parts],
        }
        return Argument(schema, value, [value if plain else choices], wrong)

    names = st.sampled_from(["x", "y", "kind"])
    return st.builds(filled, st.dictionaries(names, inner, min_size=1, max_size=2), st.booleans())


ARGUMENTS = st.recursive(scalars(), lambda inner: lists_of(inner) | objects_of(inner), max_leaves=4)


class Case(NamedTuple):
    """A record whose last turn is asked, calls that are right there, and others that are not."""

    record: Record
    right: tuple[Call, ...]
    wrong: list[tuple[Call, ...]]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Gold with accepted values: one call or several, each argument due or not, as a row of
    `prompts` has it.
    """
    tools, gold, right, changes = [], [], [], []
    for number in range(draw(st.integers(1, 3))):
        arguments = draw(st.dictionaries(st.sampled_from("abc"), ARGUMENTS, max_size=3))
        optional = draw(st.sets(st.sampled_from("abc")))
        required = [name for name in arguments if name not in optional]
        properties = {name: one.schema for name, one in arguments.items()}
        tools.append(
            {
                "name": f"tool_{number}",
                "parameters": {
                    "type": "object",
                    "properties": properties,
                    "required": draw(st.sampled_from([required, []])),
                },
            }
        )
        answers = {
            name: one.accepted + [""] * (name in optional) for name, one in arguments.items()
        }
        gold.append({"name": f"tool_{number}", "arguments": answers})
        kept = {
            name: one.value
            for name, one in arguments.items()
            if name not in optional or draw(st.booleans())
        }
        right.append(Call(f"tool_{number}", kept))
        changes += [
            (number, {**kept, name: bad})
            for name in kept
            for bad in arguments[name].wrong
            # an empty list also does where the parameter may be left out, as in BFCL
            if bad != [] or name not in optional
        ]
        changes += [
            (number, {key: one for key, one in kept.items() if key != name}) for name in required
        ]
        changes.append((number, {**kept, "unheard_of": 1}))
    if draw(st.booleans()):  # the same call twice, and both are expected
        gold.append(gold[-1])
        right.append(right[-1])
    record = to_record({"prompt": "Please do it.", "tools": tools, "gold": gold}, "prompts")
    wrong = [
        tuple(
            msgspec.structs.replace(c, arguments=changed) if i == at else c
            for i, c in enumerate(right)
        )
        for at, changed in changes
    ]
    wrong += [(), (*right, right[0]), tuple(right[1:])]
    return Case(record, tuple(draw(st.permutations(right))), wrong)


def text_of(record: Record, turn: int, calls: Sequence[Call]) -> str:
    return HERMES.assistant(Message("assistant", record.messages[turn].content, tuple(calls)))


def prediction_of(record: Record, turn: int, calls: Sequence[Call], as_text: bool) -> Prediction:
    """As `eval --predictions` has it: the calls by themselves, or as the protocol writes them."""
    words = record.messages[turn].content
    answer = (
        ExternalAnswer(text_of(record, turn, calls))
        if as_text
        else ExternalAnswer(words, tuple(calls))
    )
    return external_prediction(Prompt(record, turn, "hermes", [1], "", "turn"), answer, HERMES)


def rewards(record: Record, turn: int, calls: Sequence[Call]) -> tuple[dict[str, float], str]:
    attempt = Attempt(
        HERMES.read(text_of(record, turn, calls), record.tools),
        record.gold_at(turn),
        record.tools,
        messages=record.messages[:turn],
        reference=record.messages[turn].content,
    )
    components, feedback, error = score_attempt(attempt)
    assert not error
    return dict(components), feedback


def assert_right(record: Record, answers: dict[int, Sequence[Call]], as_text: bool) -> None:
    """The calls at the turns of a record are right by every figure and reward, and in a report."""
    predictions = [prediction_of(record, turn, answers[turn], as_text) for turn in answers]
    records = {record.id: record}
    found = means(figures(predictions, dialogs(predictions, records), records, 0))
    measured = {name: mean for name, mean in found.items() if mean is not None}
    assert measured == {name: float(name not in ZERO_IF_RIGHT) for name in measured}
    assert not any(one.wrong for one in predictions)
    for turn, calls in answers.items():
        components, feedback = rewards(record, turn, calls)
        assert components == {**dict.fromkeys(COMPONENTS, 1.0), **dict.fromkeys(PENALTIES, 0.0)}
        assert feedback == "right"
    shown = shown_in_report(record, predictions)
    for _, said in confusion(shown, ["m"]).rows:
        right, count = said.split(" of ")
        assert right == count
    assert pack_predictions(shown, ["m"], ["exact_call"], 1 << 20)["note"] == ""


def shown_in_report(record: Record, predictions: Sequence[Prediction]) -> PredictionRows:
    rows = {one.step: {"m": as_on_disk(to_prediction_row(one))} for one in predictions}
    return PredictionRows({record.id: from_row(as_on_disk(to_row(record)))}, rows)


def as_on_disk(row: dict[str, Any]) -> dict[str, Any]:
    return dict(json.loads(json.dumps(row)))


def assert_no_better(
    record: Record, turn: int, right: Sequence[Call], wrong: Sequence[Call]
) -> None:
    """Other calls raise nothing, are exact by no rule, and earn nowhere more than right ones."""
    best, found = (prediction_of(record, turn, calls, False) for calls in (right, wrong))
    assert all(found.metrics[name] <= best.metrics[name] for name in best.metrics)
    for name in {"exact_call", "tool_n1"} & best.metrics.keys():
        assert found.metrics[name] == 0.0
    again = prediction_of(record, turn, [*reversed(wrong)], False)
    assert found.wrong in WRONG_KINDS and found.wrong == again.wrong
    (most, _), (least, feedback) = rewards(record, turn, right), rewards(record, turn, wrong)
    assert all(least[name] <= most[name] for name in COMPONENTS)
    assert all(least[name] >= most[name] for name in PENALTIES)
    assert least["exact"] == 0.0 and feedback != "right"
    assert total(least, WEIGHTS) < total(most, WEIGHTS)
    shown = shown_in_report(record, [found])
    confusion(shown, ["m"])
    assert pack_predictions(shown, ["m"], ["exact_call"], 1 << 20)["note"] == ""


@pytest.mark.long
@settings(max_examples=examples(60))
@given(cases(), st.booleans(), st.data())
def test_what_gold_accepts_is_right_everywhere_and_a_changed_value_is_never_better(
    case: Case, as_text: bool, data: st.DataObject
) -> None:
    validate(case.record)
    turn = len(case.record.messages) - 1
    assert_right(case.record, {turn: case.right}, as_text)
    recorded = case.record.messages[turn].calls
    assert_right(case.record, {turn: recorded}, as_text)
    for wrong in data.draw(st.lists(st.sampled_from(case.wrong), max_size=6)):
        assert_no_better(case.record, turn, case.right, wrong)


@pytest.mark.long
@settings(max_examples=examples(30))
@given(cases(), st.booleans(), st.data())
def test_a_recorded_call_is_gold_by_itself(case: Case, as_text: bool, data: st.DataObject) -> None:
    """Where no accepted values are named, the turn of the record is the only right one."""
    record = msgspec.structs.replace(case.record, gold={})
    turn = len(record.messages) - 1
    recorded = record.messages[turn].calls
    assert_right(record, {turn: recorded}, as_text)
    for wrong in data.draw(st.lists(st.sampled_from(case.wrong), max_size=3)):
        if wrong != case.right and calls_right(case.right, record.gold_at(turn), record.tools):
            assert_no_better(record, turn, recorded, wrong)


@pytest.mark.long
@settings(max_examples=examples(20))
@given(VALID, INVALID, st.booleans())
def test_any_valid_arguments_are_right_where_the_gold_knows_none(
    valid: dict[str, Any], invalid: dict[str, Any], as_text: bool
) -> None:
    right = [Call("forecast_001", valid)]
    assert_right(RECORD, {1: right, 3: []}, as_text)
    assert_no_better(RECORD, 1, right, [Call("forecast_001", invalid)])
    assert_no_better(RECORD, 1, right, [])


def any_tool(number_of_tools: int) -> Record:
    row = {"question": [[{"role": "user", "content": "Is it wet?"}]], "id": "live_relevance_1-1-0"}
    tool = {"name": "f", "description": "", "parameters": {"type": "dict", "properties": {}}}
    tools = [{**tool, "name": f"f{n}"} for n in range(number_of_tools)]
    return bfcl.read({**row, "function": tools})


@pytest.mark.parametrize("as_text", [True, False])
def test_where_any_tool_will_do_only_what_can_be_satisfied_is_measured(as_text: bool) -> None:
    record = any_tool(3)
    turn = record.prompted_turns[0]
    for tool in record.tools:
        call = Call(tool.name)
        assert_right(record, {turn: [call]}, as_text)
        one = prediction_of(record, turn, [call], as_text)
        found = means(figures([one], dialogs([one], {record.id: record}), {record.id: record}, 0))
        assert {name for name, mean in found.items() if mean is not None} == {
            *("call_decision", "format_compliance", "bfcl", "live_relevance", "end_to_end_success"),
            *("timing_precision", "recall", "f1"),
            *("schema_validity", "hallucinated_tools", "repeated_calls"),
        }
    assert_no_better(record, turn, [Call("f0")], [])
    assert rewards(record, turn, [Call("g")])[0]["wrong_tool"] == 1.0


def an_argument(schema: dict[str, Any]) -> object:
    """A value that fits."""
    if schema.get("enum"):
        return schema["enum"][0]
    kind = schema.get("type", "string")
    if kind == "object":
        inner = schema.get("properties", {})
        return {name: an_argument(inner.get(name, {})) for name in schema.get("required", ())}
    return {"string": "text", "integer": 1, "number": 1.5, "boolean": True, "array": []}[kind]


def gold_rows(folder: Path) -> list[dict[str, object]]:
    rows = []
    for record in map(from_row, read_rows(folder / "test.jsonl")):
        for turn in record.prompted_turns:
            calls: Sequence[Call] = record.messages[turn].calls
            if record.gold_at(turn).calls and not calls:  # any tool will do
                tool = record.tools[0]
                calls = [Call(tool.name, an_argument(tool.parameters))]  # type: ignore[arg-type]
            given = [{"name": call.name, "arguments": call.arguments} for call in calls]
            rows.append({"record_id": record.id, "turn": turn, "calls": given})
    return rows


@pytest.mark.long
def test_the_gold_of_bfcl_itself_scores_1_by_every_figure(tmp_path: Path) -> None:
    """Every category; a sample of its rows, and in a whole run every row."""
    limit = {} if ALL else {"limit": 60 if QUICK else 130}
    prep(
        f"bfcl:{','.join(bfcl.CATEGORIES)}",
        run=str(tmp_path),
        model="smollm2-135m",
        protocol="hermes",
        dev=0.0,
        test=1.0,
        max_length=8192,
        **limit,
    )
    rows = gold_rows(tmp_path / "prep")
    assert {json.dumps(row["calls"]) for row in rows} and len(rows) > (
        0.75 * limit["limit"] if limit else 3600
    )
    path = tmp_path / "gold.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    evaluate(run=str(tmp_path), predictions=[str(path)])
    (file,) = tmp_path.glob("eval/**/metrics.json")
    metrics = read_metrics(file)
    found = {name: mean for name, mean in means(metrics).items() if mean is not None}
    assert found == {name: float(name not in ZERO_IF_RIGHT) for name in found}
    assert set(RULES) <= found.keys()
    assert metrics.problems == {} and metrics.prompts == len(rows)
    assert all(
        figure["mean"] == 1.0
        for by_value in metrics.by.values()
        for one in by_value.values()
        for figure in (*one["metrics"].values(), *one["dialogs"].values())
    )
