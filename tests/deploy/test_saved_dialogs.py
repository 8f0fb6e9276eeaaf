"""`serve --save`: an agent that only speaks OpenAI's API leaves trajectories behind."""

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.listening import listen
from support.processes import start
from support.shop import call

import agentlite
from agentlite.cli.commands.serve import _saving
from agentlite.core.errors import UserError
from agentlite.core.records import Record
from agentlite.core.row_files import read_rows
from agentlite.data.formats import to_record
from agentlite.data.openai_messages import Opened, Turn, opened
from agentlite.deploy.chat_model import ChatModel
from agentlite.deploy.http_server import Server
from agentlite.deploy.saved_dialogs import SERVED, SavedDialogs, trajectories
from agentlite.engine.decoding import Decoding
from agentlite.environments.trajectories import Trajectory, finished_rollout, read_trajectories
from agentlite.rendering import choose, encode_answer, training_rows
from agentlite.rendering.encoding import IGNORED

PATH = "/v1/chat/completions"
BUY = {
    "type": "function",
    "function": {
        "name": "buy",
        "description": "Buys.",
        "parameters": {"type": "object", "properties": {"item": {"type": "string"}}},
    },
}
FIG, PEAR = call("buy", item="fig"), call("buy", item="pear")
USER = {"role": "user", "content": "Buy a fig."}


class Speaker:
    """A model in whose place the test speaks: `say` is given the dialog and the decoding."""

    name, max_length, max_new_tokens = "smollm2-135m", 2000, 60
    source = SimpleNamespace(digest="0" * 64)

    def __init__(self, template: Any, say: Callable[..., str]):
        self.template, self.say = template, say
        (self.protocol,) = choose("hermes", template).protocols.values()
        self.read: list[list[int]] = []

    def opened(self, messages: Any, tools: Any) -> Any:
        return opened(messages, tools, self.protocol, self.template)

    def least_tokens(self, messages: Any, tools: Any) -> int:
        return 0

    def opened_text(self, text: str) -> Any:
        return Opened(Record(messages=()), [1])

    def answer(self, dialog: Any, decoding: Any, listener: Any, form: Any) -> Turn:
        text = self.say(dialog.record.messages[:-1], decoding)
        self.read.append(dialog.ids)
        ids = tuple(encode_answer(text, "turn", self.template, dialog.ids))
        listener(text)
        likely = tuple(-0.5 for _ in ids)
        parsed = self.protocol.read(text, dialog.record.tools)
        return Turn(text, "turn", parsed, len(dialog.ids), len(ids), ids, likely)


@contextmanager
def serving(folder: Path, speaker: Speaker) -> Iterator[Server]:
    with SavedDialogs(folder, speaker.template) as saved, served(speaker, saved) as made:
        yield made


@contextmanager
def served(speaker: Any, saved: SavedDialogs | None) -> Iterator[Server]:
    with Server(speaker, 0, saved=saved) as made:
        thread = listen(made)
        try:
            yield made
        finally:
            made.shutdown()
            thread.join()


def ask(server: Server, messages: Any, **fields: Any) -> list[dict[str, Any]]:
    """The messages of all choices, streamed or not."""
    connection = http.client.HTTPConnection(*server.server_address[:2], timeout=60)
    body = {"messages": messages, "tools": [BUY], "temperature": 0.7, "seed": 3} | fields
    connection.request("POST", PATH, json.dumps(body))
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    assert answer.status == 200, content
    if not fields.get("stream"):
        return [choice["message"] for choice in json.loads(content)["choices"]]
    return streamed(content.decode())


def streamed(content: str) -> list[dict[str, Any]]:
    found: dict[int, dict[str, Any]] = {}
    for line in content.split("\n\n"):
        if not line.startswith("data: {"):
            continue
        for choice in json.loads(line.removeprefix("data: "))["choices"]:
            message = found.setdefault(choice["index"], {"role": "assistant", "content": ""})
            delta = choice["delta"]
            message["content"] += delta.get("content") or ""
            for piece in delta.get("tool_calls", ()):
                calls = message.setdefault("tool_calls", [])
                if "id" in piece:
                    calls.append({"id": piece["id"], "type": "function", "function": {}})
                for key, text in piece["function"].items():
                    function = calls[piece["index"]]["function"]
                    function[key] = function.get(key, "") + text
    return [found[index] for index in sorted(found)]


