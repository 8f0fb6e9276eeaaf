"""Where a request belongs among the dialogs that are stored, and what is stored of an answer."""

import json
from pathlib import Path
from typing import Any

import pytest

from agentlite.core.row_files import read_rows
from agentlite.data.openai_messages import Opened, Turn, opened
from agentlite.deploy import saved_dialogs
from agentlite.deploy.completion_jobs import ServeJob, chat_job
from agentlite.deploy.openai_api import CompletionBody, response
from agentlite.deploy.saved_dialogs import SERVED, SavedDialogs, ServedPlace, trajectories
from agentlite.rendering import choose
from agentlite.rendering.template import Template

ABOUT = CompletionBody("id", 0, "sft")
USER = {"role": "user", "content": "Buy a fig."}
MORE = {"role": "user", "content": "More."}
BUY = {
    "type": "function",
    "function": {"name": "buy", "description": "", "parameters": {"type": "object"}},
}


class Model:
    """Reads dialogs; what it says the test says."""

    name, max_length, max_new_tokens = "sft", 2000, 60

    def __init__(self, template: Template):
        self.template = template
        (self.protocol,) = choose("hermes", template).protocols.values()

    def opened(self, messages: Any, tools: Any) -> Opened:
        return opened(messages, tools, self.protocol, self.template)

    def least_tokens(self, messages: Any, tools: Any) -> int:
        return 0


class Client:
    """Asks a model, and keeps what was answered."""

    def __init__(self, model: Model, saved: SavedDialogs):
        self.model, self.saved = model, saved

    def place(self, *messages: dict[str, Any], most: int = 2000, **fields: Any) -> ServedPlace:
        return self.request(*messages, most=most, **fields)[1]

    def request(
        self, *messages: dict[str, Any], most: int = 2000, **fields: Any
    ) -> tuple[ServeJob, ServedPlace]:
        body = json.dumps({"messages": messages, **fields}).encode()
        return self.saved.continued(chat_job(body, self.model), most)  # type: ignore[arg-type]

    def say(
        self, text: str, *messages: dict[str, Any], ids: Any = None, **fields: Any
    ) -> dict[str, Any]:
        """The answer as a client gets it. `ids`: as they were sampled; else as they are encoded."""
        job, place = self.request(*messages, **fields)
        template = self.model.template
        if ids is None:
            ids = (*template.encode(text), template.token_id(template.turn_end))
        parsed = self.model.protocol.read(text, job.prompts[0].record.tools)
        count = len(job.prompts[0].ids)
        turn = Turn(text, "turn", parsed, count, len(ids), tuple(ids), (-1.0,) * len(ids))
        self.saved.save(place, job, turn)
        made = response(ABOUT, job.request, [turn])  # type: ignore[arg-type]
        return dict(made["choices"][0]["message"])


@pytest.fixture
def client(tmp_path: Path, smollm2: Template) -> Any:
    with SavedDialogs(tmp_path, smollm2) as saved:
        yield Client(Model(smollm2), saved)


def test_clients_that_have_heard_the_same_go_on_with_dialogs_of_their_own(client: Client) -> None:
    for _ in range(3):
        same = client.say("Which one?", USER)
    asked = [client.place(USER, same, MORE).after for _ in range(3)]  # none is answered yet
    assert sorted(one.key.sample for one in asked if one) == [0, 1, 2]


def test_a_dialog_that_has_not_gone_on_goes_before_one_that_has(client: Client) -> None:
    for _ in range(2):
        same = client.say("Which one?", USER)
    client.say("A fig.", USER, same, MORE)
    asked = [client.place(USER, same, MORE).after for _ in range(3)]  # by clients that hung up
    assert [(one.key.sample, one.continued) for one in asked if one] == [(1, False)] * 3


def letters(template: Template, text: str) -> list[int]:
    """Other tokens of the same text: one for each letter, and the end."""
    ids = [token for letter in text for token in template.encode(letter)]
    assert template.decode(ids) == text and len(ids) > len(template.encode(text))
    return [*ids, template.token_id(template.turn_end)]


@pytest.mark.parametrize("room", [0, 1])
def test_tokens_as_they_were_sampled_are_read_again_where_they_fit(
    room: int, client: Client, smollm2: Template
) -> None:
    said = client.say("Which one?", USER, ids=letters(smollm2, "Which one?"))
    encoded = client.model.opened([USER, said, MORE], []).ids
    sampled = client.place(USER, said, MORE).opened.ids
    assert len(sampled) > len(encoded)
    place = client.place(USER, said, MORE, most=len(sampled) + room)
    if room:  # for one token of an answer
        assert (place.opened.ids, place.opens) == (sampled, False)
        assert [*sampled[: -len(place.new)], *place.new] == sampled
    else:
        assert (place.opened.ids, place.new, place.opens) == (encoded, tuple(encoded), True)


def test_of_too_many_dialogs_the_oldest_is_read_as_it_is_encoded(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saved_dialogs, "MOST_SEEN", 2)
    questions = [{"role": "user", "content": f"Question {number}."} for number in range(3)]
    answers = [client.say("Which one?", question) for question in questions]
    opens = [
        client.place(question, answer, MORE).opens
        for question, answer in zip(questions, answers, strict=True)
    ]
    assert opens == [True, False, False]


def test_the_same_question_with_other_tools_is_another_task(client: Client, tmp_path: Path) -> None:
    for tools in ({}, {"tools": [BUY]}, {}):
        client.say("Which one?", USER, **tools)
    first, with_tools, again = trajectories(tmp_path)
    assert first.task == again.task != with_tools.task
    assert [one.sample for one in (first, with_tools, again)] == [0, 0, 1]


def test_tools_are_stored_where_they_change_also_behind_a_restart(
    tmp_path: Path, smollm2: Template
) -> None:
    messages: list[dict[str, Any]] = [USER]
    for _ in range(4):
        with SavedDialogs(tmp_path, smollm2) as saved:
            client = Client(Model(smollm2), saved)
            messages += [client.say("Which one?", *messages, tools=[BUY]), MORE]
    assert [row["tools"] for row in read_rows(tmp_path / SERVED)] == [[BUY], None, None, None]
    (one,) = trajectories(tmp_path)
    assert one.tools == [BUY] and [turn.offered for turn in one.turns] == [None] * 4


def test_a_turn_that_has_no_tokens_of_its_own_has_no_prompt_of_tokens(
    client: Client, tmp_path: Path
) -> None:
    """As an answer that was made to fit: what was sampled is not all of it."""
    first = client.say("Which one?", USER, ids=())
    client.say("A fig.", USER, first, MORE)
    (one,) = trajectories(tmp_path)
    formed, free = one.turns
    assert (formed.prompt_ids, formed.ids) == ((), ())
    assert free.opens and free.prompt_ids and free.ids


def test_a_call_that_cannot_be_read_is_stored_with_the_reason(
    client: Client, tmp_path: Path
) -> None:
    client.say("<tool_call>\n{no JSON\n</tool_call>", USER, tools=[BUY])
    client.say("Which one?", USER, tools=[BUY])
    broken, whole = (one.turns[0].problem for one in trajectories(tmp_path))
    assert broken and not whole
