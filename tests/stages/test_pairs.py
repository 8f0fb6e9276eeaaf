"""pairs, dpo and grpo as commands: all is there once whatever is killed, weights need no model,
refusals are clear.
"""

import json
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from support import processes
from support.samples import WEATHER_TOOL
from support.scripted_server import ScriptedServer, ranking

import agentlite
from agentlite.config.settings import DpoSettings
from agentlite.core.errors import UserError
from agentlite.core.records import GOLD, Candidate, PreferencePair, Score, TrainedAnswer, from_row
from agentlite.core.row_files import read_structs
from agentlite.rendering import PROTOCOLS, training_rows
from agentlite.scoring.rewards import WEIGHTS
from agentlite.stages import dpo
from agentlite.workspace import lookup
from agentlite.workspace.input_files import load_template
from agentlite.workspace.lookup import finished_stage

FEW = {"max_new_tokens": 8, "max_length": 512}
TRAIN = {
    "max_steps": 4,
    "save_steps": 2,
    "batch_size": 2,
    "gradient_accumulation": 1,
    "learning_rate": 1e-2,
    "lora_r": 4,
}
ZERO = {**dict.fromkeys(WEIGHTS, 0.0), "short": 0.0}
JUDGED_ALONE = {**dict.fromkeys(WEIGHTS, 0.0), "judge": 2.0}
JUDGE = {"judge": "http://127.0.0.1:9/v1", "judge_model": "m"}
SHORT = """
def short(attempt):
    "Fewer letters earn more."
    return 1 / (1 + len(attempt.text))
"""


def row(city: str, calls: bool) -> dict:
    answer = {"role": "assistant", "content": "Good morning!"}
    if calls:
        function = {"name": "get_weather", "arguments": json.dumps({"city": city})}
        call = {"id": "a", "type": "function", "function": function}
        answer = {"role": "assistant", "content": "", "tool_calls": [call]}
    asked = f"Is it wet in {city}?" if calls else f"Good morning from {city}"
    return {"messages": [{"role": "user", "content": asked}, answer], "tools": [WEATHER_TOOL]}


@pytest.fixture(scope="module")
def run(tiny_model, tmp_path_factory):
    """A workspace with a prep of twelve short dialogs, four of which need no call."""
    run = tmp_path_factory.mktemp("run")
    cities = ["Oslo", *(f"town {number}" for number in range(11))]
    rows = [row(city, number % 3 != 2) for number, city in enumerate(cities)]
    text = "".join(json.dumps(one) + "\n" for one in rows)
    (run / "rows.jsonl").write_text(text, encoding="utf-8")
    options = {"model": str(tiny_model), "protocol": "hermes", "test": 0.0, "dev": 0.0}
    agentlite.prep(str(run / "rows.jsonl"), run=str(run), split_by="query", **options)
    (run / "mine.py").write_text(SHORT, encoding="utf-8")
    return run


@pytest.fixture(scope="module")
def paired(run, tiny_model):
    """Pairs of the random model, whose answers only a reward of our own can tell apart."""
    agentlite.pairs(
        run=str(run),
        model=str(tiny_model),
        num_samples=3,
        batch_size=5,
        gold=True,
        margin=0.0,
        **FEW,
        rewards=f"{run / 'mine.py'}:short",
    )
    return run / "pairs"


def lines(path: Path) -> Counter[str]:
    return Counter(path.read_text(encoding="utf-8").splitlines())


def done(folder: Path) -> dict:
    return json.loads((folder / "done.json").read_bytes())


