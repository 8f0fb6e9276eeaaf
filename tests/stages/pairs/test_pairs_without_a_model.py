"""pairs with a sampler that says what the test wants: what is sampled, kept, scored and refused."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from support import sampled_pairs
from support.samples import DATA

import agentlite
from agentlite.config.resolve import plain_settings
from agentlite.config.settings import PairsSettings, fields
from agentlite.core.errors import OTHER_PLAN, REJECTS, UserError
from agentlite.core.records import GOLD, Candidate, Gold, Record, Score, Step
from agentlite.core.row_files import Appender, read_rows, write_json, write_rows
from agentlite.rendering import PROTOCOLS, Prompt
from agentlite.scoring.rewards import COMPONENTS, PENALTIES, WEIGHTS
from agentlite.scoring.rewards.scorer import Tally
from agentlite.stages import pairs
from agentlite.stages.pairs import earlier_candidates as stored
from agentlite.stages.pairs import sample, score
from agentlite.stages.pairs.next_command import (
    EDITED,
    RANKED,
    ROLLOUTS,
    SAMPLE_MORE,
    with_next,
)
from agentlite.stages.pairs.rank import pair_rule, rank, read_weightings
from agentlite.workspace.digests import file_digest
from agentlite.workspace.model_source import Source
from agentlite.workspace.run_folder import (
    Expected,
    Plan,
    RunTarget,
    StageFolder,
    open_stage,
    read_expected,
)


def prompt(name: str, length: int) -> Prompt:
    record: Any = SimpleNamespace(
        id=name, unknown_arguments=lambda turn: [], has_gold=lambda turn: True
    )
    return Prompt(record, 1, "hermes", [0] * length, f"gold of {name}", "turn")


@pytest.mark.parametrize(
    ("max_length", "max_new_tokens", "fits"), [(100, 40, 60), (100, 99, 1), (41, 40, 1)]
)
def test_a_prompt_fits_if_a_whole_answer_has_room_behind_it(
    max_length, max_new_tokens, fits, capsys
):
    settings = PairsSettings(max_length=max_length, max_new_tokens=max_new_tokens)
    asked = [prompt("a", fits), prompt("b", fits + 1), prompt("c", 1)]
    fitting, too_long = sample.fitting_prompts(settings, asked)
    assert [one.record.id for one in fitting] == ["a", "c"] and too_long == 1
    assert f"1 prompts are longer than {fits} tokens" in capsys.readouterr().err
    with pytest.raises(UserError, match=f"every prompt is longer than {fits} tokens") as refused:
        sample.fitting_prompts(settings, [prompt("b", fits + 1)])
    assert refused.value.location == "pairs.max_length"


@pytest.mark.parametrize("max_new_tokens", [100, 101])
def test_an_answer_that_leaves_no_room_for_a_prompt_is_refused(max_new_tokens):
    settings = PairsSettings(max_length=100, max_new_tokens=max_new_tokens)
    with pytest.raises(UserError, match="leaves no room for a prompt") as refused:
        sample.fitting_prompts(settings, [prompt("a", 1)])
    assert refused.value.location == "pairs.max_new_tokens"


@pytest.fixture
def sampler(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Answers every prompt; notes how it was made and the batches it was given."""
    noted = SimpleNamespace(made=[], batches=[], fails_at=None)

    def make(source: Any, model: str, protocols: Any, loading: Any, decoding: Any) -> Any:
        noted.made.append((model, decoding))

        def answer(batch: Sequence[Prompt]) -> Any:
            noted.batches.append([one.record.id for one in batch])
            for one in batch:
                for n in range(decoding.num_samples):
                    if noted.fails_at == (one.record.id, n):
                        raise KeyboardInterrupt
                    text = f"{one.record.id}{n}"
                    yield Candidate(*one.step, one.protocol, model, n, text, "turn", 1)

        return answer

    monkeypatch.setattr(sample, "make_sampler", make)
    return noted


