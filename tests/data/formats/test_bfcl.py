"""agentlite.data.formats.bfcl: the questions of the package with their accepted answers."""

import importlib.util
import json

import pytest
from support.read_rows import EMPTY, rejected

from agentlite.core.errors import RowError
from agentlite.core.records import ANY_TOOL, Call, Gold, GoldCall, from_row, to_row
from agentlite.data.curation.validate import validate
from agentlite.data.formats import FORMATS, to_record
from agentlite.data.formats.bfcl import ANY_CALL, CATEGORIES, NO_CALL, NO_CALL_ANSWER, TUPLE
from agentlite.data.formats.raw_rows import read_raw
from agentlite.scoring.metrics.step_metrics import calls_right

needs_bfcl = pytest.mark.skipif(
    not importlib.util.find_spec("bfcl_eval"), reason="bfcl-eval is not installed"
)


# rows of bfcl-eval 2026.3.23 whose gold no call can satisfy
IMPOSSIBLE = {
    "simple_java_64",
    "live_simple_106-63-0",
    "live_simple_112-68-0",
    "live_multiple_862-181-3",
    "live_multiple_964-207-0",
}


def test_the_categories_of_bfcl_are_those_of_a_single_turn() -> None:
    called = {"simple_python", "simple_java", "simple_javascript", "multiple", "parallel"}
    called |= {"parallel_multiple", *(f"live_{one}" for one in ("simple", "multiple", "parallel"))}
    called.add("live_parallel_multiple")
    assert {*CATEGORIES} == called | {"irrelevance", "live_irrelevance", "live_relevance"}
    for category in CATEGORIES:
        row = json.loads(FORMATS["bfcl"].example) | {"id": f"{category}_0"}
        if category not in called:
            del row["ground_truth"]
        record = to_record(row, "bfcl")
        expected = "tool_selection" if category in called else "timing_decision"
        assert (record.task, record.meta["category"]) == (expected, category)
        assert record.split == ("test" if category == "live_relevance" else "")
        anything = GoldCall(ANY_TOOL)
        assert (record.gold[1].calls == (anything,)) == (category == "live_relevance")
        assert (record.gold[1].calls == ()) == category.endswith("irrelevance")
    for other in ("multi_turn_base_0", "simple_0", "irrelevanc_0"):
        row = json.loads(FORMATS["bfcl"].example) | {"id": other}
        assert rejected(lambda row=row: to_record(row, "bfcl")) == "E201"


@pytest.mark.long
@needs_bfcl
@pytest.mark.parametrize("category", CATEGORIES)
def test_every_bfcl_row_is_valid_and_its_own_answer_satisfies_its_gold(category: str) -> None:
    impossible = set()
    for raw in read_raw(f"bfcl:{category}", EMPTY):
        try:
            record = to_record(raw.value)
        except RowError:
            impossible.add(raw.value["id"])
            continue
        validate(record)
        turn = record.turns[-1]
        assert from_row(to_row(record)) == record
        assert category in ANY_CALL or calls_right(
            record.messages[turn].calls, record.gold_at(turn), record.tools
        ), raw.location
        assert turn in record.gold
        assert record.meta == {"bfcl_id": raw.value["id"], "category": category}
        answer = record.messages[turn]
        assert bool(answer.calls) == (category not in (*NO_CALL, *ANY_CALL))
        assert bool(answer.content) == (not answer.calls)  # nothing is learned beside calls
    assert impossible == {row for row in IMPOSSIBLE if row.startswith(f"{category}_")}


def test_a_bfcl_answer_leaves_out_what_may_be_left_out_at_every_depth() -> None:
    row = json.loads(FORMATS["bfcl"].example)
    user = {"type": "dict", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}}
    row["function"][0]["parameters"]["properties"] |= {
        "by": user,
        "all": {"type": "tuple", "items": user},
    }
    row["ground_truth"][0]["geo.area"] |= {
        "by": [{"name": ["Ada", "A."], "age": [36, ""]}],
        "h": ["", 4],
        "all": [[{"name": ["Bo"]}, {"name": [""]}]],
    }
    record = to_record(row)
    arguments = {"w": 3, "h": 4, "by": {"name": "Ada"}, "all": [{"name": "Bo"}, {}]}
    assert record.messages[-1].calls[0].arguments == arguments
    assert record.gold_at(1).calls == (GoldCall("geo.area", row["ground_truth"][0]["geo.area"]),)
    assert record.tools[0].parameters["properties"]["all"] == {
        "type": "array",
        "items": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
        },
        "format": TUPLE,
    }


def test_where_bfcl_wants_no_call_the_sentence_said_can_be_chosen() -> None:
    row = {**json.loads(FORMATS["bfcl"].example), "id": "irrelevance_3"}
    del row["ground_truth"]
    for given_answer, said in (
        ({}, NO_CALL_ANSWER),
        ({"bfcl": {"no_call_answer": "Not with these."}}, "Not with these."),
    ):
        record = to_record(row, options=given_answer)
        assert (record.messages[-1].content, record.gold_at(1), record.task) == (
            said,
            Gold(()),
            "timing_decision",
        )


def test_a_java_function_is_told_as_one_of_texts_and_its_answer_is_written_in_java() -> None:
    row = {**json.loads(FORMATS["bfcl"].example), "id": "simple_java_9"}
    row["function"][0]["parameters"]["properties"] |= {
        "w": {"type": "long", "description": "width"},
        "tags": {"type": "ArrayList", "items": {"type": "String"}},
    }
    row["ground_truth"][0]["geo.area"] |= {"tags": [["a", "b"]]}
    record = to_record(row)
    properties = record.tools[0].parameters["properties"]
    assert properties["w"] == {
        "type": "string",
        "format": "Java long",
        "description": "width (text: Java long)",
    }
    assert (
        properties["tags"]["format"] == "Java ArrayList<String>"
        and properties["tags"]["type"] == "string"
    )
    arguments = {"w": "3L", "h": "4", "tags": 'new ArrayList<>(Arrays.asList("a", "b"))'}
    assert record.messages[-1].calls[0].arguments == arguments
    for name, value in (("w", "3"), ("w", 3), ("tags", ["a", "b"])):
        assert not calls_right(
            [Call("geo.area", arguments | {name: value})], record.gold_at(1), record.tools
        )
