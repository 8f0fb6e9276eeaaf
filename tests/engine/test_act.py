"""An answer of a rollout depends on its task, number and turn, not on who is asked beside it."""

from functools import partial

import pytest

from agentlite.data.openai_messages import opened
from agentlite.engine.act import answers
from agentlite.engine.decoding import Decoding
from agentlite.engine.load import Loading, load_for_inference
from agentlite.engine.local_sampler import sample
from agentlite.environments.rollout import RolloutPrompt
from agentlite.environments.trajectories import RolloutKey
from agentlite.rendering import choose
from agentlite.workspace.model_source import Source


@pytest.fixture
def loaded(tiny_model):
    return load_for_inference(
        Source("tiny", str(tiny_model), None, ""), Loading(engine="hf", max_length=256)
    )


def test_an_answer_is_the_same_in_any_batch(loaded, smollm2):
    protocol = choose("hermes", smollm2).protocols["hermes"]
    dialogs = {
        name: opened([{"role": "user", "content": f"Buy {name}."}], [], protocol, smollm2)
        for name in ("figs", "ripe plums and some pears")
    }
    prompts = [
        RolloutPrompt(RolloutKey(name, number), turn, dialog, dialog.ids)
        for number in range(3)
        for name, dialog in dialogs.items()
        for turn in (0, 1)
    ]
    decoding = Decoding(6, temperature=1.0, seed=5).under(smollm2)
    draw = partial(sample, loaded)
    together = {one.prompt: one for one in answers(draw, prompts, protocol, decoding)}
    assert sorted(together) == list(range(12))
    for index, prompt in enumerate(prompts):
        (alone,) = answers(draw, [prompt], protocol, decoding)
        # the logits are rounded otherwise in another batch: the tokens are the same
        assert alone.log_probabilities == pytest.approx(together[index].log_probabilities, abs=1e-4)
        without = {"prompt": 0, "log_probabilities": ()}
        assert alone._replace(**without) == together[index]._replace(**without)
    assert len({one.text for one in together.values()}) == 12
    again = Decoding(6, temperature=1.0, seed=6).under(smollm2)
    (other, *_) = answers(draw, prompts[:1], protocol, again)
    assert other.text != together[0].text