@pytest.mark.parametrize("helps", [SAMPLE_MORE, RANKED, ROLLOUTS, EDITED])
@pytest.mark.parametrize(
    ("figures", "out", "command", "notice"),
    [
        ({"pairs": 1}, "pairs", "agentlite dpo --run RUN", ""),
        ({"pairs": 9}, "b", "agentlite dpo --data b --out dpo-b --run RUN", ""),
        ({"pairs": 0, "no_pair": {}}, "pairs", "", "no pair was made. To get some, "),
        (
            {"pairs": 0, "no_pair": {"same text": 2, "small margin": 1}},
            "b",
            "",
            "no pair was made (same text 2, small margin 1). To get some, ",
        ),
    ],
)
def test_what_comes_next_is_dpo_where_there_is_a_pair(
    figures, out, command, notice, helps, tmp_path, capsys
):
    target = RunTarget(tmp_path, out)
    with open_stage(target.folder, Plan("pairs", {}, {}), force=False) as stage:
        stage.finish([], figures)
        assert with_next(stage, target, helps).next == command.replace("RUN", str(tmp_path))
    assert capsys.readouterr().err == (f"pairs: {notice}{helps}\n" if notice else "")
    named = re.findall(r"--([a-z-]+)", helps)
    assert fields("pairs").keys() >= {name.replace("-", "_") for name in named}


def test_a_ranking_that_makes_no_pair_says_so_and_names_no_dpo(tmp_path, capsys):
    agentlite.prep(str(DATA / "weather.jsonl"), run=str(tmp_path), model="smollm2-135m")
    sampled_pairs.sampled(tmp_path)
    result = agentlite.pairs(candidates="pairs", margin=99.0, out="none", run=str(tmp_path))
    assert (result.figures["pairs"], result.next) == (0, "")
    assert f". To get some, {RANKED}\n" in capsys.readouterr().err
    result = agentlite.pairs(candidates="pairs", out="some", run=str(tmp_path))
    assert result.next.startswith("agentlite dpo --data some")
    assert pairs.key_figure({"pairs": 2, "steps": 5}) == "2 pairs at 5 steps"


SETTINGS = PairsSettings(
    model="m", num_samples=2, batch_size=2, temperature=0.5, top_p=0.9, max_new_tokens=7, seed=3
)
ASKED = [prompt("a", 5), prompt("b", 6), prompt("c", 7)]


def keys(folder: Path) -> list[tuple[str, str, int]]:
    rows = read_rows(folder / "candidates.jsonl")
    return sorted((row["record_id"], row["model"], row["sample"]) for row in rows)


EVERY = sorted(
    [(name, GOLD, 0) for name in "abc"] + [(name, "m", n) for name in "abc" for n in (0, 1)]
)


LOCAL = Source("m", "m", None, "digest")


def stage_in(folder: Path) -> StageFolder:
    return StageFolder(folder, Plan("pairs", {}, {}), "new")


def test_every_step_gets_its_gold_and_its_samples_once(tmp_path, sampler, capsys):
    sample.sample_candidates(SETTINGS, LOCAL, ASKED, PROTOCOLS, stage_in(tmp_path))
    assert keys(tmp_path) == EVERY
    [(model, decoding)] = sampler.made
    assert model == "m"
    assert (decoding.max_new_tokens, decoding.temperature, decoding.top_p) == (7, 0.5, 0.9)
    assert (decoding.seed, decoding.num_samples) == (3, 2)
    assert all(len(batch) <= 2 for batch in sampler.batches)
    assert "pairs: 6 candidates of m at 3 steps\n" in capsys.readouterr().err
    gold = [row for row in read_rows(tmp_path / "candidates.jsonl") if row["model"] == GOLD]
    assert [row["text"] for row in gold] == ["gold of a", "gold of b", "gold of c"]
    sampler.made.clear()
    sample.sample_candidates(SETTINGS, LOCAL, ASKED, PROTOCOLS, stage_in(tmp_path))
    assert sampler.made == [] and keys(tmp_path) == EVERY


@pytest.mark.parametrize("name", "abc")
@pytest.mark.parametrize("number", [0, 1])
def test_stopped_at_any_candidate_the_missing_ones_are_sampled_batch_by_batch(
    tmp_path, sampler, name, number, capsys
):
    sampler.fails_at = (name, number)
    with pytest.raises(KeyboardInterrupt):
        sample.sample_candidates(SETTINGS, LOCAL, ASKED, PROTOCOLS, stage_in(tmp_path))
    assert read_expected(tmp_path) == Expected("candidates.jsonl", len(EVERY))
    there = sum(model == "m" for _, model, _ in keys(tmp_path))
    before, sampler.fails_at = [*sampler.batches], None
    sampler.batches.clear()
    capsys.readouterr()
    sample.sample_candidates(SETTINGS, LOCAL, ASKED, PROTOCOLS, stage_in(tmp_path))
    assert keys(tmp_path) == EVERY
    assert read_expected(tmp_path) == Expected("candidates.jsonl", len(EVERY))
    assert before[-1] == sampler.batches[0]  # the same batch, whole, and none that was finished
    assert len(before) - 1 + len(sampler.batches) == 2
    cached = f", {there} there already" if there else ""
    assert f"6 candidates of m at 3 steps{cached}\n" in capsys.readouterr().err


