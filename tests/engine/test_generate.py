"""What a model says does not depend on who is asked beside it, and ends where it should."""

from pathlib import Path

import pytest
from support.trainers import sft

from agentlite.engine.adapter import add_adapter
from agentlite.engine.decoding import Decoding
from agentlite.engine.load import Loaded, Loading, load, load_for_inference
from agentlite.engine.local_sampler import Sample, generate
from agentlite.workspace.input_files import load_template
from agentlite.workspace.lookup import Source

PROMPTS = ("Oslo", "What is the weather in Lima?", "one two three four five six seven", "a")


@pytest.fixture(scope="module", params=["unsloth", "hf"])
def loaded(request: pytest.FixtureRequest, tiny_model: Path) -> Loaded:
    return load_for_inference(
        Source("tiny", str(tiny_model), None, ""), Loading(request.param, 256)
    )


def say(
    loaded: Loaded, batch_size: int, stops: tuple[str, ...] = (), turn_end: int = 2
) -> dict[int, Sample]:
    template = load_template("smollm2-135m")
    ids = [template.encode(prompt) for prompt in PROMPTS]
    decoding = Decoding(12, stops=stops, turn_end=turn_end)
    batches = list(generate(loaded, ids, decoding, batch_size=batch_size))
    assert [len(batch) for batch in batches] == [batch_size] * (4 // batch_size)
    return {said.prompt: said for batch in batches for said in batch}


def test_a_batch_says_what_each_prompt_gets_alone(loaded):
    alone = say(loaded, 1)
    assert say(loaded, 4) == say(loaded, 2) == alone
    assert sorted(alone) == [0, 1, 2, 3]
    assert all(len(said.ids) == 12 and said.ended == "cut" for said in alone.values())


def test_an_answer_ends_with_its_stop_string_and_counts_as_finished(loaded):
    free = say(loaded, 1)
    stop = free[0].text[4:7]
    stopped = say(loaded, 4, (stop,))
    assert stopped[0].ended == "stop"
    assert stopped[0].text == free[0].text[: free[0].text.index(stop) + 3]
    for prompt, said in stopped.items():
        assert (said.ended == "stop") == (stop in free[prompt].text)


def test_an_answer_ends_before_the_end_of_turn(loaded):
    import torch

    ids = torch.tensor([load_template("smollm2-135m").encode(PROMPTS[0])])
    first = int(loaded.model(ids).logits[0, -1].argmax())
    ended = say(loaded, 1, turn_end=first)[0]
    assert ended == Sample(0, 0, [first], "", "turn")


@pytest.mark.parametrize("engine", ["unsloth", "hf"])
def test_an_adapter_on_tied_embeddings_answers_as_it_was_trained(engine, tiny_model, tmp_path):
    import torch

    how, base = Loading(engine, 256), Source("tiny", str(tiny_model), None, "")
    settings = sft(
        engine=engine, lora_r=4, lora_alpha=8, lora_dropout=0.0, lora_target_modules=("all",)
    )
    model = add_adapter(load(base, how, trainable=True), settings)
    for name, weight in model.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(
                weight, std=0.5, generator=torch.Generator().manual_seed(len(name))
            )
    model.save_pretrained(str(tmp_path))
    ids = torch.tensor([load_template("smollm2-135m").encode(PROMPTS[1])])
    source = Source("tuned", str(tiny_model), tmp_path, "")
    with torch.no_grad():
        expected = load(source, how, trainable=False).model.eval()(ids).logits
        asked = load_for_inference(source, how).model(ids).logits
    assert torch.allclose(asked, expected, atol=1e-3)
