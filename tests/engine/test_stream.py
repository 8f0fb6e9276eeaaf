"""An answer as it comes: what is passed on when, and where it ends, by a model with a script."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from agentlite.engine.decoding import Decoding
from agentlite.engine.load import Loaded
from agentlite.engine.stream import StreamedAnswer, stream

END = 9
PROMPT = [5, 5, 5]
PIECES = {
    1: b"It ",
    2: b"rains",
    3: b"\nObser",
    4: b"vation:",
    5: b"more",
    6: b"\xe5\xa4",
    7: b"\xa9",
}


class Tokenizer:
    pad_token_id = 0

    def decode(self, ids: list[int], **_: Any) -> str:
        return b"".join(PIECES[token] for token in ids).decode("utf-8", "replace")


class Model:
    """Says `script`, a token at a time, as `generate` of transformers does."""

    device = "cpu"
    generation_config = SimpleNamespace(eos_token_id=None)

    def __init__(self, *script: int):
        self.script, self.asked = script, dict[str, Any]()

    def generate(self, *, input_ids: Any, stopping_criteria: Any, **asked: Any) -> Any:
        self.asked = asked
        ids = input_ids
        for token in self.script[: asked["max_new_tokens"]]:
            ids = torch.cat([ids, torch.tensor([[token]])], dim=1)
            if stopping_criteria(ids, None).all() or token in asked["eos_token_id"]:
                break
        return ids


def answered(
    *script: int, stops: tuple[str, ...] = (), limit: int = 99, hangs_up: int = 99, **decoding: Any
) -> tuple[StreamedAnswer, list[str], Model]:
    """`hangs_up`: after how many pieces nobody listens any more."""
    heard: list[str] = []

    def listener(text: str) -> bool:
        heard.append(text)
        return len(heard) < hangs_up

    model = Model(*script)
    asked = Decoding(limit, **{"temperature": 0.0, "turn_end": END, "stops": stops, **decoding})
    return stream(Loaded(model, Tokenizer()), PROMPT, asked, listener), heard, model


def test_each_piece_is_passed_on_as_it_comes_and_the_end_of_the_turn_is_no_text() -> None:
    answer, heard, model = answered(1, 2, END, 5)
    assert answer == StreamedAnswer("It rains", "turn", 3, (1, 2, END))
    assert heard[:2] == ["It ", "rains"] and "".join(heard) == "It rains"
    assert model.asked["eos_token_id"] == [END] and model.asked["max_new_tokens"] == 99
    assert model.asked["attention_mask"].tolist() == [[1, 1, 1]]


@pytest.mark.parametrize("at", range(1, len("\nObservation:")))
def test_wherever_a_stop_string_is_cut_into_tokens_its_beginning_waits(
    at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = "\nObservation:"
    monkeypatch.setitem(PIECES, 3, stop[:at].encode())
    monkeypatch.setitem(PIECES, 4, stop[at:].encode())
    _, heard, _ = answered(1, 3, 4, stops=(stop,))
    assert heard == ["It ", "", stop]


def test_without_temperature_nothing_is_drawn_and_with_it_the_seed_decides() -> None:
    *_, model = answered(END)
    sampling = {"do_sample": False, "temperature": None, "top_p": None, "top_k": None}
    assert {name: model.asked[name] for name in sampling} == sampling
    drawn = []
    for seed in (3, 3, 4):
        *_, model = answered(END, temperature=0.5, top_p=0.75, seed=seed)
        sampling = {"do_sample": True, "temperature": 0.5, "top_p": 0.75, "top_k": 0}
        assert {name: model.asked[name] for name in sampling} == sampling
        drawn.append(torch.rand(1).item())
    assert drawn[0] == drawn[1] != drawn[2]
