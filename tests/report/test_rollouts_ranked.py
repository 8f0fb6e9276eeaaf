"""Which rollout is worse than which, where two part, and what is shown of each, by small rows."""

import random

import msgspec
import pytest
from support.generated_rollouts import rollout, says

from agentlite.core.row_files import encode, write_rows
from agentlite.report.rollouts import (
    LOST,
    RolloutFile,
    _read,
    read_rollouts,
)

TALK = [says("No."), says("I would rather talk.")]


def files(folder, **rollouts):
    """A file of samples for each model."""
    for model, done in rollouts.items():
        write_rows(folder / f"{model}.jsonl", map(msgspec.to_builtins, done))
    return [RolloutFile(model, folder / f"{model}.jsonl", True) for model in rollouts]


@pytest.mark.parametrize("seed", range(4))
def test_the_worst_come_first_each_beside_the_best_of_its_task(tmp_path, seed):
    """Lost ones, then by the verdict, then by the mean, then as their files have them; the best has
    the highest mean, then the fewest turns.
    """
    chance = random.Random(seed)
    made = []
    for n in range(24):
        lost = chance.random() < 0.2
        scores = {} if lost else {name: chance.choice([0.0, 0.5, 1.0]) for name in ("mine", "env")}
        ended = chance.choice(LOST) if lost else "user"
        task, turns = chance.choice(["apple", "fig"]), TALK * chance.randint(1, 2)
        made.append(rollout(task, turns, scores, sample=n, ended=ended))
    found = read_rollouts(files(tmp_path, m=made[:13], k=made[13:]))
    order = sorted(
        made, key=lambda one: (bool(one.scores), one.scores.get("env", 0), sum(one.scores.values()))
    )
    assert [one.rollout.sample for one in found.shown] == [one.sample for one in order]
    assert [one.file.model for one in found.shown] == ["mk"[one.sample > 12] for one in order]
    scored = [one for one in made if one.scores]
    best = {
        task: min(
            (one for one in scored if one.task == task),
            key=lambda one: (-sum(one.scores.values()), len(one.turns)),
        ).sample
        for task in ("apple", "fig")
    }
    for one in found.shown:
        shown = one.rollout.sample if one.best is None else one.best[1].sample
        assert shown == best[one.rollout.task]
        assert one.best is None or one.best[0].model == "mk"[shown > 12]
    failed = [one for one in made if one.scores.get("env", 0) < 1]
    assert (found.total, found.failed, found.names) == (24, len(failed), ["env", "mine"])


def test_a_turn_of_the_assistants_in_the_prompt_is_none_of_the_model():
    row = msgspec.to_builtins(rollout("apple", TALK, {"env": 0.0}))
    example = {"role": "assistant", "content": "An example."}
    row["messages"].insert(1, example)
    one = _read(encode(row))
    assert one.prompt == row["messages"][:3] and example in one.prompt
    assert [answer["content"] for answer in one.answers] == ["No.", "I would rather talk."]
