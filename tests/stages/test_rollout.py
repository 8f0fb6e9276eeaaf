"""`agentlite rollout`: stopped at any turn it ends with the same bytes; what is wrong is named."""

import json

import pytest
from support.shop import ITEMS, scripted, shop, tasks, with_gold

import agentlite
from agentlite.core.errors import UserError
from agentlite.core.row_files import Appender, read_rows
from agentlite.data.formats import to_record
from agentlite.rendering import choose, render
from agentlite.stages.rollout import key_figure
from agentlite.workspace.input_files import load_template

FILES = ("tasks.jsonl", "trajectories.jsonl", "stats.json")


@pytest.fixture
def acting(monkeypatch):
    """A model that knows the shop, in place of one in memory."""

    def answers(sample, prompts, protocol, decoding):
        yield from scripted(prompts)

    monkeypatch.setattr("agentlite.stages.rollout.rollout_answers", answers)
    monkeypatch.setattr("agentlite.stages.rollout.load_for_inference", lambda *_: None)
    monkeypatch.setattr("agentlite.stages.rollout.check_libraries", lambda _: None)


def rollout(folder, name="run", **options):
    made = {"env": f"{folder / 'shop.py'}:Shop", "tasks": str(folder / "tasks.jsonl")}
    defaults = {"model": "smollm2-135m", "num_samples": 2, "batch_size": 3, "call_seconds": 60.0}
    return agentlite.rollout(run=str(folder / name), **{**made, **defaults, **options})


def contents(folder, name="run"):
    return [(folder / name / "rollout" / file).read_bytes() for file in FILES]


@pytest.mark.long
@pytest.mark.usefixtures("acting")
def test_every_task_is_done_and_counted(tmp_path):
    shop(tmp_path, tasks())
    result = rollout(tmp_path)
    assert result.status == "done" and result.outputs == [*FILES]
    assert result.figures == {
        "tasks": 4,
        "rollouts": 8,
        "ended": {"user": 8},
        "turns": 40,
        "calls": 24,
        "failed_calls": 8,
        "scores": {"env": 0.5},
        "lineage": ["smollm2-135m"],
    }
    assert key_figure(result.figures) == "8 rollouts, env 0.50"
    rows = list(read_rows(tmp_path / "run/rollout/trajectories.jsonl"))
    assert {(row["task"], row["sample"]) for row in rows} == {
        (item, number) for item in ITEMS for number in (0, 1)
    }
    assert not (tmp_path / "run/rollout/trajectories.answers.jsonl").exists()
    assert rollout(tmp_path).status == "up to date"
    # what it did is a dialog that can be learned from
    template = load_template("smollm2-135m")
    for row in rows:
        record = to_record({"messages": row["messages"], "tools": row["tools"]}, "openai")
        (rendered,) = render(record, choose("hermes", template).protocols["hermes"], template)
        trained = [rendered.text[span.start : span.end] for span in rendered.spans]
        assert trained == [turn["text"] + template.turn_end for turn in row["turns"]]


@pytest.mark.long
@pytest.mark.usefixtures("acting")
@pytest.mark.parametrize("rows", [1, 17, 47])
def test_stopped_at_any_turn_and_run_again_it_ends_with_the_same_bytes(tmp_path, monkeypatch, rows):
    shop(tmp_path, tasks())
    rollout(tmp_path, "whole")
    append, written = Appender.append, []

    def stops(self, row):
        if len(written) == rows:
            self.file.write(b'{"task": "torn')
            self.file.flush()
            raise KeyboardInterrupt
        append(self, row)
        written.append(row)

    with monkeypatch.context() as patched:
        patched.setattr(Appender, "append", stops)
        with pytest.raises(KeyboardInterrupt):
            rollout(tmp_path)
    assert rollout(tmp_path, batch_size=2).status == "done"
    assert contents(tmp_path) == contents(tmp_path, "whole")


@pytest.mark.long
@pytest.mark.usefixtures("acting")
def test_too_many_lost_worlds_end_the_run_and_a_better_limit_carries_it_on(tmp_path):
    rows = tasks()
    rows[0]["broken"] = True
    shop(tmp_path, rows)
    with pytest.raises(UserError) as found:
        rollout(tmp_path)
    error = found.value
    assert error.exit_code == 4 and "the shop is closed" in error.problem
    assert (
        f"(task apple ({tmp_path / 'tasks.jsonl'}:1))" in error.problem
        and "max_failures" in error.fix
    )
    figures = rollout(tmp_path, max_failures=0.5).figures
    assert figures["ended"] == {"user": 6, "world": 2} and figures["scores"] == {"env": 0.5}


