"""Where the results of a chat's calls come from, and what they look like."""

import json
from typing import Any

import pytest
from support.samples import WEATHER_TOOL

from agentlite.core.errors import UserError
from agentlite.core.records import Call
from agentlite.deploy.chat_session import read_toolbox, recorded


@pytest.mark.parametrize(
    "text",
    [
        json.dumps([WEATHER_TOOL]),
        json.dumps({"tools": [WEATHER_TOOL]}),
        json.dumps({"messages": [], "tools": [WEATHER_TOOL]}) + "\n{}\n",
        "\n " + json.dumps({"tools": [WEATHER_TOOL]}) + "\nno JSON",
    ],
)
def test_tools_are_a_list_or_in_an_object_or_in_a_first_row(tmp_path, text):
    (tmp_path / "tools.json").write_text(text, encoding="utf-8")
    [tool] = read_toolbox(str(tmp_path / "tools.json"))
    assert tool.name == WEATHER_TOOL["function"]["name"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xff", "not UTF-8: byte ff"),
        (b"{", "E105"),
        (b"[" * 100_000, "E105"),
        (b"[]", "no rows"),
        (b"{}", "tool"),
    ],
)
def test_a_file_without_tools_is_refused_by_its_name(tmp_path, content, message):
    path = tmp_path / "tools.json"
    path.write_bytes(content)
    with pytest.raises(UserError, match=message) as refused:
        read_toolbox(str(path))
    assert refused.value.location.removesuffix(":1") == str(path)
    assert refused.value.exit_code in (2, 4)
    with pytest.raises(UserError, match="no such file"):
        read_toolbox(str(tmp_path / "none.json"))


def dialog(*pairs: tuple[str, dict[str, Any], str]) -> str:
    messages: list[Any] = [{"role": "user", "content": "?"}]
    for number, (name, arguments, result) in enumerate(pairs):
        function = {"name": name, "arguments": json.dumps(arguments)}
        call = {"id": f"c{number}", "type": "function", "function": function}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"c{number}", "content": result})
    messages.append({"role": "assistant", "content": "!"})
    tools = [
        {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}
        for name in dict.fromkeys(name for name, _, _ in pairs)
    ]
    return json.dumps({"messages": messages, "tools": tools}) + "\n"


def test_recorded_results_are_given_by_call_in_order_and_the_last_one_again(tmp_path, capsys):
    rows = [
        dialog(("f", {"a": 1, "b": 2}, "one"), ("f", {"b": 2, "a": 1}, "two"), ("g", {}, "three")),
        "no JSON\n",
        dialog(("f", {"a": 1, "b": 2}, "four")),
        '{"no": "dialog"}\n',
    ]
    (tmp_path / "rows.jsonl").write_text("".join(rows), encoding="utf-8")
    result = recorded(str(tmp_path / "rows.jsonl"))
    call = Call("f", {"b": 2, "a": 1})
    assert [result(call) for _ in range(5)] == ["one", "two", "four", "four", "four"]
    assert [result(Call("g")) for _ in range(2)] == ["three", "three"]
    assert result(Call("f", {"a": 1})) is None and result(Call("h")) is None
    assert "rows.jsonl: 2 rows cannot be read" in capsys.readouterr().err


def results_of(folder, *turns):
    """The recorded results of a dialog with these turns of tools."""
    question = {"role": "user", "content": "Is it wet?"}
    look, answer = ({"role": "assistant", "content": text} for text in ("I look.", "Yes."))
    results = [{"role": "tool", **turn} for turn in turns]
    targets = sorted({turn["tool_id"] for turn in turns})
    row = {"dialog_id": "d", "turns": [question, look, *results, answer], "target_tools": targets}
    (folder / "rows.jsonl").write_text(json.dumps(row) + "\n")
    return recorded(str(folder / "rows.jsonl"))


def test_a_result_of_a_call_with_unknown_arguments_is_that_of_any_call_of_its_tool(tmp_path):
    tide = {"content": "low", "tool_id": "tide_002", "arguments": {"port": "Brest"}}
    result = results_of(tmp_path, {"content": "4 mm", "tool_id": "rain_001"}, tide)
    assert result(Call("rain_001", {"city": "Oslo"})) == "4 mm"
    assert result(Call("tide_002", {"port": "Brest"})) == "low"
    assert result(Call("tide_002", {"port": "Oslo"})) is None