def act(server: Server, first: dict[str, Any] = USER, **fields: Any) -> list[dict[str, Any]]:
    """An agent: it carries out calls until there are words."""
    messages = [first]
    while True:
        (answer,) = ask(server, messages, **fields)
        messages.append(answer)
        if not answer.get("tool_calls"):
            return messages
        for one in answer["tool_calls"]:
            item = json.loads(one["function"]["arguments"])["item"]
            result = f"1 {item}" if item == "fig" else f"Error: no {item}"
            messages.append({"role": "tool", "tool_call_id": one["id"], "content": result})


def steps(*texts: str) -> Callable[..., str]:
    """Says these one after the other, by the place in the dialog."""

    def say(messages: Any, decoding: Any) -> str:
        return texts[sum(message.role == "assistant" for message in messages)]

    return say


def saved(folder: Path) -> list[Trajectory]:
    return list(trajectories(folder))


@pytest.mark.parametrize("stream", [False, True])
def test_an_agent_leaves_its_trajectory(tmp_path, smollm2, stream):
    speaker = Speaker(smollm2, steps(PEAR, f"{FIG}\n{PEAR}", "Here is a fig."))
    with serving(tmp_path, speaker) as server:
        spoken = act(server, stream=stream, top_p=0.9)
    (one,) = saved(tmp_path)
    plain = [(message["role"], message["content"] or "") for message in spoken]
    assert [(message["role"], message["content"] or "") for message in one.messages] == plain
    assert [turn.text for turn in one.turns] == [PEAR, f"{FIG}\n{PEAR}", "Here is a fig."]
    assert [turn.results for turn in one.turns] == [
        (("Error: no pear", True),),
        (("1 fig", False), ("Error: no pear", True)),
        (),
    ]
    assert one.tools == [BUY] and one.ended == "user" and one.scores == {}
    assert (one.calls, one.failed_calls) == (3, 2)
    for turn in one.turns:
        assert (turn.temperature, turn.top_p) == (0.7, 0.9)
        assert len(turn.ids) == len(turn.log_probabilities) == turn.new_tokens
    # the ids are those that were read and sampled, and no token is in two turns
    assert [turn.opens for turn in one.turns] == [True, False, False]
    (row,) = one.token_rows()
    whole, read = [*row.prompt, *row.ids], speaker.read[-1]
    assert whole[: len(read)] == read and whole[len(read) :] == [*one.turns[-1].ids]
    ids = [sent["id"] for message in one.messages for sent in message.get("tool_calls", ())]
    answered = [message["tool_call_id"] for message in one.messages if message["role"] == "tool"]
    assert ids == answered and len({*ids}) == 3


SAID = st.sampled_from([FIG, PEAR, f"{FIG}\n{PEAR}", "Well, which one?", "No — none… 🍐"])


@pytest.mark.long
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(SAID, min_size=1, max_size=4))
def test_ids_and_mask_are_those_that_prep_makes_of_the_dialog(tmp_path_factory, smollm2, texts):
    folder = tmp_path_factory.mktemp("saved")
    speaker = Speaker(smollm2, steps(*texts))
    messages: list[dict[str, Any]] = [USER]
    with serving(folder, speaker) as server:
        for _ in texts:
            (answer,) = ask(server, messages)
            messages.append(answer)
            calls = answer.get("tool_calls", ())
            for one in calls:
                messages.append({"role": "tool", "tool_call_id": one["id"], "content": "1"})
            if not calls:
                messages.append({"role": "user", "content": "And now?"})
    (one,) = saved(folder)
    assert len(one.turns) == len(texts)
    record = to_record({"messages": one.messages, "tools": one.tools}, "openai", split=False)
    trained = [
        said(row.input_ids, [int(label != IGNORED) for label in row.labels], smollm2)
        for row in training_rows(record, speaker.protocol, smollm2)
    ]
    sampled = [
        said([*row.prompt, *row.ids], [0] * len(row.prompt) + row.mask, smollm2)
        for row in one.token_rows()
    ]
    assert [turn for row in sampled for turn in row] == [turn for row in trained for turn in row]


def said(ids: Any, mask: Any, template: Any) -> list[tuple[str, Any]]:
    """What was read before each turn, and the ids of the turn."""
    edges = [n for n, pair in enumerate(pairwise([0, *mask, 0])) if pair[0] != pair[1]]
    return [
        (template.decode(ids[:start]), [*ids[start:end]])
        for start, end in zip(edges[::2], edges[1::2], strict=True)
    ]


