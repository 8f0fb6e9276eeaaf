"""The order, the ends and the halves of batches, by a model that says what is written for it."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from agentlite.core.errors import OUT_OF_MEMORY, UserError
from agentlite.engine.decoding import Decoding
from agentlite.engine.generate import Completion, generate
from agentlite.engine.load import Loaded

PAD, END, OTHER_END = 0, 9, 8
WORDS = {PAD: "_", 1: "It ", 2: "rains", 3: ".", END: "</s>", OTHER_END: "</t>"}


class Tokenizer:
    pad_token_id = PAD

    def decode(self, ids: list[int], **_: Any) -> str:
        return "".join(WORDS[token] for token in ids)

    def batch_decode(self, rows: Any, **_: Any) -> list[str]:
        return [self.decode(row.tolist()) for row in rows]


class Model:
    """Answers each prompt, named by its last token, with its script; `rows` of them fit at once."""

    device = "cpu"
    generation_config = SimpleNamespace(eos_token_id=OTHER_END)

    def __init__(self, scripts: dict[int, list[int]], rows: int = 99):
        self.scripts, self.rows = scripts, rows
        self.asked: list[dict[str, Any]] = []

    def generate(self, *, input_ids: Any, **asked: Any) -> Any:
        self.asked.append({"input_ids": input_ids.tolist(), **asked})
        if len(input_ids) > self.rows:
            raise RuntimeError("CUDA out of memory")
        scripts = [self.scripts[row[-1]] for row in input_ids.tolist()]
        width = max(map(len, scripts))
        new = [script + [PAD] * (width - len(script)) for script in scripts]
        return torch.cat([input_ids, torch.tensor(new)], dim=1)


def said(model: Model, prompts: list[list[int]], size: int, **decoding: Any) -> list[Any]:
    asked = Decoding(5, **{"turn_end": END, **decoding})
    return list(generate(Loaded(model, Tokenizer()), prompts, asked, batch_size=size))


def test_the_longest_prompts_come_first_in_batches_of_the_size_with_their_own_numbers() -> None:
    model = Model({1: [1, END], 2: [2, END], 3: [3, END]})
    batches = said(model, [[1], [7, 7, 2], [7, 3]], 2)
    assert [[(one.prompt, one.text) for one in batch] for batch in batches] == [
        [(1, "rains"), (2, ".")],
        [(0, "It ")],
    ]
    first, last = model.asked
    assert first["input_ids"] == [[7, 7, 2], [PAD, 7, 3]]
    assert first["attention_mask"].tolist() == [[1, 1, 1], [0, 1, 1]]
    assert last["input_ids"] == [[1]]
    assert first["eos_token_id"] == [OTHER_END, END] and first["max_new_tokens"] == 5
    assert first["do_sample"] is False and first["pad_token_id"] == PAD


@pytest.mark.parametrize(
    ("script", "stops", "expected"),
    [
        ([1, 2, END], (), ("It rains", True, 3)),
        ([1, 2, OTHER_END], (), ("It rains", True, 3)),
        ([END], (), ("", True, 1)),
        ([1, 2, 3, 3, 3], (), ("It rains...", False, 5)),
        ([1, PAD, 3, END], (), ("It _.", True, 4)),
        ([1, 2, END, PAD, PAD], (), ("It rains", True, 3)),
        ([1, 2, PAD, PAD, PAD], ("rai",), ("It rai", True, 2)),
        ([1, 2, 3, END], ("rains", "It "), ("It ", True, 4)),
        ([1, 2, 3, PAD], ("snow",), ("It rains.", False, 3)),
    ],
)
def test_an_answer_ends_at_the_end_of_its_turn_or_behind_a_stop_string(
    script: list[int], stops: tuple[str, ...], expected: tuple[str, bool, int]
) -> None:
    ((found,),) = said(Model({1: script}), [[1]], 1, stops=stops)
    assert found == Completion(0, *expected)


def test_generation_is_stopped_for_stop_strings_alone() -> None:
    model = Model({1: [1, END]})
    said(model, [[1]], 1)
    said(model, [[1]], 1, stops=("rains",))
    assert not model.asked[0]["stopping_criteria"]
    (stop,) = model.asked[1]["stopping_criteria"]
    # behind the prompt of one token: a stop string there ends nothing
    rows = torch.tensor([[2, 1, 3], [1, 1, 2]])
    assert stop(rows, None).tolist() == [False, True]


def test_a_batch_that_does_not_fit_is_halved_from_then_on() -> None:
    prompts = [[n] for n in (1, 2, 3, 1, 2)]
    model = Model({1: [1, END], 2: [2, END], 3: [3, END]}, rows=2)
    batches = said(model, prompts, 5)
    assert [[one.prompt for one in batch] for batch in batches] == [[0, 1], [2, 3], [4]]
    assert [len(one["input_ids"]) for one in model.asked] == [5, 2, 2, 1]


def test_one_prompt_that_does_not_fit_is_said_with_its_length() -> None:
    with pytest.raises(UserError, match="a prompt of 3 tokens") as error:
        said(Model({}, rows=0), [[1, 2, 3], [1]], 2)
    assert error.value.exit_code == OUT_OF_MEMORY


def test_another_error_of_the_model_stays_what_it_is() -> None:
    with pytest.raises(KeyError):
        said(Model({}), [[1]], 1)
