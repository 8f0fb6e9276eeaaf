"""The answers of a request stand in the order of its prompts, and no two tries share a seed."""

from typing import Any, ClassVar

import pytest

from agentlite.core.json_guide import Guide
from agentlite.core.records import Parsed
from agentlite.data.openai_messages import Turn
from agentlite.deploy.answer_form import AnswerForm
from agentlite.deploy.completion_jobs import TEXT, TRIES, ServeJob
from agentlite.deploy.openai_api import Refused
from agentlite.engine.decoding import Decoding


class Echo:
    """A model that answers with its prompt."""

    seeds: ClassVar[list[int]] = []

    def answer(self, prompt: Any, decoding: Decoding, listener: Any, form: Any) -> Turn:
        self.seeds.append(decoding.seed)
        return Turn(prompt, "turn", Parsed(prompt))


class Asked:
    def __init__(self, n: int | None):
        self.n = n


@pytest.mark.parametrize(("n", "texts"), [(None, "ab"), (1, "ab"), (2, "aabb"), (3, "aaabbb")])
def test_each_prompt_has_its_answers_side_by_side_and_no_two_share_a_seed(n, texts):
    job = ServeJob(Asked(n), TEXT, ["a", "b"], 1, Decoding(8, 1.0))
    Echo.seeds.clear()
    answers = [job.answer(Echo(), index, lambda *_: None).text for index in range(job.answers)]
    assert "".join(answers) == texts
    assert len({*Echo.seeds}) == len(texts)


@pytest.mark.parametrize("n", [1, 3])
def test_no_try_of_an_answer_has_the_seed_of_another_try_or_answer(n):
    form = AnswerForm(Guide(()), lambda turn: "no call")
    job = ServeJob(Asked(n), TEXT, ["a", "b"], 1, Decoding(8, 1.0, seed=2**31 - 2), form)
    Echo.seeds.clear()
    for index in range(job.answers):
        with pytest.raises(Refused, match="no call"):
            job.answer(Echo(), index, lambda *_: None)
    assert len({*Echo.seeds}) == len(Echo.seeds) == TRIES * job.answers