def test_several_answers_and_retries_are_rollouts_of_one_task_and_branches_their_own(
    tmp_path, smollm2
):
    def say(messages, decoding):
        return f"Answer {decoding.seed}."

    with serving(tmp_path, Speaker(smollm2, say)) as server:
        both = ask(server, [USER], n=2, seed=5)
        ask(server, [USER], seed=9)
        again = {"role": "user", "content": "Again."}
        (second,) = ask(server, [USER, both[0], again], seed=1)
        ask(server, [USER, both[0], again], seed=2)  # a branch: the same turn is continued again
        ask(server, [USER, both[0], again, second, again], seed=3)
        ask(server, [USER, {"role": "assistant", "content": "Not ours."}, again], seed=4)
    made = saved(tmp_path)
    texts = [[turn.text.strip("Answer .") for turn in one.turns] for one in made]
    assert texts == [["5", "1", "3"], ["6"], ["9"], ["5", "2"], ["4"]]
    assert len({one.task for one in made[:4]}) == 1 and made[4].task != made[0].task
    assert [one.sample for one in made] == [0, 1, 2, 3, 0]
    assert [len({turn.sample for turn in one.turns}) for one in made] == [1] * 5
    assert [[turn.turn for turn in one.turns] for one in made][3] == [0, 1]
    assert made[3].messages[:3] == made[0].messages[:3]
    assert [turn.opens for turn in made[3].turns] == [True, False]


def test_many_clients_at_once_are_kept_apart(tmp_path, smollm2):
    def say(messages, decoding):
        first = messages[0].content
        turns = sum(message.role == "assistant" for message in messages)
        return f"{FIG}" if turns < 2 else f"Done with {first}"

    firsts = [{"role": "user", "content": f"Task {n % 5}."} for n in range(10)]
    with serving(tmp_path, Speaker(smollm2, say)) as server, ThreadPoolExecutor(10) as pool:
        list(pool.map(lambda first: act(server, first, stream=first is firsts[0]), firsts))
    made = saved(tmp_path)
    assert len(made) == 10 and all(len(one.turns) == 3 for one in made)
    for one in made:
        asked = one.messages[0]["content"]
        assert one.turns[-1].text == f"Done with {asked}"
        assert [turn.results for turn in one.turns] == [(("1 fig", False),)] * 2 + [()]
    assert sorted((one.messages[0]["content"], one.sample) for one in made) == [
        (f"Task {n}.", sample) for n in range(5) for sample in range(2)
    ]


def test_what_was_answered_is_on_the_disk_before_its_client_has_it_and_goes_on_after_a_kill(
    tmp_path, smollm2
):
    speaker = Speaker(smollm2, steps(FIG, PEAR, "None."))
    with serving(tmp_path, speaker) as server:
        (first,) = ask(server, [USER])
        # nobody has closed the file: this is what a kill would leave
        (row,) = read_rows(tmp_path / SERVED)
        assert row["answered"]["text"] == FIG
        left = (tmp_path / SERVED).read_bytes()
    (tmp_path / SERVED).write_bytes(left + b'{"answered": {"task": "x", "sam')  # torn
    result = {"role": "tool", "tool_call_id": first["tool_calls"][0]["id"], "content": "1"}
    with serving(tmp_path, speaker) as server:
        (second,) = ask(server, [USER, first, result])
        ask(server, [USER])
    one, other = saved(tmp_path)
    assert [turn.text for turn in one.turns] == [FIG, PEAR] and one.ended == "left"
    # the ids of the first turn are not known any more: a new row of tokens begins
    assert [turn.opens for turn in one.turns] == [True, True]
    assert (other.task, other.sample) == (one.task, 1) and second["tool_calls"]


def test_a_turn_that_goes_on_once_before_and_once_after_a_restart_is_in_two_trajectories(
    tmp_path, smollm2
):
    def say(messages, decoding):
        return f"Answer {decoding.seed}."

    more = {"role": "user", "content": "More."}
    with serving(tmp_path, Speaker(smollm2, say)) as server:
        (first,) = ask(server, [USER], seed=1)
        (second,) = ask(server, [USER, first, more], seed=2)
    with serving(tmp_path, Speaker(smollm2, say)) as server:
        ask(server, [USER, first, more], seed=3)
        ask(server, [USER, first, more, second, more], seed=4)
    texts = [[turn.text.strip("Answer .") for turn in one.turns] for one in saved(tmp_path)]
    assert texts == [["1", "2", "4"], ["1", "3"]]


