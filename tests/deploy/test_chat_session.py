"""One turn of a person's and all that follows, with a model that says what the test wants."""

import json
from types import SimpleNamespace
from typing import Any

import pytest
from support.samples import WEATHER_TOOL

from agentlite.core.errors import RowError, UserError
from agentlite.core.records import Call, Parsed, Tool
from agentlite.data.formats import openai, own_rows
from agentlite.data.openai_messages import Turn
from agentlite.deploy.chat_session import ChatSession, read_toolbox
from agentlite.engine.decoding import Decoding
from agentlite.rendering.foreign_text import check_trained

GREEDY = Decoding(8)
TOOL = Tool("get_weather")


def words(text: str, ended: Any = "turn") -> Turn:
    return Turn(text, ended, Parsed(text), 5, 3)


def calls(*names: str, thought: str = "", ended: Any = "turn", problem: str = "") -> Turn:
    made = tuple(Call(name, {"n": n}, "of the model") for n, name in enumerate(names))
    return Turn("<raw>", ended, Parsed(thought, made, problem), 5, 3)


class Model:
    """Says `turns` in order; the last one again."""

    system: list[dict[str, str]] = []  # noqa: RUF012  (replaced, never changed)

    def __init__(self, *turns: Turn | BaseException, max_length: int = 100):
        self.turns, self.dialogs, self.max_length = list(turns), list[list[Any]](), max_length
        self.template = SimpleNamespace(decode=lambda ids: f"{len(ids)} tokens")

    def open_dialog(self, messages: list[Any], tools: list[Any]) -> Any:
        self.dialogs.append([dict(message) for message in messages])
        return SimpleNamespace(ids=[0] * len(messages))

    def with_system(self, messages: list[Any]) -> list[Any]:
        return messages and [*self.system, *messages]

    def answer(self, dialog: Any, decoding: Decoding, listener: Any) -> Turn:
        turn = self.turns.pop(0) if len(self.turns) > 1 else self.turns[0]
        if isinstance(turn, BaseException):
            raise turn
        assert listener(turn.text) is True
        return turn


def session(model: Model, observe: Any = lambda call: f"result of {call.name}") -> Any:
    made: Any = ChatSession(model, [TOOL], observe, lambda text: None, lambda text: None)  # type: ignore[arg-type]
    made.spoken, made.notes = [], []
    made.tell, made.note = made.spoken.append, made.notes.append
    return made


def roles(made: Any) -> list[str]:
    return [message["role"] for message in made.messages]


def test_an_answer_in_words_ends_the_turn():
    made = session(Model(words("Hello.")))
    made.say("Hi", GREEDY)
    assert made.messages == [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello."},
    ]
    assert made.spoken == ["Hello.", "\n"] and made.notes == []
    assert made.row == {"messages": made.messages, "tools": [TOOL.schema]}


def test_calls_get_results_under_ids_that_are_counted_on():
    model = Model(calls("f", "g", thought="I look."), calls("f"), words("Done."))
    made = session(model)
    made.say("Hi", GREEDY)
    made.say("Again", GREEDY)
    assert roles(made)[:7] == [
        "user",
        "assistant",
        "tool",
        "tool",
        "assistant",
        "tool",
        "assistant",
    ]
    first, second = made.messages[1], made.messages[4]
    assert (first["content"], second["content"]) == ("I look.", None)
    assert [call["id"] for call in first["tool_calls"]] == ["call00000", "call00001"]
    assert [call["id"] for call in second["tool_calls"]] == ["call00002"]
    assert first["tool_calls"][1]["function"] == {"name": "g", "arguments": '{"n": 1}'}
    results = [message for message in made.messages if message["role"] == "tool"]
    assert [message["tool_call_id"] for message in results] == [f"call0000{n}" for n in range(3)]
    assert results[1]["content"] == "result of g"
    assert [len(dialog) for dialog in model.dialogs] == [1, 4, 6, 8]


