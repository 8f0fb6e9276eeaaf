"""Tools that rows and files declare describe those that other rows name by their ids."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from agentlite.core.errors import UserError
from agentlite.core.records import Tool
from agentlite.data.formats import to_record
from agentlite.data.formats.raw_rows import Raw
from agentlite.data.formats.sage import is_id_alone
from agentlite.data.tool_catalogue import read_catalogue

RAIN: dict[str, Any] = {
    "tool_id": "rain_001",
    "name": "Rain",
    "capabilities": ["rain of today"],
    "inputs": [{"name": "city", "type": "string", "required": True}],
    "invoke_examples": [{"instruction": "Is it wet?", "arguments": {"city": "Oslo"}}],
}
CLOCK = {**RAIN, "tool_id": "clock_002", "name": "Clock", "inputs": [], "capabilities": []}
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TIDE = {"type": "function", "function": {"name": "tide_003", "description": "Tides."}}


def written(path: Path, *rows: object) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def raw(*rows: object) -> list[Raw]:
    return [Raw(f"rows:{number}", b"", row, None) for number, row in enumerate(rows, 1)]


def test_tools_of_rows_and_of_files_of_both_shapes_are_described(tmp_path: Path) -> None:
    found = read_catalogue(
        [written(tmp_path / "a.jsonl", TIDE), written(tmp_path / "b.jsonl", {"tools": [CLOCK]})],
        raw(RAIN, {"messages": []}),
    )
    assert found.keys() == {"rain_001", "clock_002", "tide_003"}
    assert found["rain_001"] == Tool("rain_001", "Rain: rain of today", CITY)
    assert found["tide_003"].description == "Tides."


def test_of_several_declarations_one_is_taken_in_any_order_and_this_is_noted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    versions = [{**RAIN, "name": name} for name in ("Rain", "Wet", "Drops")]
    found = {
        read_catalogue([], raw(*order))["rain_001"].description
        for order in itertools.permutations(versions)
    }
    assert found == {"Drops: rain of today"}
    assert "1 tools are declared differently in several rows, rain_001" in capsys.readouterr().err
    read_catalogue([], raw(RAIN, RAIN))
    assert not capsys.readouterr().err


def test_a_file_without_a_tool_is_refused_and_one_bad_row_is_noted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path / "t.jsonl", {"messages": []})
    with pytest.raises(UserError) as refused:
        read_catalogue([path], [])
    assert refused.value.location == f"{path}:1" and "holds no tool" in refused.value.problem
    with pytest.raises(UserError, match="E211 parameters of rain_001"):
        read_catalogue([written(tmp_path / "t.jsonl", {**RAIN, "inputs": ["city"]})], [])
    path = written(tmp_path / "t.jsonl", RAIN, {"tool_id": 3, "invoke_examples": []}, CLOCK)
    assert read_catalogue([path], []).keys() == {"rain_001", "clock_002"}
    notice = " ".join(capsys.readouterr().err.split())
    assert f"{path}:2: E212 a tool" in notice
    assert "[1 of 3 tools of the file cannot be read]" in notice


DIALOG: dict[str, Any] = {
    "dialog_id": "d",
    "turns": [
        {"role": "user", "content": "Is it wet in Oslo?"},
        {"role": "assistant", "content": "I look."},
        {"role": "tool", "content": "4 mm", "tool_id": "rain_001"},
        {"role": "tool", "content": "12:00", "tool_id": "clock_002"},
        {"role": "assistant", "content": "Yes."},
    ],
    "target_tools": ["rain_001", "clock_002"],
}
SAMPLE: dict[str, Any] = {
    "sample_id": "s",
    "task_type": "tool_selection",
    "instruction": "Is it wet in Oslo?",
    "candidate_tools": ["tide_003", "rain_001", "clock_002"],
    "ground_truth": {"top_k": ["rain_001", "clock_002"]},
}


@pytest.mark.parametrize("row", [DIALOG, SAMPLE], ids=["sage_sft", "sage_benchmark"])
def test_tools_that_are_named_by_ids_are_those_of_the_catalogue(row: dict[str, Any]) -> None:
    catalogue = read_catalogue([], raw(RAIN, CLOCK))
    options = {name: {"catalogue": catalogue} for name in ("sage_sft", "sage_benchmark")}
    record = to_record(row, None, options)
    tools = {tool.name: tool for tool in record.tools}
    assert tools["rain_001"] == catalogue["rain_001"]
    assert tools["rain_001"] == to_record(RAIN).tools[0]
    assert [n for n in tools if is_id_alone(tools[n])] == [n for n in tools if n not in catalogue]
    rain, clock = record.gold[1].calls
    assert (rain.name, rain.arguments) == ("rain_001", None)
    # this one takes no arguments: then none are known to be right
    assert (clock.name, clock.arguments) == ("clock_002", {})
    alone = to_record(row)
    assert all(map(is_id_alone, alone.tools))
    assert [call.arguments for call in alone.gold[1].calls] == [None, None]