def command(*arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    return processes.run(
        [sys.executable, "-m", "agentlite", *arguments], input=stdin, capture_output=True, text=True
    )


def test_every_step_gets_its_candidates_and_its_gold_and_every_step_is_accounted_for(paired):
    candidates = list(read_structs(paired / "candidates.jsonl", Candidate))
    assert len({candidate.key for candidate in candidates}) == len(candidates) == 12 * 4
    assert Counter(candidate.model == GOLD for candidate in candidates) == {True: 12, False: 36}
    scores = read_structs(paired / "scores.jsonl", Score)
    assert {score.key for score in scores} == {candidate.key for candidate in candidates}
    figures = done(paired)["figures"]
    assert figures["steps"] == 12 == figures["pairs"] + sum(figures["no_pair"].values())
    assert figures["candidates"] == 36


def test_other_weights_rank_what_is_there_without_a_model(paired, run):
    words = f"pairs --run {run} --from pairs --weights short=0 --margin 0 --out pairs-b --json"
    program = (
        "import sys\nfrom agentlite.cli.main import main\n"
        f"sys.argv = ['agentlite', *{words.split()!r}]\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code, end.code\n"
        "print({'torch', 'transformers', 'numpy'} & set(sys.modules), file=sys.stderr)"
    )
    ranked = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ranked.stderr.splitlines()[-1] == "set()", ranked.stderr
    figures = json.loads(ranked.stdout)["figures"]
    assert figures["steps"] == 12 == figures["pairs"] + sum(figures["no_pair"].values())
    assert (
        figures["pairs"] < done(paired)["figures"]["pairs"]
        or figures["mean_margin"] != done(paired)["figures"]["mean_margin"]
    )
    assert json.loads((run / "pairs-b" / "stats.json").read_bytes())["weights"]["short"] == 0


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"candidates": "pairs"}, "--out NAME"),
        ({"candidates": "prep", "out": "x"}, "samples nothing"),
        ({"candidates": "nowhere", "out": "x"}, "no such stage"),
        ({"candidates": "pairs", "out": "x", "weights": {"efficency": 1}}, "efficiency"),
        ({"candidates": "pairs", "out": "x", "weights": ZERO}, "zero"),
        ({"candidates": "pairs", "out": "x", "judge": JUDGE["judge"]}, "--judge-model NAME"),
        ({"preferences": "rows.jsonl", "out": "x", **JUDGE}, "nothing to rank"),
    ],
)
def test_what_cannot_be_ranked_is_refused_in_plain_words(options, named, paired, run):
    with pytest.raises(UserError) as told:
        agentlite.pairs(run=str(run), **options)
    assert named in str(told.value)
    assert not (run / "x" / "done.json").exists()


def test_a_reward_that_fails_costs_its_candidate_and_above_a_limit_the_run_but_no_candidate(
    run, tiny_model
):
    mine = run / "broken.py"
    mine.write_text(
        "def picky(attempt):\n    return 1 / (len(attempt.gold.calls))\n", encoding="utf-8"
    )
    given = {"run": str(run), "model": str(tiny_model), "num_samples": 2, **FEW}
    with pytest.raises(
        UserError, match=r"failed for 4 candidates; 10% of 36 may: .*ZeroDivisionError"
    ) as told:
        agentlite.pairs(**given, out="pairs-broken", rewards=f"{mine}:picky")
    assert told.value.exit_code == 4
    assert "broken.py:2" in str(told.value)
    kept = lines(run / "pairs-broken" / "candidates.jsonl")
    again = {"run": str(run), "candidates": "pairs-broken", "rewards": f"{mine}:picky"}
    allowed = agentlite.pairs(**again, out="pairs-allowed", max_failures=0.5)
    assert allowed.figures["failed_rewards"] == 12
    mine.write_text(
        "def picky(attempt):\n    return 1 / (1 + len(attempt.gold.calls))\n", encoding="utf-8"
    )
    mended = agentlite.pairs(**again, out="pairs-mended")
    assert mended.figures["failed_rewards"] == 0
    assert lines(run / "pairs-broken" / "candidates.jsonl") == kept


def test_a_judge_is_asked_once_about_each_group_and_other_weights_ask_nobody(paired, run):
    """Killed at the fifth question, and limited before the first one."""

    def reply(body):
        if len(server.bodies) == 5:
            process.kill()
        return ranking(body["messages"][-1]["content"])

    server = ScriptedServer(reply)
    words = f"pairs --run {run} --from pairs --out judged --margin 0 --json --judge-model m "
    words += f"--judge {server.url} --set pairs.requests.concurrency=1"
    groups: dict[str, set[str]] = {}
    for one in read_structs(paired / "candidates.jsonl", Candidate):
        if one.model != GOLD:
            groups.setdefault(one.record_id, set()).add(one.text.strip())
    count = sum(len(texts) > 1 for texts in groups.values())
    limited = command(*words.split(), "--judge-limit", "3")
    assert limited.returncode == 2 and f"--judge-limit {count}" in limited.stdout
    assert server.bodies == []
    process = subprocess.Popen(
        [sys.executable, "-m", "agentlite", *words.split()], stderr=subprocess.DEVNULL
    )
    assert process.wait() == -9 and len(server.bodies) == 5
    whole = command(*words.split(), "--judge-limit", f"{count}")
    server.close()
    assert whole.returncode == 0, whole.stderr
    assert len(server.bodies) == count + 1  # the fifth reply came too late
    again = {"judge": server.url, "judge_model": "m", "judge_limit": count, "margin": 0.0}
    again |= {"weights": JUDGED_ALONE, "gold": False, "out": "judged-b"}
    given = {"run": str(run), "candidates": "pairs"}
    agentlite.pairs(**given, **again)
    pairs = list(read_structs(run / "judged-b" / "pairs.jsonl", PreferencePair))
    assert {pair.record_id for pair in pairs} == {
        name for name, texts in groups.items() if len({*map(len, texts)}) > 1
    }
    for pair in pairs:
        lengths = sorted(map(len, groups[pair.record_id]))
        sides = [len(side.text.strip()) for side in (pair.chosen, pair.rejected)]
        assert sides == [lengths[0], lengths[-1]]