def test_candidates_that_servers_gave_in_any_order_are_put_in_that_of_steps_and_samples(tmp_path):
    gold = [Candidate(*one.step, "hermes", GOLD, 0, "yes", "turn", 1) for one in ASKED]
    given = [
        Candidate(*one.step, "hermes", "m", n, "no", "turn", 1) for one in ASKED for n in range(3)
    ]
    path = tmp_path / "candidates.jsonl"
    write_rows(path, map(msgspec.structs.asdict, [*reversed(given), *gold]))
    sample._put_in_order(path, ASKED)
    found = [(row["record_id"], row["model"], row["sample"]) for row in read_rows(path)]
    assert found == [(one.record_id, one.model, one.sample) for one in (*gold, *given)]


def test_records_without_a_step_to_ask_are_refused():
    prepared: Any = SimpleNamespace(records=lambda: iter([]), location="train.jsonl")
    with pytest.raises(UserError, match="holds no record with tools") as refused:
        sample.chosen_records(SETTINGS, prepared, WEIGHTS)
    assert refused.value.location == "train.jsonl"
    records: Any = [
        SimpleNamespace(id=str(n), source="s", gold={}, prompted_turns=[1] if n % 2 else [])
        for n in range(6)
    ]
    prepared = SimpleNamespace(records=lambda: iter(records), location="train.jsonl")
    assert [one.id for one in sample.chosen_records(SETTINGS, prepared, WEIGHTS)] == ["1", "3", "5"]
    few = [
        tuple(one.id for one in sample.chosen_records(of_seed, prepared, WEIGHTS))
        for of_seed in (PairsSettings(limit=2, seed=seed) for seed in range(5))
    ]
    assert {len(one) for one in few} == {2} and len({*few}) > 1


# --- scores ---


def candidate(name: str, n: int = 0) -> Candidate:
    return Candidate(name, 1, "hermes", "m", n, name, "turn", 1)


def scored(one: Candidate, error: str = "") -> Score:
    return Score(*one.key, components={"exact": 1.0}, error=error)


def test_scores_with_an_error_are_made_again_and_others_are_kept(tmp_path):
    first, second, third = (candidate(name) for name in "abc")
    rows = [msgspec.structs.asdict(scored(first)), msgspec.structs.asdict(scored(second, "broke"))]
    write_rows(tmp_path / "scores.jsonl", rows)
    with open(tmp_path / "scores.jsonl", "ab") as file:
        file.write(b'{"record_id": "to')  # torn
    asked: list[list[str]] = []

    def scorer(left: Sequence[Candidate]) -> Any:
        asked.append([one.record_id for one in left])
        return map(scored, left)

    tally = Tally(0.1, tmp_path, "")
    found = score.score_candidates(tmp_path, [first, second, third], scorer, tally)  # type: ignore[arg-type]
    assert asked == [["b", "c"]] and {*found} == {first.key, second.key, third.key}
    kept = [(row["record_id"], row["error"]) for row in read_rows(tmp_path / "scores.jsonl")]
    assert kept == [("a", ""), ("b", ""), ("c", "")] and (tally.scored, tally.failed) == (2, 0)


@pytest.mark.parametrize(("failing", "limit", "refused"), [(1, 0.0, False), (2, 0.0, True)])
def test_more_failures_than_the_share_of_all_end_the_scoring(tmp_path, failing, limit, refused):
    every = [candidate("a", n) for n in range(4)]

    def scorer(left: Sequence[Candidate]) -> Any:
        return (scored(one, "broke" if one.sample < failing else "") for one in left)

    tally = Tally(limit, tmp_path, "Fix the function.")
    if not refused:
        score.score_candidates(tmp_path, every, scorer, tally)  # type: ignore[arg-type]
        assert tally.failed == failing
        return
    with pytest.raises(UserError, match="a reward failed for 2 candidates") as caught:
        score.score_candidates(tmp_path, every, scorer, tally)  # type: ignore[arg-type]
    assert caught.value.exit_code == REJECTS
    assert len(list(read_rows(tmp_path / "scores.jsonl"))) == 2  # what was scored is kept