def test_a_history_that_is_not_as_it_was_begins_a_dialog_and_other_ids_of_calls_do_not(
    tmp_path, smollm2
):
    with serving(tmp_path, Speaker(smollm2, steps(FIG, "Done."))) as server:
        (first,) = ask(server, [USER])

        def answered(name: str, text: str) -> list[dict[str, Any]]:
            sent = first["tool_calls"][0] | {"id": name}
            sent["function"] = sent["function"] | {"arguments": json.dumps({"item": text})}
            echo = first | {"tool_calls": [sent], "content": "", "refusal": None}
            return [USER, echo, {"role": "tool", "tool_call_id": name, "content": "1"}]

        ask(server, answered("other1234", "fig"))
        ask(server, answered("other1234", "melon"))
    one, other = saved(tmp_path)
    assert len(one.turns) == 2 and len(other.turns) == 1
    assert [m.get("tool_call_id") for m in one.messages] == [None, None, "other1234", None]


@pytest.mark.parametrize("stream", [False, True])
def test_the_answer_to_a_client_that_hung_up_is_not_saved(tmp_path, smollm2, stream):
    asked, left = threading.Event(), threading.Event()

    def say(messages, decoding):
        asked.set()
        assert left.wait(60)
        return "Half of an"

    with serving(tmp_path, Speaker(smollm2, say)) as server:
        connection = http.client.HTTPConnection(*server.server_address[:2], timeout=60)
        body = {"messages": [USER], "stream": stream}
        connection.request("POST", PATH, json.dumps(body))
        assert asked.wait(60)
        connection.close()  # in the middle of its answer
        left.set()
        ask(server, [{"role": "user", "content": "Buy a pear."}])
    assert [one.messages[0]["content"] for one in saved(tmp_path)] == ["Buy a pear."]


def test_plain_texts_are_not_stored(tmp_path, smollm2):
    with serving(tmp_path, Speaker(smollm2, steps("x"))) as server:
        connection = http.client.HTTPConnection(*server.server_address[:2], timeout=60)
        connection.request("POST", "/v1/completions", json.dumps({"prompt": "a"}))
        assert connection.getresponse().status == 200
        connection.close()
    assert saved(tmp_path) == []


@pytest.mark.long
def test_the_folder_is_that_of_a_rollout_which_prep_and_pairs_read(tmp_path, smollm2):
    (tmp_path / "own.py").write_text(
        "def fast(attempt):\n    return 1 / (1 + len(attempt.trace))\n", encoding="utf-8"
    )
    speaker, run = Speaker(smollm2, steps(PEAR, FIG, "Here is a fig.")), str(tmp_path / "run")
    for texts in ((PEAR, FIG, "Here is a fig."), (FIG, "Here.")):
        speaker.say = steps(*texts)
        # the second server goes on in the folder that the first one has finished
        with _saving("agent", speaker, Path(run)) as saved_dialogs:
            with served(speaker, saved_dialogs) as server:
                act(server)
            for command in (agentlite.prep, agentlite.pairs):
                name = "trajectories" if command is agentlite.prep else "candidates"
                with pytest.raises(UserError) as found:
                    command(run=run, **{name: "agent"})
                assert "its server is running: process" in found.value.problem
                assert found.value.exit_code == 75 and "Ctrl-C" in found.value.fix
    # a server that does not start loses nothing
    with pytest.raises(UserError), _saving("agent", speaker, Path(run)):
        raise UserError("the port is in use.")
    one, other = read_trajectories(Path(run) / "agent/trajectories.jsonl")
    assert [len(one.turns), len(other.turns), one.task == other.task] == [3, 2, True]
    figures = agentlite.prep(run=run, trajectories="agent", model="smollm2-135m", test=0.0, dev=0.0)
    records = list(read_rows(Path(run) / "prep/train.jsonl"))
    assert len(records) == 2 and figures.status == "done"
    learned = {
        tuple(one.get("loss", True) for one in row["messages"] if one["role"] == "assistant")
        for row in records
    }
    assert learned == {(False, True, True), (True, True)}  # the call that failed is not learned
    with pytest.raises(UserError) as found:
        agentlite.pairs(run=run, candidates="agent")
    assert "--rewards" in found.value.fix
    pairs = agentlite.pairs(run=run, candidates="agent", rewards=(f"{tmp_path / 'own.py'}:fast",))
    [pair] = read_rows(Path(run) / "pairs/pairs.jsonl")
    assert pairs.figures["pairs"] == 1
    assert (pair["chosen"]["text"], pair["rejected"]["text"]) == (FIG, PEAR)


