"""scripts/bench/few_shot.py: prep takes what it writes, and the gold stays with its turn."""

import json
from pathlib import Path
from typing import Any

import few_shot

import agentlite


def record(tool: str, words: str, system: str = "") -> dict[str, Any]:
    call = {"name": tool, "arguments": json.dumps({"city": "Oslo"})}
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    function = {"name": tool, "description": words, "parameters": schema}
    messages = [
        *([{"role": "system", "content": system}] if system else []),
        {"role": "user", "content": words},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "call_0", "type": "function", "function": call}],
        },
    ]
    gold = {str(len(messages) - 1): {"calls": [{"name": tool, "arguments": {"city": ["Oslo"]}}]}}
    texts = {"tools": json.dumps([{"type": "function", "function": function}]), "meta": "{}"}
    return {"messages": messages, "gold": json.dumps(gold), "split": "dev", **texts}


def test_the_nearest_solved_questions_stand_before_the_row(tmp_path: Path) -> None:
    learned = [
        record("get_rain", "How much rain falls in Oslo"),
        record("get_snow", "How much snow falls in Oslo"),
        record("get_time", "What time is it in Oslo"),
        record("get_hail", "How much hail falls in Oslo", system="Be brief."),
        record("get_fog", "How much fog is there in Oslo"),
    ]
    given = record("get_fog", "How much snow and rain and fog falls in Oslo", system="Be kind.")
    [found] = few_shot.with_shown([given], learned)
    said = [message["content"] for message in found["messages"] if message["role"] == "user"]
    assert {*said[:2]} == {few_shot.question(learned[0]), few_shot.question(learned[1])}
    assert found["messages"][0]["content"] == "Be kind." and said[2] == few_shot.question(given)
    assert [*json.loads(found["gold"])] == [str(len(found["messages"]) - 1)]
    (tmp_path / "rows.jsonl").write_text(json.dumps(found) + "\n", encoding="utf-8")
    done = agentlite.prep(
        str(tmp_path / "rows.jsonl"), run=str(tmp_path), model="smollm2-135m", dev=1, test=0
    )
    assert done.figures["dev"] == 1, done.figures