def test_whether_a_call_is_expected_is_known_for_every_step(dialog: Record):
    assert score.expected_calls([dialog]) == {
        Step(dialog.id, 2): True,
        Step(dialog.id, 4): False,
        Step(dialog.id, 6): False,
    }
    unknown = msgspec.structs.replace(dialog, gold={2: Gold(known=False)})
    assert score.expected_calls([dialog, unknown]) == {}


# --- stored candidates ---


def sampled(folder: Path, command: str = "pairs", finish: bool = True, **settings: Any) -> None:
    with open_stage(folder, Plan(command, settings, {}), force=False) as stage:
        write_rows(folder / "records.jsonl", [])
        write_rows(folder / "candidates.jsonl", [msgspec.structs.asdict(candidate("a"))])
        digests = {
            name: file_digest(folder / f"{name}.jsonl") for name in ("records", "candidates")
        }
        write_json(folder / "sampled.json", digests)
        if finish:
            write_rows(folder / "scores.jsonl", [msgspec.structs.asdict(scored(candidate("a")))])
            stage.finish(["records.jsonl", "candidates.jsonl", "scores.jsonl"], {})


def test_candidates_are_found_with_their_scores_or_without_where_they_are_not_scored(tmp_path):
    sampled(tmp_path / "pairs", model="m")
    found = stored.find_stored("pairs", tmp_path)
    assert found.candidates == [candidate("a")] and found.plan.settings == {"model": "m"}
    assert found.scores == {candidate("a").key: scored(candidate("a"))}
    sampled(tmp_path / "half", finish=False)
    found = stored.find_stored("half", tmp_path)
    assert found.candidates == [candidate("a")] and found.scores == {}


@pytest.mark.parametrize("name", ["records", "candidates"])
def test_unscored_candidates_that_were_changed_are_refused(tmp_path, name):
    sampled(tmp_path / "half", finish=False)
    with open(tmp_path / f"half/{name}.jsonl", "ab") as file:
        file.write(b"\n")
    with pytest.raises(UserError, match="has changed since it was sampled") as refused:
        stored.find_stored("half", tmp_path)
    assert refused.value.location.endswith(f"{name}.jsonl")


def test_what_holds_no_candidates_is_refused_with_where_they_are(tmp_path):
    sampled(tmp_path / "b", candidates="pairs")
    with pytest.raises(UserError, match="holds pairs, and no candidates") as refused:
        stored.find_stored("b", tmp_path)
    assert "--from pairs" in refused.value.fix
    (tmp_path / "b/sampled.json").unlink()
    with open_stage(tmp_path / "prep", Plan("prep", {}, {}), force=False) as stage:
        stage.finish([], {})
    with pytest.raises(UserError, match="which samples nothing"):
        stored.find_stored("prep", tmp_path)
    with pytest.raises(UserError, match="no such stage"):
        stored.find_stored("none", tmp_path)


@pytest.mark.parametrize(
    ("damage", "aside", "sampled_again"),
    [
        ("", False, False),
        ("candidates", True, True),
        ("sampled", True, True),
        ("records", False, True),
    ],
)
def test_candidates_that_are_not_as_sampled_are_set_aside(tmp_path, damage, aside, sampled_again):
    sampled(tmp_path, finish=False)
    if damage == "sampled":
        (tmp_path / "sampled.json").write_bytes(b"{")
    elif damage:
        (tmp_path / f"{damage}.jsonl").write_bytes(b"{}\n")
    stored.set_aside_changed(tmp_path)
    assert (tmp_path / "candidates.jsonl.broken").exists() is aside
    assert (tmp_path / "candidates.jsonl").exists() is not aside
    assert (tmp_path / "sampled.json").exists() is not sampled_again
    assert stored.is_sampled(tmp_path) is not sampled_again


