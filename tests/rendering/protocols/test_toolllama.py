"""agentlite.rendering.protocols.toolllama: every task ends with a call of Finish."""

import json

from support.samples import WEATHER

from agentlite.core.records import Message, Tool
from agentlite.rendering import PROTOCOLS

TOOLLLAMA = PROTOCOLS["toolllama"]


def finish(**arguments: str) -> str:
    return f"Thought: I give up.\nAction: Finish\nAction Input: {json.dumps(arguments)}"


def test_finish_is_offered_once_also_where_a_record_has_one() -> None:
    for tools in ((WEATHER,), (WEATHER, Tool("Finish", "Ends it."))):
        text = TOOLLLAMA.system(tools)
        assert text.count('"name": "Finish"') == 1
        assert ("Ends it." in text) == (len(tools) == 2)
    assert TOOLLLAMA.system(()) == ""


def test_an_answer_is_written_without_blanks_around_it_and_read_again() -> None:
    text = TOOLLLAMA.write(Message("assistant", " Yes. \n"), (WEATHER,))
    assert json.loads(text.partition("Action Input: ")[2])["final_answer"] == "Yes."
    read = TOOLLLAMA.read(text, (WEATHER,))
    assert (read.content, read.calls, read.problem) == ("Yes.", (), "")


def test_a_task_that_is_given_up_has_its_thought_as_words() -> None:
    read = TOOLLLAMA.read(finish(return_type="give_up_and_restart"), (WEATHER,))
    assert (read.content, read.calls, read.problem) == ("I give up.", (), "")
    own = TOOLLLAMA.read(finish(return_type="give_answer"), (WEATHER, Tool("Finish")))
    assert [call.name for call in own.calls] == ["Finish"]