def test_prompts_may_come_from_stdin_with_their_gold(run, tiny_model):
    tools = [WEATHER_TOOL["function"]]
    gold = [{"name": "get_weather", "arguments": {"city": ["Oslo", "Oslo, Norway"]}}]
    rows = [
        {"prompt": "Is it wet in Oslo?", "tools": tools, "gold": gold},
        {"prompt": "Good morning", "tools": tools, "gold": []},
        row("Paris", True),
    ]
    text = "".join(json.dumps(one) + "\n" for one in rows)
    words = f"pairs --run {run} --data - --model {tiny_model} -n 2 --gold --out pairs-stdin --json"
    given = [*words.split(), "--max-new-tokens", "8"]
    told = command(*given, stdin=text)
    assert told.returncode == 0, told.stderr
    assert json.loads(told.stdout)["figures"]["steps"] == 3
    assert json.loads(command(*given, stdin=text).stdout)["status"] == "up to date"
    assert command(*given, stdin=text + "\n").returncode == 3


def test_what_a_server_leaves_unanswered_is_asked_again_and_nothing_else(run):
    """Stopped, then finished without these candidates, then made whole: as if all had come."""
    open_again = False

    def reply(body):
        asked = body["messages"][-1]["content"]
        refuses = "Oslo" in asked and not open_again
        return "REFUSES" if refuses else f"{asked} Perhaps."

    server = ScriptedServer(reply)
    given = {"run": str(run), "model": "theirs", "endpoint": server.url, "num_samples": 2, **FEW}
    try:
        with pytest.raises(UserError, match="2 of 24 questions have no answer") as stopped:
            agentlite.pairs(**given, out="pairs-served")
        assert stopped.value.exit_code == 8 and len(server.bodies) == 24
        told = agentlite.pairs(**given, out="pairs-served", unanswered="wrong")
        assert (told.figures["candidates"], told.figures["unanswered"]) == (22, 2)
        open_again = True
        told = agentlite.pairs(**given, out="pairs-served")
        assert told.status == "done"
        assert (told.figures["candidates"], told.figures["unanswered"]) == (24, 0)
        assert len(server.bodies) == 24 + 2 + 2
        assert agentlite.pairs(**given, out="pairs-served").status == "up to date"
        agentlite.pairs(**given, out="pairs-at-once")
    finally:
        server.close()
    for name in ("candidates.jsonl", "scores.jsonl", "pairs.jsonl"):
        again, once = (run / out / name for out in ("pairs-served", "pairs-at-once"))
        assert lines(again) == lines(once)
    again, once = (run / f"{out}/candidates.jsonl" for out in ("pairs-served", "pairs-at-once"))
    assert again.read_bytes() == once.read_bytes()


def test_a_pair_is_rendered_as_the_training_row_is_its_end_of_turn_once(paired, tiny_model):
    """Where the gold is chosen, prompt and answer are the beginning of what sft would train on."""
    template = load_template(str(tiny_model))
    end = template.token_id(template.turn_end)
    rows = dict(
        zip(
            read_structs(paired / "pairs.jsonl", PreferencePair),
            dpo.read_preferences(DpoSettings(), finished_stage(paired, "pairs"), template),
            strict=True,
        )
    )
    records = {
        record.id: record
        for line in (paired / "records.jsonl").read_text(encoding="utf-8").splitlines()
        if (record := from_row(json.loads(line)))
    }
    assert any(pair.chosen.model == GOLD for pair in rows)
    for pair, one in rows.items():
        for side, ids in ((pair.chosen, one.chosen), (pair.rejected, one.rejected)):
            assert ids.count(end) == (side.ended == "turn")
        if pair.chosen.model == GOLD:
            (encoded,) = training_rows(records[pair.record_id], PROTOCOLS["hermes"], template)
            ids = one.prompt + one.chosen
            assert encoded.input_ids[: len(ids)] == ids
            assert [label for label in encoded.labels if label >= 0] == one.chosen