def test_a_folder_that_lost_its_plan_is_not_sampled(tmp_path):
    sampled(tmp_path, finish=False)
    assert stored.is_sampled(tmp_path)
    (tmp_path / "plan.json").rename(tmp_path / "failed.json")
    assert not stored.is_sampled(tmp_path)


# --- the plan ---


def plan(**changes: Any) -> Plan:
    settings = PairsSettings(**changes.pop("settings", {}))
    inputs = {"data": "d", "model": "m", **changes.pop("inputs", {})}
    return Plan("pairs", plain_settings(settings, pairs.NOT_OF_THE_PLAN), inputs)


@pytest.mark.parametrize(
    ("changes", "refused"),
    [
        ({}, False),
        ({"settings": {"weights": {"exact": 1.0}}}, True),
        ({"settings": {"margin": 0.5}}, True),
        ({"settings": {"balance": True}}, True),
        ({"settings": {"gold": True}}, True),
        ({"settings": {"rewards": ("a.py:f",)}, "inputs": {"a.py": "x"}}, True),
        ({"inputs": {"a.py": "x"}}, True),
        ({"settings": {"margin": 0.5, "temperature": 0.5}}, False),
        ({"settings": {"seed": 1}}, False),
        ({"inputs": {"model": "other"}}, False),
        ({"settings": {"margin": 0.5}, "inputs": {"data": "other"}}, False),
    ],
    ids=str,
)
def test_other_weights_are_refused_with_the_command_that_samples_nothing(
    tmp_path, changes, refused
):
    folder = tmp_path / "pairs"
    with open_stage(folder, plan(), force=False):
        pass
    target = RunTarget(tmp_path, "pairs")
    pairs._refuse_sampling_again(target, plan(**changes))  # nothing is sampled yet
    write_json(folder / "sampled.json", {})
    pairs._refuse_sampling_again(target._replace(force=True), plan(**changes))
    if not refused:
        pairs._refuse_sampling_again(target, plan(**changes))
        return
    with pytest.raises(UserError, match="were ranked with other settings") as caught:
        pairs._refuse_sampling_again(target, plan(**changes))
    assert caught.value.exit_code == OTHER_PLAN
    assert "agentlite pairs --from pairs ... --out pairs-2" in caught.value.fix


def test_what_changes_a_candidate_or_a_pair_is_in_the_plan_and_nothing_else():
    left_out = {"grid", "candidates", "batch_size", "reward_seconds", "max_failures"}
    left_out |= {"reward_memory"}
    left_out |= {"endpoint", "endpoint_key", "endpoint_seconds", "endpoint_tries"}
    left_out |= {"concurrency", "unanswered", "preferences", "max_rejects"}
    assert set(plan().settings) == set(fields("pairs")) - left_out
    assert set(pairs.RANKING) == {"weights", "rewards", "margin", "balance", "gold"}


# --- the ranking ---


def test_pairs_and_their_figures_are_written(tmp_path):
    made = [candidate("a", n) for n in range(2)] + [candidate("b", n) for n in range(2)]
    gold = Candidate("a", 1, "hermes", GOLD, 0, "gold", "turn", 0)
    texts = [msgspec.structs.replace(one, text=f"{one.record_id}{one.sample}") for one in made]
    nothing = dict.fromkeys((*COMPONENTS, *PENALTIES), 0.0)
    values = {("a", 0): 1.0, ("a", 1): 0.0, ("b", 0): 0.5, ("b", 1): 0.5}
    scores = {
        one.key: Score(*one.key, {**nothing, "exact": values[one.record_id, one.sample]})
        for one in texts
    }
    scores[gold.key] = Score(*gold.key, {**nothing, "exact": 1.0})
    expected = {Step("a", 1): True, Step("b", 1): True}
    ranked = score.ScoredCandidates([*texts, gold], scores, expected)
    settings = PairsSettings(weights={"exact": 1.0})
    figures = rank(settings, tmp_path, ranked)
    [pair] = read_rows(tmp_path / "pairs.jsonl")
    assert (pair["chosen"]["text"], pair["rejected"]["text"]) == ("a0", "a1")
    assert figures["steps"] == 2 and figures["pairs"] == 1
    assert figures["candidates"] == 4  # the gold is none
    assert figures["mean_margin"] == 1.0
    assert sum(figures["no_pair"].values()) == 1
    stats = json.loads((tmp_path / "stats.json").read_bytes())
    assert stats["weights"]["exact"] == 1.0 and "components" in stats
    none = rank(settings, tmp_path, ranked._replace(candidates=[texts[2]], scores=scores))
    assert (none["pairs"], none["mean_margin"]) == (0, 0.0)


