"""`grpo --env`: rollouts of several turns are learned from, each id as it was sampled."""

import json
from itertools import groupby

import pytest

import agentlite
from agentlite.config.settings import GrpoSettings
from agentlite.core.errors import UserError
from agentlite.engine import checkpoints, watch
from agentlite.environments.trajectories import read_trajectories

pytestmark = [pytest.mark.torch, pytest.mark.long]

# A random model says no call: its user speaks twice, so that a rollout has three turns. What it
# earns differs from rollout to rollout: the share of its letters that stand before "n".
TALK = '''
class Talk:
    def reset(self, prompt, **row):
        self.said, self.row = [], row
        if row.get("broken"):
            raise RuntimeError("no world")

    def note(self, text: str) -> str:
        """Keeps a note.

        Args:
            text: What to keep
        """
        return "kept"

    def next_user(self, words):
        self.said.append(words)
        return "And then?" if len(self.said) < self.row.get("turns", 3) else None

    def state(self):
        return len(self.said)

    def get_scores(self):
        letters = [one for one in "".join(self.said).lower() if one.isalpha()]
        return {"early": sum(one < "n" for one in letters) / max(1, len(letters)), "always": 1.0}
'''
TASKS = [{"id": name, "prompt": f"Tell me of {name}."} for name in ("figs", "pears", "plums")]


@pytest.fixture
def talk(tmp_path):
    (tmp_path / "talk.py").write_text(TALK, encoding="utf-8")
    return written(tmp_path, TASKS)


def written(folder, tasks):
    lines = "".join(json.dumps(task) + "\n" for task in tasks)
    (folder / "tasks.jsonl").write_text(lines, encoding="utf-8")
    return folder


def train(folder, model, name="grpo", **options):
    made = {"env": f"{folder / 'talk.py'}:Talk", "tasks": str(folder / "tasks.jsonl"), "test": 0.0}
    defaults = {
        "model": str(model),
        "dev": 0.0,
        "engine": "hf",
        "max_steps": 4,
        "save_steps": 2,
        "batch_size": 4,
        "gradient_accumulation": 1,
        "group_size": 2,
        "max_new_tokens": 8,
        "max_length": 512,
        "learning_rate": 1e-2,
        "call_seconds": 60.0,
    }
    return agentlite.grpo(run=str(folder / "run"), out=name, **{**made, **defaults, **options})


def trajectories(folder, name="grpo"):
    return list(read_trajectories(folder / "run" / name / "trajectories.jsonl"))


@pytest.mark.parametrize("engine", ["hf", "unsloth"])
def test_what_is_learned_is_what_was_sampled(talk, tiny_model, smollm2, engine):
    result = train(talk, tiny_model, engine=engine, max_steps=2)
    done = trajectories(talk)
    assert result.figures["ended"] == {"user": 8} and len(done) == 8
    assert [one.sample for one in done] == [*range(8)]
    groups = [[*group] for _, group in groupby(done, lambda one: one.sample // 2)]
    assert all(len({one.task for one in group}) == 1 for group in groups)
    for one in done:
        assert len(one.turns) == 3 and one.scores["always"] == 1.0
        for row in one.token_rows():
            assert len(row.ids) == len(row.turns) and row.mask[-1] == 1
            first = next(turn for turn in row.turns if turn >= 0)
            assert one.turns[first].opens
            assert smollm2.decode([*row.prompt]).endswith("<|im_start|>assistant\n")
        sampled = [
            token
            for row in one.token_rows()
            for token, own in zip(row.ids, row.mask, strict=True)
            if own
        ]
        assert sampled == [token for turn in one.turns for token in turn.ids]
    # the trainer reads the very rows that the sampler drew: their probabilities are the same
    logged = watch.read_metrics(talk / "run/grpo")
    assert logged[0]["sampler_gap"] < 1e-4
    assert all(row["reward/always"] == 1 and row["reward/turns"] == 3 for row in logged)
    assert logged[0]["kl"] == pytest.approx(0, abs=1e-5) and logged[-1]["grad_norm"] > 0


def test_a_run_that_was_stopped_ends_with_the_same_bytes(talk, tiny_model, monkeypatch):
    from agentlite.stages import grpo_tasks

    train(talk, tiny_model, "whole")
    begun, roll = [], grpo_tasks.roll

    def stops(*given):
        begun.append(given)
        if len(begun) == 4:
            raise KeyboardInterrupt
        return roll(*given)

    with monkeypatch.context() as patched:
        patched.setattr(grpo_tasks, "roll", stops)
        with pytest.raises(KeyboardInterrupt):
            train(talk, tiny_model, "cut")
    newest = checkpoints.newest_whole(talk / "run/cut")
    assert newest is not None and newest.name == "checkpoint-2"
    assert train(talk, tiny_model, "cut").figures["steps"] == 4
    for file in ("trajectories.jsonl", "adapter/adapter_model.safetensors"):
        whole, cut = ((talk / "run" / name / file).read_bytes() for name in ("whole", "cut"))
        assert whole == cut, file


def test_lost_worlds_move_nothing_and_too_many_end_the_run(talk, tiny_model):
    written(talk, [*TASKS, {"id": "broken", "prompt": "Break.", "broken": True}])
    with pytest.raises(UserError) as found:
        train(talk, tiny_model)
    assert found.value.exit_code == 4 and "(task broken (" in str(found.value)
    result = train(talk, tiny_model, max_failures=0.9)
    assert result.status == "done" and result.figures["steps"] == 4
    lost = [one for one in trajectories(talk) if one.ended == "world"]
    assert {one.task for one in lost} == {"broken"} and result.figures["ended"]["world"] == len(
        lost
    )
    rows = watch.read_metrics(talk / "run/grpo")
    assert all(abs(row["loss"]) < 1e9 and row["grad_norm"] == row["grad_norm"] for row in rows)


def test_a_dry_run_names_steps_and_memory(talk, tiny_model):
    figures = train(talk, tiny_model, dry_run=True).figures
    assert (figures["tasks"], figures["steps"], figures["rollouts"]) == (3, 4, 16)
    assert figures["memory_gib"] and not (talk / "run").exists()
    # each rollout has a prompt of its own, once its first turn is over
    acting, recorded = GrpoSettings(env="talk.py:Talk"), GrpoSettings()
    assert acting.in_memory(True).prompts == 4 * recorded.in_memory(True).prompts == 16


def test_its_rollouts_make_pairs_and_training_rows(talk, tiny_model):
    train(talk, tiny_model)
    pairs = agentlite.pairs(run=str(talk / "run"), candidates="grpo")
    assert pairs.figures["rollouts"] == 16 and pairs.figures["pairs"] > 0
    # prep reads them too; every turn of this model was cut off, and none is to be learned
    with pytest.raises(UserError, match="F313 16"):
        agentlite.prep(run=str(talk / "run"), trajectories="grpo", model=str(tiny_model))


def test_a_class_without_scores_is_refused(talk, tiny_model):
    (talk / "talk.py").write_text(TALK.replace("def get_scores", "def _scores"), encoding="utf-8")
    with pytest.raises(UserError, match="no score"):
        train(talk, tiny_model)
