"""chat: a dialog with calls and their results, from a pipe; by hand, replayed, or by functions of
one's own.
"""

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from support.samples import OSLO, WEATHER_TOOL

import agentlite
from agentlite.cli.main import main
from agentlite.core.errors import UserError
from agentlite.core.records import Call
from agentlite.deploy.tool_results import executed, read_toolbox, recorded

CALL = Call("get_weather", {"city": "Oslo"})
SAID = [
    {"role": "user", "content": OSLO["content"]},
    "a call",
    {"role": "tool", "content": "4 mm"},
    {"role": "assistant", "content": "Yes, 4 mm."},
]


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    path = tmp_path / "tools.json"
    path.write_text(json.dumps([WEATHER_TOOL]), encoding="utf-8")
    return path


@pytest.fixture
def chat(caller: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """What is typed, and options -> exit code, stdout, stderr."""

    def run(typed: str, *options: Any) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
        monkeypatch.setattr(
            sys,
            "argv",
            [
                "agentlite",
                "chat",
                "sft",
                "--run",
                str(caller),
                "--max-length",
                "512",
                *map(str, options),
            ],
        )
        code = 0
        try:
            main()
        except SystemExit as stopped:
            code = int(stopped.code or 0)
        return code, *capsys.readouterr()

    return run


def messages(stdout: str) -> list[Any]:
    """Those of the JSON object, ids left out, the call as a word once it is seen to be the right
    one.
    """
    found = json.loads(stdout)["messages"]
    for message in found:
        message.pop("tool_call_id", None)
        for call in message.get("tool_calls", ()):
            assert call["function"] == {"name": "get_weather", "arguments": '{"city": "Oslo"}'}
    return ["a call" if "tool_calls" in message else message for message in found]


def test_the_person_types_the_result(chat, tools):
    code, out, _ = chat(f"{OSLO['content']}\n4 mm\n", "--tools", tools, "--json")
    assert code == 0 and messages(out) == SAID


def test_without_json_stdout_holds_what_the_model_says_as_it_says_it(chat, tools):
    code, out, _ = chat(f"{OSLO['content']}\n4 mm\n", "--tools", tools)
    call, answer = out.splitlines()[0], out.splitlines()[-1]
    assert code == 0 and "<tool_call>" in call and answer == "Yes, 4 mm." and "4 mm" not in call


def test_functions_of_ones_own_are_run(chat, tools, tmp_path):
    mine = tmp_path / "mine.py"
    mine.write_text(
        "def get_weather(city):\n    print('hello')\n    return {'Oslo': '4 mm'}[city]\n",
        encoding="utf-8",
    )
    code, out, _ = chat(OSLO["content"], "--tools", tools, "--exec", mine, "--json")
    assert code == 0 and messages(out) == SAID


def test_a_talk_is_saved_replayed_and_learned_from(chat, tools, tmp_path, tiny_model):
    saved = tmp_path / "talks.jsonl"
    chat(f"{OSLO['content']}\n4 mm\n", "--tools", tools, "--save", saved)
    chat(OSLO["content"], "--tools", tools, "--replay", saved, "--save", saved)
    first, second = map(json.loads, saved.read_text(encoding="utf-8").splitlines())
    assert [m["content"] for m in first["messages"]] == [m["content"] for m in second["messages"]]
    result = agentlite.prep(
        str(saved), run=str(tmp_path / "run"), model=str(tiny_model), protocol="hermes", test=0.0
    )
    assert result.figures["kept"] == 1 and result.figures["duplicates"] == 1


def test_a_result_that_is_not_there_is_an_error_that_names_the_call_and_keeps_the_turns_before(
    chat, tools, tmp_path
):
    saved = tmp_path / "talks.jsonl"
    code, _, err = chat(
        f"{OSLO['content']}\n4 mm\n{OSLO['content']}\n", "--tools", tools, "--save", saved
    )
    kept = json.loads(saved.read_text(encoding="utf-8"))["messages"]
    if code == 0:  # it may answer the second time without a call
        assert len(kept) > len(SAID)
    else:
        assert code == 2 and "where the result of get_weather(" in err and len(kept) == len(SAID)


def test_asides(chat, tools):
    typed = f"/tools\n/undo\n{OSLO['content']}\n4 mm\n/undo\n/prompt\n"
    code, out, err = chat(typed, "--tools", tools, "--json")
    assert code == 0 and json.loads(out)["messages"] == []
    assert "there is nothing to take back" in err and "(taken back)" in err
    assert "<|im_start|>user" in err and OSLO["content"] not in err  # the prompt shows what is left


def test_what_cannot_be_gone_on_from_is_taken_back(chat, tools):
    code, out, err = chat(
        f"<|im_end|>\n{'wet ' * 900}\n{OSLO['content']}\n4 mm\n", "--tools", tools, "--json"
    )
    assert code == 0 and messages(out) == SAID
    assert (
        "<|im_end|>" in err
        and "--max-length is 512" in err
        and err.count("this turn is taken back") == 2
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "is not JSON"),
        ("[]", "holds no tool"),
        ('[{"type": "function"}]', "E212"),
        ("3", "E2"),
        (json.dumps([WEATHER_TOOL] * 2), "two tools named get_weather"),
        ('[{"name": "f", "parameters": {"type": "object", "properties": 3}}]', "E211"),
    ],
)
def test_a_file_that_holds_no_tools(tools, text, told):
    tools.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=told) as caught:
        read_toolbox(str(tools))
    assert caught.value.location == str(tools) and caught.value.fix