def test_components_of_the_user_are_those_that_are_not_ours():
    one = candidate("a")
    components = {"exact": 1.0, "mine": 0.5, "timeout": 0.0}
    made = score.ScoredCandidates([one], {one.key: Score(*one.key, components=components)}, {})
    assert made.user_components == {*components} - {*COMPONENTS, *PENALTIES}
    assert "mine" in made.user_components and "exact" not in made.user_components


@pytest.mark.parametrize(("gold", "rule"), [(False, "never"), (True, "failed")])
def test_the_rule_of_the_pairs_is_that_of_the_settings(gold, rule):
    settings = PairsSettings(margin=0.25, balance=True, gold=gold)
    assert pair_rule(settings) == (0.25, True, rule)


def test_weightings_of_a_grid_each_have_a_name_of_their_own(tmp_path):
    found = read_weightings(["exact=1", "exact=.5"], set())
    assert [weights["exact"] for weights in found.values()] == [1.0, 0.5]
    assert [*found] == ["exact=1", "exact=.5"]
    with pytest.raises(UserError, match="'exact=1' appears twice"):
        read_weightings(["exact=1", "exact=1"], set())


def test_the_hint_names_the_command_that_scores_again():
    assert "agentlite pairs --from b --out NAME" in score.rescore_hint("b")


# --- a folder that somebody has edited ---


def asked_row(city: str) -> dict[str, Any]:
    call = {"function": {"name": "rain", "arguments": json.dumps({"city": city})}}
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    return {
        "messages": [
            {"role": "user", "content": f"Is it wet in {city}?"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
        ],
        "tools": [{"type": "function", "function": {"name": "rain", "parameters": schema}}],
    }


@pytest.fixture
def made(tmp_path, monkeypatch):
    """Makes the pairs of three questions, or makes them again; the answers are not a model's."""
    rows = tmp_path / "rows.jsonl"
    write_rows(rows, map(asked_row, ("Oslo", "Rome", "Kyiv")))
    shares = {"test": 0.0, "dev": 0.0, "split_by": "query"}
    agentlite.prep(str(rows), run=str(tmp_path), protocol="hermes", **shares)
    monkeypatch.setattr(pairs, "check_libraries", lambda engine: None)

    def written(settings, source, protocols, prompts, path, known):
        with Appender(path) as file:
            for one, n in sample.missing_samples(settings, prompts, known):
                text = [one.answer, "No.", "It is dry."][n]
                answer = (settings.model, n, text, "turn", 3)
                file.append(msgspec.structs.asdict(Candidate(*one.step, one.protocol, *answer)))

    monkeypatch.setattr(sample, "_sample_here", written)
    options = {"model": "smollm2-135m", "num_samples": 3, "margin": 0.0, "gold": True}
    return lambda: agentlite.pairs(run=str(tmp_path), **options)


EDITED = {
    "records.jsonl": lambda text: text.replace("Oslo", "Nice"),
    "candidates.jsonl": lambda text: text.replace("It is dry.", "It is wet."),
    "scores.jsonl": lambda text: re.sub(r'"tool_accuracy": ?[0-9.]+', '"tool_accuracy": 0.5', text),
    "pairs.jsonl": lambda text: text.partition("\n")[0] + "\n",
    "stats.json": lambda text: text.replace("3", "4"),
}


@pytest.mark.parametrize("name", EDITED)
def test_an_output_that_was_edited_is_made_again_as_it_was(name, made, tmp_path):
    """Its digest is in done.json: nothing is ranked by scores that nobody has given."""
    assert made().status == "done" and made().status == "up to date"
    folder = tmp_path / "pairs"
    before = {path: (folder / path).read_text(encoding="utf-8") for path in EDITED}
    (folder / name).write_text(EDITED[name](before[name]), encoding="utf-8")
    assert (folder / name).read_text(encoding="utf-8") != before[name]
    assert made().status == "done"
    assert {path: (folder / path).read_text(encoding="utf-8") for path in EDITED} == before
    assert made().status == "up to date"
