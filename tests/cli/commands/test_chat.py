"""chat: a dialog with calls and their results, from a pipe; by hand, or by functions of
one's own.
"""

import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from support.samples import OSLO, WEATHER_TOOL

import agentlite
from agentlite.cli.main import main

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
        words = ["agentlite", "chat", "sft", "--run", caller, "--max-length", "512", *options]
        monkeypatch.setattr(sys, "argv", [str(word) for word in words])
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
    code, out, _ = chat(OSLO["content"], "--tools", tools, "--json")  # no result
    assert code == 2 and json.loads(out)["error"]["location"] == "stdin"


def test_functions_of_ones_own_are_run(chat, tools, tmp_path):
    mine = tmp_path / "mine.py"
    mine.write_text(
        "def get_weather(city):\n    print('hello')\n    return {'Oslo': '4 mm'}[city]\n",
        encoding="utf-8",
    )
    code, out, _ = chat(OSLO["content"], "--tools", tools, "--exec", mine, "--json")
    assert code == 0 and messages(out) == SAID


def test_a_talk_is_saved_and_learned_from(chat, tools, tmp_path, tiny_model):
    saved = tmp_path / "talks.jsonl"
    chat(f"{OSLO['content']}\n4 mm\n", "--tools", tools, "--save", saved)
    saved.write_bytes(saved.read_bytes().rstrip())  # as an editor may leave it
    chat(f"{OSLO['content']}\n4 mm\n", "--tools", tools, "--save", saved)
    first, second = map(json.loads, saved.read_text(encoding="utf-8").splitlines())
    assert [m["content"] for m in first["messages"]] == [m["content"] for m in second["messages"]]
    reader, writer = os.pipe()
    code, *_ = chat(f"{OSLO['content']}\n4 mm\n", "--tools", tools, "--save", f"/dev/fd/{writer}")
    assert code == 0 and json.loads(os.read(reader, 10_000))["messages"][0] == first["messages"][0]
    result = agentlite.prep(
        str(saved), run=str(tmp_path / "run"), model=str(tiny_model), protocol="hermes", test=0.0
    )
    assert result.figures["kept"] == 1 and result.figures["duplicates"] == 1


def test_a_file_that_does_not_fit_is_told_before_the_model_is_loaded(chat, tools, tmp_path):
    mine = tmp_path / "mine.py"
    mine.write_text("def weather(city): ...\n", encoding="utf-8")
    code, _, err = chat("", "--tools", tools, "--exec", mine)
    assert code == 2 and "get_weather" in err and "loading" not in err
    for save, problem in (
        (tmp_path, "is a folder"),
        (tmp_path / "no" / "talks.jsonl", "not there"),
    ):
        code, _, err = chat("", "--save", save)
        assert code == 2 and problem in err and "loading" not in err