@pytest.fixture(scope="module")
def tiny_chat(tiny_model, tmp_path_factory):
    made = ChatModel(
        str(tiny_model), tmp_path_factory.mktemp("run"), engine="hf", max_new_tokens=12
    )
    made.load()
    made.keeps_probabilities = True
    return made


@pytest.mark.torch
@pytest.mark.parametrize("decoding", [Decoding(12), Decoding(12, 0.7, 0.8, 5), Decoding(12, 2.0)])
def test_log_probabilities_are_those_of_a_forward_pass(tiny_chat, decoding):
    import torch

    dialog = tiny_chat.opened([USER], [BUY])
    turn = tiny_chat.answer(dialog, decoding)
    assert turn.new_tokens == len(turn.ids) == len(turn.log_probabilities) > 1
    assert tiny_chat.template.decode([*turn.ids]).startswith(turn.text)
    ids = torch.tensor([[*dialog.ids, *turn.ids]])
    with torch.inference_mode():
        logits = tiny_chat.loaded.model(ids).logits[0, len(dialog.ids) - 1 : -1].float()
    likely = (logits / (decoding.temperature or 1.0)).log_softmax(-1)
    expected = likely[range(len(turn.ids)), list(turn.ids)].tolist()
    assert turn.log_probabilities == pytest.approx(expected, abs=1e-4)
    # nothing is noted unless it is asked for, and what is said does not depend on it
    tiny_chat.keeps_probabilities = False
    try:
        plain = tiny_chat.answer(dialog, decoding)
    finally:
        tiny_chat.keeps_probabilities = True
    assert plain == turn._replace(log_probabilities=())


@pytest.mark.torch
@pytest.mark.long
def test_a_server_that_is_killed_leaves_what_it_answered_and_the_next_one_finishes(
    tmp_path, tiny_model
):
    command = [sys.executable, "-m", "agentlite", "serve", str(tiny_model), "--engine", "hf"]
    command += ["--run", str(tmp_path), "--port", "0", "--json", "--save", "agent"]
    command += ["--max-new-tokens", "8", "--protocol", "hermes"]
    options: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    for end in (signal.SIGKILL, signal.SIGTERM):
        with start(command, env=environment, **options) as process:
            url = json.loads(process.stdout.readline())["url"]
            port = int(url.rpartition(":")[2].partition("/")[0])
            (answer,) = ask(SimpleNamespace(server_address=("127.0.0.1", port)), [USER])
            assert answer["content"]
            process.send_signal(end)
            _, noise = process.communicate(timeout=60)
        assert f"is stored in {tmp_path / 'agent'}" in noise
        assert (tmp_path / "agent/done.json").exists() == (end == signal.SIGTERM)
        if end == signal.SIGKILL:
            with pytest.raises(UserError, match="its server was killed"):
                finished_rollout(tmp_path / "agent")
    made = list(read_trajectories(tmp_path / "agent/trajectories.jsonl"))
    assert [one.sample for one in made] == [0, 1] and all(one.turns[0].ids for one in made)
    assert all(len(one.turns[0].log_probabilities) == 8 for one in made)


def test_tools_that_change_on_the_way_are_those_of_each_turn(tmp_path, smollm2):
    sell = json.loads(json.dumps(BUY).replace("buy", "sell").replace("Buys", "Sells"))
    speaker = Speaker(smollm2, steps("One.", "Two.", "Three."))
    messages: list[dict[str, Any]] = [USER]
    for tools in ([BUY], [BUY, sell], [BUY, sell]):
        with serving(tmp_path, speaker) as server:  # one that was started again, each time
            messages += ask(server, messages, tools=tools)
            messages.append({"role": "user", "content": "More."})
    (one,) = saved(tmp_path)
    assert [turn.offered for turn in one.turns] == [("buy",), ("buy", "sell"), ("buy", "sell")]
    assert one.tools == [BUY, sell]
    assert [row["tools"] for row in read_rows(tmp_path / SERVED)] == [[BUY], [BUY, sell], None]
    assert [turn.user for turn in one.turns] == ["More.", "More.", None]