@pytest.mark.long
@pytest.mark.usefixtures("acting")
def test_tasks_of_a_split_are_the_same_whatever_the_seed_and_no_task_is_in_two(tmp_path):
    rows = [{"prompt": f"Buy item {n}.", "item": "fig", "id": f"{n}"} for n in range(40)]
    split = {"model": "gold", "num_samples": 1, "limit": None, "dev": 0.2, "test": 0.3}
    shop(tmp_path, [{**row, "gold": [[], []]} for row in rows])
    by_split = {}
    for name in ("train", "dev", "test"):
        for seed in (0, 5):
            folder = f"{name}{seed}"
            rollout(tmp_path, folder, split=name, seed=seed, **split)
            done = list(read_rows(tmp_path / folder / "rollout/trajectories.jsonl"))
            assert {row["split"] for row in done} == {name}
            by_split.setdefault(name, set()).add(frozenset(row["task"] for row in done))
    assert all(len(tasks) == 1 for tasks in by_split.values())
    train, dev, test = (next(iter(tasks)) for tasks in by_split.values())
    assert len(train) + len(dev) + len(test) == 40 == len(train | dev | test)


@pytest.mark.long
def test_the_gold_acts_without_a_model_and_prep_learns_from_it(tmp_path):
    """Several calls within one turn of the user's are turns of their own, and end no rollout."""
    shop(tmp_path, with_gold())
    result = rollout(tmp_path, model="gold", num_samples=1, out="gold", max_turns=1)
    assert result.figures["scores"] == {"env": 1.0} and result.figures["failed_calls"] == 0
    assert result.figures["lineage"] == ["gold"]
    assert result.next == f"agentlite prep --from gold --out prep-gold --run {tmp_path / 'run'}"
    prepared = agentlite.prep(
        run=str(tmp_path / "run"), trajectories=("gold",), out="prep-gold", model="smollm2-135m"
    )
    assert (prepared.figures["read"], prepared.figures["kept"]) == (4, 4)


@pytest.mark.long
@pytest.mark.usefixtures("acting")
def test_prep_learns_the_best_rollout_of_each_task_and_counts_the_others(tmp_path):
    """The second rollout of a task asks for what is not there: its calls failed."""
    shop(tmp_path, tasks())
    assert " --keep best" in rollout(tmp_path, split="all").next
    run = str(tmp_path / "run")
    options = {
        "run": run,
        "trajectories": ("rollout",),
        "model": "smollm2-135m",
        "dev": 0,
        "test": 0,
    }
    every = agentlite.prep(**options, out="every", duplicates=("none",))
    assert every.figures["kept"] == 8
    best = agentlite.prep(**options, keep="best", out="best")
    assert (best.figures["kept"], best.figures["filtered"]) == (4, 4)
    paid = agentlite.prep(**options, keep="env>=1", out="paid")
    assert (paid.figures["kept"], paid.figures["filtered"]) == (4, 4)
    rows = list(read_rows(tmp_path / "run/best/train.jsonl"))
    assert {json.loads(row["meta"])["rollout"]["sample"] for row in rows} == {0}
    # what failed is not learned
    failed = [row for row in read_rows(tmp_path / "run/every/train.jsonl") if "melon" in str(row)]
    for row in failed:
        losses = [one.get("loss", True) for one in row["messages"] if one["role"] == "assistant"]
        assert losses == [True, False, True, False, True]


def test_a_dry_run_counts_and_writes_nothing(tmp_path):
    shop(tmp_path, tasks())
    result = rollout(tmp_path, dry_run=True)
    assert result.figures == {"folder": "new", "tasks": 4, "rollouts": 8}
    assert not (tmp_path / "run").exists()


def test_a_model_in_memory_acts_and_is_repeatable(tmp_path, tiny_model):
    shop(tmp_path, tasks())
    options = {"model": str(tiny_model), "engine": "hf", "max_new_tokens": 8, "batch_size": 5}
    rollout(tmp_path, **options)
    rollout(tmp_path, "again", **{**options, "batch_size": 2})
    assert contents(tmp_path)[0] == contents(tmp_path, "again")[0]
    rows = list(read_rows(tmp_path / "run/rollout/trajectories.jsonl"))
    texts = {json.dumps([turn["text"] for turn in row["turns"]]) for row in rows}
    assert len(texts) == len(rows) == 8  # each rollout has a random stream of its own