def test_dpo_goes_on_from_where_the_pairs_came_from_and_names_its_lineage(paired, run, tiny_model):
    result = agentlite.dpo(run=str(run), **TRAIN)
    assert result.figures["lineage"] == [str(tiny_model), "dpo"]
    assert result.figures["pairs"] == done(paired)["figures"]["pairs"]
    assert result.figures["first_loss"] == pytest.approx(0.693147, abs=1e-5)
    assert agentlite.dpo(run=str(run), **TRAIN).status == "up to date"
    again = agentlite.dpo(run=str(run), model="dpo", out="dpo-2", **{**TRAIN, "lora_r": None})
    assert again.figures["lineage"] == [str(tiny_model), "dpo", "dpo-2"]
    assert json.loads((run / "dpo-2" / "plan.json").read_bytes())["settings"]["lora_r"] == 4


GRPO = (
    "--max-steps 4 --save-steps 2 --batch-size 4 --gradient-accumulation 2 --lora-r 4 "
    "--learning-rate 0.01 --max-new-tokens 6 --max-length 512"
)


def grpo(run: Path, model: Path, out: str) -> list[str]:
    words = f"grpo --run {run} --model {model} --out {out} {GRPO}"
    return [*words.split(), "--rewards", f"{run / 'mine.py'}:short"]


@pytest.fixture(scope="module")
def rolled(run, tiny_model):
    told = command(*grpo(run, tiny_model, "grpo"), "--json")
    assert told.returncode == 0, told.stderr
    return run / "grpo"


