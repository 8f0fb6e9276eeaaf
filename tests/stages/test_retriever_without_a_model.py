"""The retriever without a model: its plan, and its problems, counted and shown."""

import pytest
from support.generated_run import stage

from agentlite.config.settings import RetrieverSettings
from agentlite.core.errors import UserError
from agentlite.core.records import Call, Message, Record, Tool, to_row
from agentlite.core.row_files import write_rows
from agentlite.stages import retriever
from agentlite.stages.retriever import _read, _report_problems
from agentlite.stages.retriever.evaluate import _short
from agentlite.workspace.model_source import Source
from agentlite.workspace.run_folder import RunTarget


def test_problems_are_counted_by_kind_and_the_first_of_each_is_shown(capsys):
    problems = [
        {"location": "b.jsonl:2", "code": "E212", "problem": "no name"},
        {"location": "a.jsonl:1", "code": "E212", "problem": "no words"},
        {"location": "find_rain", "code": "several schemas", "problem": "2 tools"},
        {"location": "c.jsonl:9", "code": "E212", "problem": "no name"},
    ]
    assert _report_problems(problems) == {"E212": 3, "several schemas": 1}
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("b.jsonl:2: E212: no name") and "+2 more" in first
    assert second == "find_rain: several schemas: 2 tools"
    assert _report_problems([]) == {} and capsys.readouterr().err == ""


def test_only_the_named_figures_of_each_method_are_the_key_figures():
    figure = {"mean": 0.5, "low": 0.25, "high": 0.75, "count": 4, "std": 0.1}
    figures = {"all": {"13": {"bm25": {"recall@5": figure, "map": figure}}}}
    kept = {"mean": 0.5, "low": 0.25, "high": 0.75, "count": 4}
    assert _short(figures, ["recall@5"]) == {"all": {"13": {"bm25": {"recall@5": kept}}}}


def asked(question, called="find_rain", tools=("find_rain",)):
    messages = (Message("user", question), Message("assistant", calls=(Call(called, {}),)))
    offered = tuple(Tool(name, f"Tells of {name}.") for name in tools)
    return Record(messages=messages, tools=offered)


@pytest.fixture
def prepared(tmp_path):
    def write(train, dev=(), test=()):
        for split, records in (("train", train), ("dev", dev), ("test", test)):
            write_rows(tmp_path / f"{split}.jsonl", map(to_row, records))
        return tmp_path

    return write


def test_a_tool_that_is_expected_and_nowhere_declared_is_a_problem(prepared):
    lost = asked("Is it wet?", called="find_snow")
    work = _read(RetrieverSettings(), prepared([asked("Is it dry?"), lost], test=[lost]))
    codes = [(one["code"], one["location"]) for one in work.problems]
    assert codes == [("not in the pool", f"record {lost.id}")] * 2
    assert {split: len(found) for split, found in work.queries.items()} == {
        "train": 2,
        "dev": 0,
        "test": 1,
    }


def test_a_question_that_needs_a_tool_is_needed_only_for_training(prepared):
    folder = prepared([asked("Is it wet?", called="find_snow")])
    with pytest.raises(UserError, match="no question in train needs a tool"):
        _read(RetrieverSettings(), folder)
    assert [*_read(RetrieverSettings(max_steps=0), folder).pool.names] == ["find_rain"]


@pytest.fixture
def planned(tmp_path, monkeypatch):
    """What a dry run is given: the settings, and the plan."""
    source = Source("m", "m", None, "digest of m")
    monkeypatch.setattr(retriever, "find_encoder", lambda *_: source)
    monkeypatch.setattr(
        retriever, "_dry_run", lambda settings, target, plan, data: (settings, plan)
    )

    def run(changed="", static=False, **changes):
        monkeypatch.setattr(retriever, "is_static", lambda _: static)
        names = ("train.jsonl", "dev.jsonl", "test.jsonl", "stats.jsonl")
        rows = {name: [{"changed": name == changed}] for name in names}
        stage(tmp_path / "prep", {"command": "prep", "settings": {}, "inputs": {}}, rows, {})
        settings = RetrieverSettings(**changes)
        return retriever.run(settings, RunTarget(tmp_path, "retriever", dry_run=True))

    return run


@pytest.mark.parametrize(
    ("static", "changes", "epochs", "rate"),
    [
        (True, {}, 10.0, 2e-2),
        (False, {}, 1.0, 2e-4),
        (True, {"num_epochs": 3.0, "learning_rate": 1e-3}, 3.0, 1e-3),
        (False, {"learning_rate": 0.0}, 1.0, 0.0),
    ],
)
def test_a_static_model_learns_longer_and_faster_unless_it_is_given(
    static, changes, epochs, rate, planned
):
    settings, plan = planned(static=static, **changes)
    assert (settings.num_epochs, settings.learning_rate) == (epochs, rate)
    assert (plan.settings["num_epochs"], plan.settings["learning_rate"]) == (epochs, rate)


def test_rows_of_every_split_the_tools_and_the_model_are_inputs(planned, tmp_path):
    tools = tmp_path / "tools.jsonl"
    tools.write_text("{}\n", encoding="utf-8")
    _, first = planned(tools=(str(tools),))
    assert {*first.inputs} == {"data", "model", f"tools {tools}"}
    others = [planned(f"{split}.jsonl")[1].inputs["data"] for split in ("train", "dev", "test")]
    assert len({first.inputs["data"], *others}) == 4
    assert planned("stats.jsonl")[1].inputs["data"] == first.inputs["data"]
    tools.write_text("{}\n{}\n", encoding="utf-8")
    _, other = planned(tools=(str(tools),))
    assert other.inputs[f"tools {tools}"] != first.inputs[f"tools {tools}"]
