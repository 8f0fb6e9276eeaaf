"""`prep hub:ORG/NAME`: the files of one commit, of the configuration and split that are named."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import httpx
import pytest
from support.hub_cache import commit, served, use_cache

import agentlite
from agentlite.core.errors import MODEL, NETWORK, USAGE, UserError
from agentlite.core.row_files import read_rows
from agentlite.data.formats import to_record
from agentlite.data.formats.raw_rows import files_of, read_lines
from agentlite.data.hub_data import _matches
from agentlite.workspace.hub import data_set_info

OLD, NEW = commit("a"), commit("b")
TOWNS = ("Oslo", "Rome", "Bern", "Cork")


def rows(*towns: str) -> str:
    messages = (
        [
            {"role": "user", "content": f"Is it wet in {town}?"},
            {"role": "assistant", "content": f"In {town} it is."},
        ]
        for town in towns
    )
    return "".join(json.dumps({"messages": one}) + "\n" for one in messages)


def write(folder: Path, card: dict[str, Any], **files: str) -> Path:
    """`files`: by path, with `__` for a slash."""
    for name, text in {"README.md": json.dumps(card), **files}.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    use_cache(tmp_path / "cache", monkeypatch)
    monkeypatch.setenv("AGENTLITE_CACHE", str(tmp_path / "ours"))
    configs = [
        {"config_name": "calls", "data_files": [{"split": "train", "path": "calls/part-*.jsonl"}]},
        {
            "config_name": "talk",
            "data_files": [{"split": "test", "path": ["talk/a.jsonl", "talk/b.jsonl"]}],
        },
    ]
    named = {
        "dataset_infos.json": "{}",
        "train.jsonl": rows(*TOWNS),
        "data__test-0.jsonl": rows("Lima"),
        "data__testing-1.jsonl": rows("Kyiv"),
    }
    of_configs = {
        "calls__part-1.jsonl": rows("Oslo"),
        "calls__part-2.jsonl": rows("Rome"),
        "talk__a.jsonl": rows("Bern"),
        "talk__b.jsonl": rows("Cork"),
    }
    sets = {
        "datasets/me/plain": {
            OLD: write(tmp_path / "old", {"license": "mit"}, **{"data.json": rows("Oslo")}),
            NEW: write(tmp_path / "new", {"license": "mit"}, **named),
        },
        "datasets/me/several": {NEW: write(tmp_path / "s", {"configs": configs}, **of_configs)},
        "datasets/me/gated": {NEW: write(tmp_path / "g", {}, **named)},
        "datasets/me/code": {NEW: write(tmp_path / "c", {}, **{"code.py": "1/0"})},
    }
    with served(sets, monkeypatch) as asked:
        yield asked


@pytest.mark.parametrize(
    ("pattern", "files"),
    [
        ("*.jsonl", ["a.jsonl"]),
        ("**/*.jsonl", ["a.jsonl", "test/c.jsonl"]),
        ("test/?.jsonl", ["test/c.jsonl"]),
        ("./a.jsonl", ["a.jsonl"]),
    ],
)
def test_a_star_stays_in_its_folder(pattern, files):
    """Otherwise the test rows of a folder would be trained."""
    assert [file for file in ("a.jsonl", "test/c.jsonl") if _matches(file, pattern)] == files


def users(source: str) -> list[str]:
    files = files_of(source)
    lines = [line for file in files for line in read_lines(file, None)]  # type: ignore[arg-type]
    contents = [json.loads(line.content)["messages"][0]["content"] for line in lines]
    return [content.removeprefix("Is it wet in ").rstrip("?") for content in contents]


@pytest.mark.parametrize(
    ("source", "towns"),
    [
        ("hub:me/plain", [*TOWNS]),
        ("hub:me/plain@test", ["Lima", "Kyiv"]),
        (f"hub:me/plain#{OLD}", ["Oslo"]),
        (f"hub:me/plain/data/test-0.jsonl#{NEW}", ["Lima"]),
        ("hub:me/several:calls", ["Oslo", "Rome"]),
        ("hub:me/several:talk", ["Bern", "Cork"]),
        ("hub:me/several:talk@test#main", ["Bern", "Cork"]),
    ],
)
def test_the_rows_of_a_name_are_those_of_its_split(hub, source, towns):
    assert users(source) == towns


@pytest.mark.parametrize(
    ("source", "exit_code", "problem"),
    [
        ("hub:me/none", MODEL, "the hub has no me/none"),
        ("hub:me/plain#v9", MODEL, "the hub has no me/plain#v9"),
        ("hub:me/gated", MODEL, "me/gated@b+, or it is gated"),
        ("hub:me/plain@tarin", USAGE, "has no split 'tarin'"),
        ("hub:me/several", USAGE, "has several configurations"),
        ("hub:me/several:call", USAGE, "has no configuration 'call'"),
        ("hub:me/code", USAGE, "has no file of rows"),
        ("hub:me", USAGE, "is not the name of a data set"),
    ],
)
def test_what_cannot_be_read_is_named_with_the_way_out(hub, source, exit_code, problem):
    with pytest.raises(UserError, match=problem) as refused:
        users(source)
    assert refused.value.exit_code == exit_code and refused.value.fix
    assert refused.value.location.startswith("hub:")


@pytest.mark.parametrize("error", [httpx.ConnectError("refused"), PermissionError("no network")])
def test_a_hub_that_cannot_be_reached_is_said(error, monkeypatch):
    monkeypatch.setattr("huggingface_hub.HfApi.dataset_info", Mock(side_effect=error))
    with pytest.raises(UserError, match="the hub does not answer") as refused:
        data_set_info("me/plain", "")
    assert refused.value.exit_code == NETWORK and refused.value.location == "hub:me/plain"


def test_a_bare_name_is_told_how_to_be_written():
    with pytest.raises(UserError, match="no such file") as refused:
        agentlite.prep("me/plain")
    assert "hub:me/plain" in refused.value.fix


def test_prep_keeps_its_commit_when_it_is_carried_on_and_reads_offline_from_the_cache(
    hub, tmp_path, monkeypatch
):
    options = {"run": str(tmp_path / "run"), "dev": 0.0, "test": 0.0, "model": "smollm2-135m"}
    figures = agentlite.prep("hub:me/plain", **options).figures
    assert figures["kept"] == len(TOWNS)
    plan = json.loads((tmp_path / "run/prep/plan.json").read_bytes())
    assert plan["settings"]["sources"] == [f"hub:me/plain/train.jsonl#{NEW}"]
    assert plan["inputs"]["licence of hub:me/plain"] == "mit"
    records = [*read_rows(tmp_path / "run/prep/train.jsonl")]
    assert {record["source"] for record in records} == {"plain"}
    asked = len(hub)
    assert agentlite.prep("hub:me/plain", **options).status == "up to date"
    assert len(hub) == asked, "a commit that is known is not asked for again"
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert users("hub:me/plain") == [*TOWNS]
    with pytest.raises(UserError) as refused:
        users("hub:me/plain@test")  # never fetched: rows would be missing
    assert refused.value.exit_code == NETWORK


PARAMETERS = {"rain": "city", "tide": "port"}


def of_xlam(town: str) -> dict[str, Any]:
    tools = [
        {"name": name, "description": f"The {name}.", "parameters": {key: {"type": "str"}}}
        for name, key in PARAMETERS.items()
    ]
    answers = [{"name": "rain", "arguments": {"city": town}}]
    texts = {"tools": json.dumps(tools), "answers": json.dumps(answers)}
    return {"id": 1, "query": f"Is it wet in {town}?", **texts}


def of_hermes(town: str, **more: object) -> dict[str, Any]:
    tools = [
        {"name": name, "parameters": {"properties": {key: {"type": "string"}}}}
        for name, key in PARAMETERS.items()
    ]
    call = {"name": "rain", "arguments": {"city": town}}
    turns = [
        ("system", f"# Tools\n<tools>\n{json.dumps(tools)}\n</tools>"),
        ("human", f"Is it dry in {town}?"),
        ("gpt", f"<tool_call>\n{json.dumps(call)}\n</tool_call>"),
        ("tool", "4 mm"),
        ("gpt", "No."),
    ]
    return {"conversations": [{"from": who, "value": text} for who, text in turns], **more}


@pytest.mark.parametrize("recipe", ["single-turn", "multi-turn"])
def test_a_recipe_reads_the_hub_trains_and_is_measured(recipe, tiny_model, tmp_path, monkeypatch):
    use_cache(tmp_path / "cache", monkeypatch)
    monkeypatch.setenv("AGENTLITE_CACHE", str(tmp_path / "ours"))
    towns = [f"{town} {number}" for town in TOWNS for number in range(5)]
    of_sets = {
        "Salesforce/xlam-function-calling-60k": [of_xlam(town) for town in towns],
        "Team-ACE/ToolACE": [of_hermes(town) for town in towns],
        "Bingguang/FunReason-MT": [of_hermes(t, error_tool_response=False) for t in towns],
    }
    sets = {}
    for name, listed in of_sets.items():
        text = "".join(json.dumps(row) + "\n" for row in listed)
        folder = write(tmp_path / name, {"license": "mit"}, **{"train.jsonl": text})
        sets[f"datasets/{name}"] = {NEW: folder}
    common: Any = {"run": str(tmp_path / "run"), "config": [f"recipes/{recipe}.yaml"]}
    short: Any = {**common, "profile": "cpu", "max_length": 1024}
    with served(sets, monkeypatch):
        made = agentlite.prep(**common, model=str(tiny_model), split_by=["query"])
    assert made.figures["kept"] == len(towns) * (2 if recipe == "single-turn" else 1)
    learned = made.figures["balance"]["train"]
    assert 0.1 < learned["no_call"] / (learned["call"] + learned["no_call"]) < 0.2
    agentlite.sft(**short, max_steps=1)
    measured = agentlite.evaluate(**short, model=["sft"], limit=2, max_new_tokens=4)
    assert measured.status == "done"


@pytest.mark.parametrize("listed", ["[hammer, saw]", "[]"])
def test_a_row_that_offers_no_tool_is_given_none(listed):
    messages = [
        {"role": "system", "content": f"List of tools: {listed}"},
        {"role": "user", "content": "Is it wet?"},
        {"role": "assistant", "content": "I cannot say."},
    ]
    others = [{"name": "rain", "parameters": {"type": "object", "properties": {}}}]
    assert to_record({"messages": messages, "tools": [], "orig_tools": others}).tools == ()
