"""An answer as it comes: what is passed on when, and where it ends, by a model with a script."""

from pathlib import Path
from typing import Any

import pytest

from agentlite.engine import local_sampler
from agentlite.engine.decoding import Decoding, until_stop
from agentlite.engine.load import Loaded, Loading, load
from agentlite.engine.local_sampler import Sample, stream
from agentlite.workspace.lookup import Source

END = 9
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
    def decode(self, ids: list[int], **_: Any) -> str:
        pieces = (PIECES.get(token, b"") for token in ids)
        return b"".join(pieces).decode("utf-8", "replace")


TOKENIZER = Tokenizer()


def answered(
    *script: int, stops: tuple[str, ...] = (), monkeypatch: pytest.MonkeyPatch
) -> tuple[Sample, list[str]]:
    """What a model that says `script` is heard to say."""
    heard: list[str] = []

    def listener(text: str) -> bool:
        heard.append(text)
        return True

    def sample(loaded: Loaded, requests: Any, decoding: Decoding, goes_on: Any) -> list[Sample]:
        ids: list[int] = []
        for token in script:
            ids.append(token)
            if token == END or until_stop(TOKENIZER.decode(ids), stops) or not goes_on(ids):
                break
        return [local_sampler.make_sample(TOKENIZER, ids, {END}, stops, (0, 0))]

    monkeypatch.setattr("agentlite.engine.local_sampler.sample", sample)
    decoding = Decoding(99, turn_end=END, stops=stops)
    return stream(Loaded(None, TOKENIZER), [5, 5, 5], decoding, listener), heard


def test_each_piece_is_passed_on_as_it_comes_and_the_end_of_the_turn_is_no_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer, heard = answered(1, 2, END, 5, monkeypatch=monkeypatch)
    assert (answer.text, answer.ended, answer.ids) == ("It rains", "turn", [1, 2, END])
    assert heard[:2] == ["It ", "rains"] and "".join(heard) == "It rains"


@pytest.mark.parametrize("at", range(1, len("\nObservation:")))
def test_wherever_a_stop_string_is_cut_into_tokens_its_beginning_waits(
    at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop = "\nObservation:"
    monkeypatch.setitem(PIECES, 3, stop[:at].encode())
    monkeypatch.setitem(PIECES, 4, stop[at:].encode())
    _, heard = answered(1, 3, 4, stops=(stop,), monkeypatch=monkeypatch)
    assert heard == ["It ", "", stop]


def test_an_answer_is_drawn_by_its_seed_and_ends_when_nobody_listens(tiny_model: Path) -> None:
    loaded = load(Source("tiny", str(tiny_model), None, ""), Loading("hf", 128), trainable=False)
    decoding = Decoding(8, temperature=1.0)

    def ids(seed: int, pieces: int = 99) -> list[int]:
        heard: list[str] = []

        def listener(text: str) -> bool:
            heard.append(text)
            return len(heard) < pieces

        return stream(loaded, [60, 61, 62], decoding._replace(seed=seed), listener).ids

    assert ids(3) == ids(3) != ids(4)
    assert ids(3, pieces=2) == ids(3)[:2]
