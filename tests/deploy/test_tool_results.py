"""Where the results of a chat's calls come from, and what they look like."""

import asyncio
import json
from pathlib import Path
from typing import Any, ClassVar

import pytest
from support.samples import WEATHER_TOOL

from agentlite.core.errors import UserError
from agentlite.core.records import Call, Tool
from agentlite.core.user_code import Named
from agentlite.deploy import tool_results
from agentlite.deploy.tool_results import executed, read_toolbox, recorded


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
        (b"{", "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b"[]", "holds no tool"),
        (b"{}", "holds no tool|list"),
        (json.dumps([WEATHER_TOOL, WEATHER_TOOL]).encode(), "has two tools named get_weather"),
    ],
)
def test_a_file_without_tools_is_refused_by_its_name(tmp_path, content, message):
    path = tmp_path / "tools.json"
    path.write_bytes(content)
    with pytest.raises(UserError, match=message) as refused:
        read_toolbox(str(path))
    assert refused.value.location.removesuffix(":1") == str(path)
    assert refused.value.exit_code == 2
    with pytest.raises(UserError, match="cannot be read: No such file"):
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


class Code:
    """In place of the child process."""

    made: ClassVar[list["Code"]] = []

    def __init__(self, named: Any, use: Any, *limits: float):
        self.named, self.use, self.limits, self.calls = named, use, limits, list[str]()
        Code.made.append(self)

    def start(self) -> None:
        self.calls.append("start")

    def stop(self) -> None:
        self.calls.append("stop")

    def ask(self, function: str, payload: Any) -> tuple[Any, str]:
        return ("wet", "") if function == "f" else (None, "raised KeyError")


def test_functions_are_asked_by_the_names_of_the_tools_and_end_with_the_chat(tmp_path, monkeypatch):
    monkeypatch.setattr(tool_results, "UserCode", Code)
    path = str(tmp_path / "mine.py")
    with pytest.raises(UserError, match="no such file"), executed(path, [Tool("f")], 1.5):
        pass
    Path(path).write_text("", encoding="utf-8")
    with executed(path, [Tool("f"), Tool("g")], 1.5, 2.0) as observe:
        code = Code.made[-1]
        assert code.named == [Named(path, "f"), Named(path, "g")] and code.limits == (1.5, 2.0)
        assert observe(Call("f")) == "wet"
        assert json.loads(observe(Call("g"))) == {"error": "raised KeyError"}
        assert json.loads(observe(Call("h"))) == {"error": "no tool h"}
    assert code.calls == ["start", "stop"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("wet", "wet"),
        ({"mm": 4}, '{"mm": 4}'),
        (None, "null"),
        ("雨", "雨"),
        (["雨"], '["雨"]'),
        ({"at": Path("/a")}, '{"at": "/a"}'),
        ({"mm": float("nan")}, '{"mm": null}'),
    ],
)
def test_a_result_is_text_as_a_model_is_shown_it(value, text):
    assert tool_results._call(lambda city: value, {"city": "Oslo"}) == (text, "")


def test_a_function_that_is_awaited_gives_its_result():
    async def rain(city):
        await asyncio.sleep(0)
        return {"city": city}

    async def days(city):
        for day in (1, 2):
            yield day

    assert tool_results._call(rain, {"city": "Oslo"}) == ('{"city": "Oslo"}', "")
    assert tool_results._call(days, {"city": "Oslo"}) == ("[1, 2]", "")


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


def test_a_result_of_the_very_call_goes_before_one_whose_arguments_are_unknown(tmp_path):
    dry = {"content": "dry", "tool_id": "rain_001", "arguments": {"city": "Lima"}}
    result = results_of(tmp_path, {"content": "4 mm", "tool_id": "rain_001"}, dry)
    assert result(Call("rain_001", {"city": "Lima"})) == "dry"
    assert result(Call("rain_001", {"city": "Oslo"})) == "4 mm"


@pytest.mark.long
def test_half_a_character_in_a_result_or_a_reason_is_one_that_a_tokenizer_takes(tmp_path):
    text = (
        "def f(): return 'a\\ud800'\ndef g(): return ['\\udcff']\ndef h(): raise OSError('\\ud800')"
    )
    (tmp_path / "mine.py").write_text(text, encoding="utf-8")
    path = str(tmp_path / "mine.py")
    with executed(path, [Tool("f"), Tool("g"), Tool("h")], 60.0) as observe:
        results = [observe(Call(name)) for name in "fgh"]
    assert results[:2] == ["a\ufffd", '["\ufffd"]'] and "raised OSError: \ufffd" in results[2]
    assert all(result.encode() for result in results)
