"""The reader of rollouts: the worst first, all as text."""

import base64
import json
import random
import re
import zlib

import msgspec
import pytest
from support.generated_rollouts import rollout, says, write_live, write_rollout
from support.generated_run import stage

from agentlite.report import write_report
from agentlite.report.read_run import read_run
from agentlite.report.readers import LOST, read_rollouts

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
BIDI = "\u202egnp.exe\u2066 \u200f\x00\x1b[31m"
BOUGHT = says("", {"item": "apple"}, "1 in the cart")
ASKS = says("Anything else?", user="One more.")
RIGHT = [says("<think>I need it.</think>\n\nI buy it.", {"item": "apple"}, "1 in the cart"), ASKS]
RIGHT += [BOUGHT, says("Done.")]
WRONG = [RIGHT[0], ASKS, says("", {"item": "melon"}, "Error: no melon", failed=True)]
WRONG += [says("I cannot.", problem="call not closed")]
TALK = [says("I would rather talk.", user="One more."), says("No.")]
HALF = [{"turn_right": 1.0}, {"turn_right": 0.0}]


def apple(turns, score, **columns):
    return rollout("apple", turns, {"env": score}, **columns)


@pytest.fixture
def run(tmp_path):
    """Two models in three tasks, four samples of the better one, and a stage of two rollouts."""
    good = [
        apple(RIGHT, 1.0, by_turn=[{"turn_right": 1.0}] * 2),
        rollout("pear", TALK, {"env": 0.0}),
        rollout("plum", RIGHT[:1], {}, ended="world", problem="call ended: the process is gone"),
    ]
    poor = [
        apple(WRONG, 0.5, by_turn=HALF),
        rollout("pear", RIGHT[:1] * 3, {"env": 0.0}, ended="turns"),
        rollout("plum", TALK, {"env": 0.0}),
    ]
    samples = [apple(RIGHT if n % 2 else TALK, float(n % 2), sample=n) for n in range(4)]
    write_live(tmp_path / "run", {"base": poor, "sft": good}, {"sft": samples})
    both = [apple(TALK, 0.0, sample=0), apple(RIGHT, 1.0, sample=1)]
    return write_rollout(tmp_path / "run", both)


def read_page(run):
    write_report(run)
    return (run / "report.html").read_text(encoding="utf-8")


def packed(page):
    texts = re.findall(r'class="packed">([^<]*)<', page)
    return [json.loads(zlib.decompress(base64.b64decode(text))) for text in texts]


def test_both_readers_hold_every_rollout_the_worst_first(run):
    live, stage = packed(read_page(run))
    models = live["models"]
    who = [(models[one["model"]], one["task"], one["sample"]) for one in live["rollouts"]]
    scores = [one["scores"] for one in live["rollouts"]]
    assert who[0] == ("sft", "plum", None)
    means = [0.0] * 5 + [0.5] + [1.0] * 3
    assert scores == [{}, *({"env": mean} for mean in means)] and live["metrics"] == ["env"]
    right = [one for one, score in zip(who, scores, strict=True) if score.get("env") == 1]
    assert ("sft", "apple", 3) in right and ("sft", "apple", None) in right
    sampled = [(one["sample"], one["scores"]["env"]) for one in stage["rollouts"]]
    assert sampled == [(0, 0.0), (1, 1.0)]
    one = live["rollouts"][scores.index({"env": 0.5})]
    assert one["by_turn"] == HALF and one["failed"]
    assert one["messages"][1] == {"role": "user", "content": "Buy a apple."}
    assert one["turns"][2]["results"] == [["Error: no melon", True]]
    assert [turn["user"] for turn in one["turns"]] == [None, "One more.", None, None]
    assert [live["tools"][number]["function"]["name"] for number in one["tools"]] == ["buy"]


def evil_run(folder):
    text = EVIL + BIDI
    turns = [says(text, {"item": text}, text, failed=True, user=text), says(text, problem=text)]
    one = rollout(text, turns, {EVIL: 0.5}, ended="user", problem=text, asked=text)
    return write_live(folder, {"base": [one, apple(RIGHT, 1.0)]}, env="mcp:x")


def test_a_worlds_text_never_becomes_markup(tmp_path):
    run = evil_run(tmp_path / "run")
    page = read_page(run)
    assert EVIL not in page and "<img" not in page and page.count("<script") == 2
    [data] = packed(page)
    evil = next(one for one in data["rollouts"] if one["task"] == EVIL + BIDI)
    assert evil["turns"][0]["results"] == [[EVIL + BIDI, True]] and evil["problem"] == EVIL + BIDI


TALKS = [says("No."), says("I would rather talk.")]


@pytest.mark.parametrize("seed", range(4))
def test_the_worst_come_first(tmp_path, seed):
    """Lost ones, then by the verdict, then by the mean, then as their files have them."""
    chance = random.Random(seed)
    made = []
    for n in range(24):
        lost = chance.random() < 0.2
        scores = {} if lost else {name: chance.choice([0.0, 0.5, 1.0]) for name in ("mine", "env")}
        ended = chance.choice(LOST) if lost else "user"
        task, turns = chance.choice(["apple", "fig"]), TALKS * chance.randint(1, 2)
        made.append(rollout(task, turns, scores, sample=n, ended=ended))
    plan = {"command": "rollout", "settings": {"num_samples": 2}, "inputs": {}}
    for model, done in (("m", made[:13]), ("k", made[13:])):
        rows = {"trajectories.jsonl": map(msgspec.to_builtins, done)}
        stage(tmp_path / model, plan, rows, {})
    run = read_run(tmp_path)
    found = read_rollouts({name: run.stage(name) for name in "mk"})
    order = sorted(
        made, key=lambda one: (bool(one.scores), one.scores.get("env", 0), sum(one.scores.values()))
    )
    assert [one["sample"] for one in found] == [one.sample for one in order]
    assert [one["model"] for one in found] == ["mk"[one.sample > 12] for one in order]