@pytest.mark.parametrize(
    ("model", "note"),
    [
        (Model(words(" \n")), "the model says nothing; this turn is taken back"),
        (Model(KeyboardInterrupt()), "stopped; this turn is taken back"),
        (Model(RowError("E1", "odd")), "odd; this turn is taken back"),
        (
            Model(words("a"), max_length=1),
            "the dialog has 1 tokens, --max-length is 1; this turn is taken back",
        ),
    ],
)
def test_what_cannot_be_gone_on_from_is_taken_back_and_noted(model, note):
    made = session(model)
    made.say("Hi", GREEDY)
    assert made.messages == [] and made.notes == [note]


RESULT = "<tool_response>\n4 mm\n</tool_response>\nYes, 4 mm."
BUY, FIND = (
    Tool(name, "", {"type": "object", "properties": {"n": {"type": kind}}})
    for name, kind in (("buy", "integer"), ("find", "string"))
)


@pytest.mark.parametrize(
    ("turn", "result", "learned"),
    [
        (words("Yes."), "", True),
        (words("Yes.", "stop"), "", True),
        (words(RESULT), "", False),
        (words("Action: get_weather\nAction Input: {}\nObservation: 4 mm"), "", False),
        (words("half", "cut"), "", False),
        (calls("buy", problem="no JSON"), "", False),
        (calls("buy", ended="cut"), "", False),
        (calls("buy"), "4 mm", True),
        (calls("buy"), "Error: closed", False),
        (calls("buy", "buy"), '{"error": "closed"}', False),
        (calls("buy", thought=RESULT), "4 mm", False),
        (calls("find"), "4 mm", False),  # n is a number
    ],
)
def test_a_turn_is_kept_and_not_learned_as_of_a_rollout(turn, result, learned):
    made = ChatSession(  # type: ignore[arg-type]
        Model(turn, words("Then.")),
        [TOOL, BUY, FIND],
        lambda call: result,
        lambda text: None,
        print,
    )
    made.say("Wet?", GREEDY)
    made.chat_model.turns = [words("Fine.")]
    made.say("Well?", GREEDY)
    answers = [one for one in made.row["messages"] if one["role"] == "assistant"]
    marks = [one.get("loss", True) for one in answers]
    assert marks == [learned, *[True] * (len(marks) - 1)]

    # a rollout of the same turns is learned alike, and nothing that is learned holds a result
    turns = [{"ended": turn.ended, "problem": turn.parsed.problem}, *[{"ended": "turn"}] * 2]
    turns = turns[: len(marks)]
    turns[0]["results"] = [[result, result != "4 mm"]] if turn.parsed.calls and result else []
    rollout = {"task": "t", "sample": 0, "ended": "user", "scores": {}, "turns": turns}
    plain = [{k: v for k, v in one.items() if k != "loss"} for one in made.row["messages"]]
    of_rollout = own_rows.read_trajectory({**rollout, "messages": plain, "tools": made.tools})
    saved = openai.read(made.row)
    assert [one.loss for one in saved.messages] == [one.loss for one in of_rollout.messages]
    check_trained(saved)


def test_a_saved_dialog_begins_with_the_system_turn_that_the_model_was_shown() -> None:
    made = session(Model(words("Yes.")))
    made.chat_model.system = [{"role": "system", "content": "Be brief."}]
    assert made.row["messages"] == []
    made.say("Wet?", GREEDY)
    assert [message["role"] for message in made.row["messages"]] == ["system", "user", "assistant"]
    assert roles(made) == ["user", "assistant"]


@pytest.mark.parametrize(
    "text",
    [
        json.dumps([WEATHER_TOOL]),
        json.dumps({"tools": [WEATHER_TOOL]}),
    ],
)
def test_tools_are_a_list_or_in_an_object(tmp_path, text):
    (tmp_path / "tools.json").write_text(text, encoding="utf-8")
    [tool] = read_toolbox(str(tmp_path / "tools.json"))
    assert tool.name == WEATHER_TOOL["function"]["name"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xff", "not UTF-8: byte ff"),
        (b"{", "cannot be read"),
        (b"[" * 100_000, "cannot be read"),
        (b"[]", "holds no tool"),
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
    with pytest.raises(UserError, match="No such file"):
        read_toolbox(str(tmp_path / "none.json"))
