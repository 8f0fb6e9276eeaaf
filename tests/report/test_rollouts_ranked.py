"""Which rollout is worse than which, where two part, and what is shown of each, by small rows."""

import base64
import json
import math
import random
import zlib

import msgspec
import pytest
from support.generated_rollouts import rollout, says, write_live
from support.generated_run import stage

from agentlite.core.row_files import encode, write_rows
from agentlite.report import write_report
from agentlite.report.read_run import read_run
from agentlite.report.rollout_viewer import pack_rollouts
from agentlite.report.rollouts import (
    LOST,
    Parting,
    ReportedRollout,
    ReportedTurn,
    RolloutFile,
    ShownRollout,
    _read,
    file_of,
    in_words,
    parting,
    read_rollouts,
    text_of,
)

TALK = [says("No."), says("I would rather talk.")]


def files(folder, **rollouts):
    """A file of samples for each model."""
    for model, done in rollouts.items():
        write_rows(folder / f"{model}.jsonl", map(msgspec.to_builtins, done))
    return [RolloutFile(model, folder / f"{model}.jsonl", True) for model in rollouts]


def packed(found):
    text = pack_rollouts("x", found, 10**6).text
    return json.loads(zlib.decompress(base64.b64decode(text)))


def reported(*turns):
    return ReportedRollout("t", 0, [], [*turns], "user", {})


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


def test_the_verdict_of_the_benchmark_comes_before_that_of_the_environment(tmp_path):
    done = [rollout("apple", TALK, {"gold_calls": 0.0, "env": 1.0, "bfcl": 0.0})]
    found = read_rollouts(files(tmp_path, m=done))
    assert found.names == ["bfcl", "env", "gold_calls"] and found.failed == 1


@pytest.mark.parametrize("ended", ["world", "unanswered"])
def test_a_rollout_whose_world_or_server_broke_has_failed_and_comes_first(ended, tmp_path):
    done = [rollout("apple", TALK, {"env": 0.0}), rollout("plum", TALK, {}, ended=ended)]
    found = read_rollouts(files(tmp_path, m=done))
    assert [one.rollout.task for one in found.shown] == ["plum", "apple"] and found.failed == 2


@pytest.mark.parametrize(
    ("command", "settings", "sampled"),
    [
        ("rollout", {}, False),
        ("rollout", {"num_samples": 1}, False),
        ("rollout", {"num_samples": 2}, True),
        ("grpo", {}, True),
    ],
)
def test_the_rollouts_of_a_stage_have_numbers_where_a_task_has_several(
    command, settings, sampled, tmp_path
):
    plan = {"command": command, "settings": {"model": "m", **settings}, "inputs": {}}
    stage(tmp_path / "one", plan, {"trajectories.jsonl": []}, {})
    (found,) = read_run(tmp_path).stages
    assert [(one.model, one.sampled) for one in file_of(found)] == [("m", sampled)]


def test_a_turn_of_the_assistants_in_the_prompt_is_none_of_the_model():
    row = msgspec.to_builtins(rollout("apple", TALK, {"env": 0.0}))
    example = {"role": "assistant", "content": "An example."}
    row["messages"].insert(1, example)
    one = _read(encode(row))
    assert one.prompt == row["messages"][:3] and example in one.prompt
    assert [text_of(answer) for answer in one.answers] == ["No.", "I would rather talk."]


def test_blanks_around_an_answer_part_no_rollouts_and_another_user_does():
    assert parting(reported(ReportedTurn(" a\n")), reported(ReportedTurn("a"))) == (1, "end")
    one, other = (reported(ReportedTurn("a", user=user)) for user in ("Yes.", None))
    assert parting(one, other) == Parting(0, "result")


def test_the_words_of_several_parts_stand_on_lines_of_their_own():
    assert text_of({"content": [{"text": "a"}, {"type": "image"}, "b"]}) == "a\n\nb"


def test_a_score_of_a_turn_that_is_no_number_is_left_out():
    by_turn = [{"turn_right": math.nan, "mine": 0.5}, {"mine": math.inf}]
    one = _read(encode(msgspec.to_builtins(rollout("a", TALK, {}, by_turn=by_turn))))
    assert one.by_turn == [{"mine": 0.5}, {}]


def test_a_rollout_is_a_line_with_its_scores_and_the_beginning_of_a_long_problem(tmp_path):
    done = rollout("apple", TALK, {"env": 0.12345}, ended="world", problem="x" * 300)
    one = _read(encode(msgspec.to_builtins(done)))
    line = in_words(ShownRollout(RolloutFile("m", tmp_path, False), one, None))
    assert "env 0.123;" in line and f"({'x' * 200})" in line


def test_the_best_of_a_task_is_named_also_where_its_model_has_no_row(tmp_path):
    """Where the page has no room for all."""
    one = read_rollouts(
        files(
            tmp_path,
            poor=[rollout("apple", TALK, {"env": 0.0})],
            good=[rollout("apple", TALK[:1], {"env": 1.0}, sample=7)],
        ),
        most=1,
    )
    data = packed(one)
    model, sample, turn, by, said, *_ = data["rollouts"][0][-1]
    assert (data["models"][model], sample, turn, by, said) == ("good", 7, 1, "end", None)


def test_scores_stand_under_their_names_and_tools_have_numbers(tmp_path):
    other = {"type": "function", "function": {"name": "sell", "parameters": {}}}
    first = rollout("a", TALK, {"env": 0.0})
    second = rollout("b", TALK, {"mine": 0.5})
    second.tools.insert(0, other)
    data = packed(read_rollouts(files(tmp_path, m=[first, second])))
    assert data["metrics"] == ["env", "mine"]
    assert [one[6] for one in data["rollouts"]] == [[0.0, None], [None, 0.5]]
    assert [[data["tools"][at][0] for at in one[10]] for one in data["rollouts"]] == [
        ["buy"],
        ["sell", "buy"],
    ]
    assert len(data["tools"]) == 2


def test_the_faults_of_a_simulated_user_are_shown_and_cut_like_all_texts(tmp_path):
    row = msgspec.to_builtins(rollout("a", TALK, {"env": 0.0}))
    row["simulated_user"] = {"faults": [[1, "call", "short"], [3, "cut", "y" * 30_000]]}
    write_rows(tmp_path / "x.jsonl", [row])
    data = packed(read_rollouts([RolloutFile("m", tmp_path / "x.jsonl", True)]))
    [short, long] = data["rollouts"][0][11]
    assert short == [1, "call", "short"] and long[:2] == [3, "cut"]
    assert long[2].endswith("[10,000 more characters]")


def test_half_a_character_in_a_task_costs_no_report(tmp_path):
    run = write_live(tmp_path / "run", {"m": [rollout("\ud83d", TALK, {"env": 0.0})]})
    write_report(run)
    assert "task ?, m" in (run / "report.md").read_text(encoding="utf-8")