def test_grpo_keeps_every_answer_with_its_parts(rolled, run):
    rows = list(read_structs(rolled / "rollouts.jsonl", TrainedAnswer))
    assert len({row.candidate.key for row in rows}) == len(rows)
    assert Counter(row.trained for row in rows if row.model == "grpo") == {0: 8, 1: 8, 2: 8, 3: 8}
    metrics = [
        json.loads(line)
        for line in (rolled / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    for step, metric in enumerate(metrics):
        told = [
            row.components["short"] for row in rows if row.model == "grpo" and row.trained == step
        ]
        assert metric["reward/short"] == pytest.approx(sum(told) / 8, abs=1e-5)
    assert done(rolled)["figures"]["lineage"][-1] == "grpo"


def test_pairs_are_made_of_what_grpo_drew_under_any_weights(rolled, run, tiny_model):
    result = agentlite.pairs(run=str(run), candidates="grpo", out="pairs-of-grpo", margin=0.0)
    assert result.figures["candidates"] == sum(
        row.model != GOLD for row in read_structs(rolled / "rollouts.jsonl", TrainedAnswer)
    )
    assert result.figures["pairs"] > 0
    assert (
        agentlite.dpo(run=str(run), data="pairs-of-grpo", out="dpo-of-grpo", **TRAIN).status
        == "done"
    )


def test_a_reward_that_fails_stops_grpo_with_its_state_saved_and_the_same_command_carries_on(
    run, tiny_model
):
    mine = run / "strict.py"
    mine.write_text(
        "def strict(attempt):\n    assert attempt.finished\n    return 1\n", encoding="utf-8"
    )
    given = [*grpo(run, tiny_model, "grpo-failing")[:-2], "--rewards", f"{mine}:strict"]
    stopped = command(*given)
    assert stopped.returncode == 4, stopped.stderr
    assert "strict raised AssertionError" in stopped.stderr and "carries on" in stopped.stderr
    assert [path.name for path in (run / "grpo-failing" / "checkpoints").glob("checkpoint-*")] == [
        "checkpoint-1"
    ]
    again = command(*given, "--set", "grpo.max_failures=1", "--json")
    assert again.returncode == 0, again.stderr
    figures = json.loads(again.stdout)["figures"]
    assert (figures["steps"], figures["failed_rewards"]) == (4, 32)


def test_pairs_of_test_records_are_not_trained_on(paired, run, tiny_model, tmp_path):
    shutil.copytree(paired, tmp_path / "pairs")
    plan = lookup.read_plan(paired)
    plan = msgspec.structs.replace(plan, settings={**plan.settings, "split": "test"})
    (tmp_path / "pairs" / "plan.json").write_bytes(msgspec.json.encode(plan))
    with pytest.raises(UserError, match="test records"):
        agentlite.dpo(run=str(tmp_path), data=str(tmp_path / "pairs"), **TRAIN)


@pytest.mark.parametrize("with_gold", [0, 1])
def test_prompts_without_gold_become_pairs_and_rollouts_by_own_rewards(
    with_gold, run, tiny_model, tmp_path
):
    """Beside a row with gold as well; and what compares with gold is refused, with the ways out."""
    asked = ("Is it wet in Oslo?", "Is it wet in Rome?")
    rows = [{"prompt": question, "tools": [WEATHER_TOOL]} for question in asked]
    rows += [row("Bern", calls=True)] * with_gold
    data = tmp_path / "prompts.jsonl"
    data.write_text("".join(json.dumps(one) + "\n" for one in rows), encoding="utf-8")
    options = {
        "data": str(data),
        "run": str(tmp_path),
        "model": str(tiny_model),
        "rewards": f"{run / 'mine.py'}:short",
        **FEW,
    }
    for stage in (agentlite.pairs, agentlite.grpo):
        problem = f"2 of {2 + with_gold} prompts have no gold"
        with pytest.raises(UserError, match=problem) as refused:
            stage(**options)
        assert "recipes/no-gold.yaml" in refused.value.fix
    config = ["recipes/no-gold.yaml"]
    agentlite.pairs(**options, config=config, num_samples=3, margin=0.0)
    folder = tmp_path / "pairs"
    candidates = read_structs(folder / "candidates.jsonl", Candidate)
    assert sum(one.model == GOLD for one in candidates) == with_gold
    pairs = list(read_structs(folder / "pairs.jsonl", PreferencePair))
    assert pairs and all(len(one.chosen.text) < len(one.rejected.text) for one in pairs)
    with pytest.raises(UserError, match="no score for 'task_completion'"):
        agentlite.pairs(candidates="pairs", run=str(tmp_path), out="again")
    agentlite.dpo(run=str(tmp_path), **{**TRAIN, "max_steps": 1})
    server = ScriptedServer(lambda body: ranking(body["messages"][-1]["content"]))
    agentlite.grpo(
        **options,
        config=config,
        judge=server.url,
        judge_model="m",
        **{**TRAIN, "max_steps": 1, "gradient_accumulation": 2},
        group_size=2,
    )
    server.close()
    assert done(tmp_path / "dpo") and done(tmp_path / "grpo")
    rollouts = list(read_structs(tmp_path / "grpo" / "rollouts.jsonl", TrainedAnswer))
    assert all("short" in one.components and "exact" not in one.components for one in rollouts)
    sampled = [one for one in rollouts if one.model != GOLD]
    texts = [one.text.strip() for one in sampled]
    for place in range(0, len(texts), 2):
        first, second = map(len, texts[place : place + 2])
        share = (first < second) + (first == second) / 2
        of_group = [one.components["judge"] for one in sampled[place : place + 2]]
        assert of_group == [share, 1 - share]
    assert len(server.bodies) == sum(a != b for a, b in zip(texts[::2], texts[1::2], strict=True))


UNCLOSED = """
def unclosed(attempt):
    return float(attempt.parsed.problem == "thinking is not closed")
"""


def test_pairs_and_grpo_read_what_they_sample_as_the_template_of_the_model_writes_it(
    run, tiny_model, tmp_path
):
    """A prompt opens a thought: no answer of eight random tokens closes it, and the gold does."""
    model, mine = shutil.copytree(tiny_model, tmp_path / "thinking"), tmp_path / "mine.py"
    template = model / "chat_template.jinja"
    template.write_text(template.read_text().replace("assistant\n'", "assistant\n<think>\n'"))
    mine.write_text(UNCLOSED, encoding="utf-8")
    options = {"model": str(model), "rewards": f"{mine}:unclosed", "run": str(run), **FEW}
    agentlite.pairs(**options, out="thinking", num_samples=1)
    agentlite.grpo(**options, out="thinking-grpo", group_size=2, **{**TRAIN, "max_steps": 1})
    scores = read_structs(run / "thinking" / "scores.jsonl", Score)
    rollouts = read_structs(run / "thinking-grpo" / "rollouts.jsonl", TrainedAnswer)
    for rows in (scores, rollouts):
        outcomes = {(row.model == GOLD, row.components["unclosed"]) for row in rows}
        assert outcomes == {(True, 0.0), (False, 1.0)}