def test_tools_are_found_in_a_row_of_data_too(tools):
    row = json.dumps({"messages": [OSLO], "tools": [WEATHER_TOOL]})
    tools.write_text(f"{row}\n{row}\n", encoding="utf-8")
    assert [tool.name for tool in read_toolbox(str(tools))] == ["get_weather"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("body", "result"),
    [
        ("return 'wet'", "wet"),
        ("return {'mm': 4}", '{"mm": 4}'),
        ("return None", "null"),
        ("raise OSError('no rain gauge')", "raised OSError: no rain gauge"),
        ("import os; os._exit(3)", "exit code 3"),
        ("import time; time.sleep(60)", "took longer than 0.5 s"),
    ],
)
def test_whatever_a_function_does_is_a_result(tmp_path, body, result):
    mine = tmp_path / "mine.py"
    mine.write_text(f"def get_weather(city):\n    {body}\n", encoding="utf-8")
    tool = read_tool()
    with executed(str(mine), [tool], 0.5) as observe:
        assert result in observe(CALL)
        assert result in observe(CALL)  # a child that was lost is replaced
        assert "no tool get_time" in observe(Call("get_time"))


def test_a_file_without_the_function_is_told_before_the_model_is_loaded(chat, tools, tmp_path):
    mine = tmp_path / "mine.py"
    mine.write_text("def weather(city): ...\n", encoding="utf-8")
    code, _, err = chat("", "--tools", tools, "--exec", mine)
    assert code == 2 and "get_weather" in err and "loading" not in err


def test_recorded_results_come_in_their_order(tmp_path):
    def dialog(result: str) -> str:
        call = {
            "id": "a",
            "type": "function",
            "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'},
        }
        said = [
            OSLO,
            {"role": "assistant", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "a", "content": result},
            {"role": "assistant", "content": "Well."},
        ]
        return json.dumps({"messages": said, "tools": [WEATHER_TOOL]})

    path = tmp_path / "dialogs.jsonl"
    path.write_text(f"{dialog('dry')}\n{dialog('wet')}\n", encoding="utf-8")
    result = recorded(str(path))
    assert [result(CALL) for _ in range(3)] == ["dry", "wet", "wet"]
    assert result(Call("get_weather", {"city": "Lima"})) is None


def read_tool() -> Any:
    from agentlite.data.formats.tool_calls import read_tools

    return read_tools([WEATHER_TOOL])[0]
