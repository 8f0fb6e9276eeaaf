"""Eval without a model: what is asked again, what a plan holds, how folders are
named.
"""

import importlib
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from agentlite.config.settings import EvalSettings, fields
from agentlite.core.errors import UserError
from agentlite.core.records import Candidate, GreedyAnswer, Message, Record, Step, to_row
from agentlite.core.row_files import read_rows, write_json, write_rows
from agentlite.engine.decoding import Decoding
from agentlite.engine.generate import Completion
from agentlite.engine.load import Loading
from agentlite.engine.remote import RemoteReply
from agentlite.rendering import PROTOCOLS, Prompt
from agentlite.scoring.predictions import prompt_key
from agentlite.stages import eval as stage_of_eval
from agentlite.stages.eval import compare_folders, extra_metrics, subjects
from agentlite.stages.eval.subjects import EvalData, data_folder, slug
from agentlite.workspace.model_source import Source
from agentlite.workspace.run_folder import Plan, RunTarget, open_stage, read_expected

ask = importlib.import_module("agentlite.stages.eval.ask")
SETTINGS = EvalSettings(max_length=100, max_new_tokens=40)
SOURCE = Source("m", "base", None, "digest")


def prompt(name: str, length: int) -> Prompt:
    record: Any = SimpleNamespace(id=name)
    return Prompt(record, 1, "hermes", [7] * length, "", "turn")


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Answers whatever it is asked; the names of what it was asked, run by run."""
    asked: list[list[str]] = []

    def answer(settings: Any, source: Any, prompts: Any, protocols: Any, keys: Any) -> Any:
        asked.append([one.record.id for one in prompts])
        for one in prompts:
            yield GreedyAnswer(*one.step, keys[one.step], f"to {one.record.id}", "turn", 3)

    monkeypatch.setattr(ask, "_ask_model", answer)
    return asked


def run(folder: Path, *prompts: Prompt) -> dict[str, str]:
    with open_stage(folder, Plan("eval", {}, {}), force=False) as stage:
        found = ask.ask(SETTINGS, SOURCE, prompts, {}, stage)
        stage.finish([ask.ANSWERS], {})
    return {step.record_id: answer.text for step, answer in found.items()}


def test_only_what_was_not_asked_with_these_very_words_is_asked(tmp_path, model, capsys):
    folder = tmp_path / "m"
    assert run(folder, prompt("a", 5), prompt("b", 6)) == {"a": "to a", "b": "to b"}
    assert "eval: m, 2 prompts\n" in capsys.readouterr().err
    assert run(folder, prompt("a", 5)) == {"a": "to a"}
    assert run(folder, prompt("a", 5), prompt("b", 9), prompt("c", 3)).keys() == {*"abc"}
    assert "eval: m, 2 prompts, 1 there already\n" in capsys.readouterr().err
    assert model == [["a", "b"], ["b", "c"]]
    rows = [row["record_id"] for row in read_rows(folder / "answers.jsonl")]
    assert rows == ["a", "b", "b", "c"]


def test_the_rows_that_the_answers_will_have_are_noted_while_they_come(tmp_path, monkeypatch):
    folder, expected = tmp_path / "m", []

    def answer(settings: Any, source: Any, prompts: Any, protocols: Any, keys: Any) -> Any:
        noted: Any = read_expected(folder)
        expected.append((noted.file, noted.rows))
        for one in prompts:
            yield GreedyAnswer(*one.step, keys[one.step], "x", "turn", 3)

    monkeypatch.setattr(ask, "_ask_model", answer)
    run(folder, prompt("a", 5), prompt("b", 6))
    run(folder, prompt("a", 5), prompt("b", 9), prompt("c", 3), prompt("long", 99))
    # an answer to other words stays in the file, and so do prompts without room
    assert expected == [("answers.jsonl", 2), ("answers.jsonl", 5)]
    assert len(list(read_rows(folder / "answers.jsonl"))) == 5


def test_a_prompt_without_room_for_an_answer_is_cut_and_no_model_is_loaded_for_it(
    tmp_path, model, capsys
):
    found = run(tmp_path / "m", prompt("fits", 60), prompt("long", 61))
    assert found == {"fits": "to fits", "long": ""} and model == [["fits"]]
    assert "1 prompts are longer than 60 tokens: they score 0" in capsys.readouterr().err
    assert run(tmp_path / "other", prompt("long", 61)) == {"long": ""} and len(model) == 1
    [row] = read_rows(tmp_path / "other/answers.jsonl")
    assert (row["ended"], row["prompt"]) == ("cut", "")


def test_answers_that_were_changed_are_asked_again(tmp_path, model):
    folder = tmp_path / "m"
    run(folder, prompt("a", 5))
    (folder / "answers.jsonl").write_bytes(b"")
    assert run(folder, prompt("a", 5)) == {"a": "to a"} and len(model) == 2
    assert (folder / "answers.jsonl.broken").read_bytes() == b""


def test_a_run_that_stops_leaves_its_answers_and_no_finished_stage(tmp_path, model, monkeypatch):
    folder = tmp_path / "m"
    run(folder, prompt("a", 5))

    def stops(settings: Any, source: Any, prompts: Any, protocols: Any, keys: Any) -> Any:
        yield GreedyAnswer("b", 1, keys[Step("b", 1)], "to b", "turn", 3)
        raise KeyboardInterrupt

    monkeypatch.setattr(ask, "_ask_model", stops)
    with pytest.raises(KeyboardInterrupt):
        run(folder, prompt("a", 5), prompt("b", 6), prompt("c", 7))
    assert not (folder / "done.json").exists()
    assert ask.answered_steps(folder) == {Step("a", 1), Step("b", 1)}
    with open(folder / "answers.jsonl", "ab") as file:
        file.write(b'{"record_id": "c", "turn"')
    assert ask.answered_steps(folder) == {Step("a", 1), Step("b", 1)}
    assert ask.answered_steps(tmp_path / "none") == set()


def test_a_server_is_asked_greedily_for_as_many_tokens_as_a_model(tmp_path, monkeypatch):
    asked: list[Any] = []

    def replies(endpoint: Any, requests: Any, template: Any, parameters: Any) -> Any:
        asked.append((endpoint, len(requests), parameters))
        for number in (1, 0):  # in any order
            yield RemoteReply(number, f"r{number}", "cut", 4)

    monkeypatch.setattr(ask, "replies", replies)
    monkeypatch.setattr(ask, "load_template", lambda base: None)
    source: Any = SOURCE._replace(endpoints=("the server",))
    prompts = [prompt("a", 5), prompt("b", 6)]
    with open_stage(tmp_path / "m", Plan("eval", {}, {}), force=False) as stage:
        found = ask.ask(SETTINGS, source, prompts, PROTOCOLS, stage)
    assert asked == [(("the server",), 2, {"max_tokens": 40, "temperature": 0})]
    assert found[Step("b", 1)] == GreedyAnswer("b", 1, prompt_key(prompts[1]), "r1", "cut", 4)
    assert found[Step("a", 1)].text == "r0"


def test_answers_of_a_model_end_at_the_turn_of_its_template_or_a_stop_of_their_protocol(
    tmp_path, monkeypatch, smollm2
):
    generated: list[Any] = []

    def generate(loaded: Any, ids: Any, decoding: Any, *, batch_size: int) -> Any:
        generated.append((len(ids), decoding, batch_size))
        yield [Completion(number, "x", True, 3) for number in range(len(ids))]

    monkeypatch.setattr("agentlite.engine.generate.generate", generate)
    monkeypatch.setattr("agentlite.engine.load.load_for_inference", lambda *_: None)
    monkeypatch.setattr(ask, "load_template", lambda base: smollm2)
    prompts = [prompt("a", 5), prompt("b", 6), prompt("c", 7)._replace(protocol="react")]
    protocols = {name: PROTOCOLS[name] for name in ("hermes", "react")}
    with open_stage(tmp_path / "m", Plan("eval", {}, {}), force=False) as stage:
        found = ask.ask(SETTINGS, SOURCE, prompts, protocols, stage)
    end = smollm2.token_id("<|im_end|>")
    assert generated == [
        (count, Decoding(40, stops=protocols[name].stops, turn_end=end), SETTINGS.batch_size)
        for count, name in ((2, "hermes"), (1, "react"))
    ]
    assert {step.record_id: answer.ended for step, answer in found.items()} == dict.fromkeys(
        "abc", "turn"
    )


# --- names and plans ---


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("sft", "sft"),
        ("Qwen/Qwen2.5-1.5B", "Qwen-Qwen2.5-1.5B"),
        ("../up", "up"),
        ("./a b/", "a-b"),
        ("..", "model"),
        ("", "model"),
        ("模型", "model"),
        ("a__b.c", "a__b.c"),
    ],
)
def test_a_name_as_a_folder(name, folder):
    assert slug(name) == folder and not re.search(r"[/\\]|^\.", folder)


@pytest.mark.parametrize(
    ("changes", "folder"),
    [
        ({}, "prep"),
        ({"data": "runs/a/prep"}, "runs-a-prep"),
        ({"retrieve_by": "bm25"}, "prep"),
        ({"retrieve": 5}, "prep-retrieve-5"),
        ({"retrieve": 5, "retrieve_by": "bm25"}, "prep-retrieve-5-bm25"),
        ({"retrieve": 5, "retrieve_by": "tuned", "data": "b"}, "b-retrieve-5"),
    ],
)
def test_an_evaluation_lies_under_its_data_and_how_tools_were_retrieved(changes, folder):
    assert data_folder(EvalSettings(**changes)) == folder


@pytest.fixture
def data(tmp_path: Path) -> EvalData:
    plan = Plan("prep", {"protocol": "hermes", "model": "base"}, {})
    with open_stage(tmp_path / "prep", plan, force=False):
        pass
    return EvalData([], {}, tmp_path / "prep", "rows")


OF_THE_ANSWER = {  # by hand: what changes a completion
    "split",
    "retrieve",
    "retrieve_by",
    "engine",
    "attn_implementation",
    "max_length",
    "max_new_tokens",
    "load_in_4bit",
    "load_in_8bit",
}


def test_a_plan_holds_what_changes_a_completion_and_nothing_else(data):
    found = subjects._model(EvalSettings(), SOURCE, "m", data)
    assert set(found.plan.settings) == OF_THE_ANSWER | {"model", "protocol"}
    assert set(fields("eval")) >= OF_THE_ANSWER
    assert found.plan.settings["model"] == "m" and found.plan.settings["protocol"] == "hermes"
    assert found.plan.inputs == {"data": "rows", "model": "digest"} and found.name == "m"
    served: Any = SOURCE._replace(name="m on a server", endpoints=("e",))
    assert subjects._model(EvalSettings(), served, "m", data).name == "m on a server"


def test_the_plan_of_a_file_holds_its_content_and_nothing_of_a_model(data, tmp_path, monkeypatch):
    (tmp_path / "others.jsonl").write_bytes(b"")
    monkeypatch.setattr(subjects, "read_predictions_file", lambda *_: {})
    found = subjects._from_file(EvalSettings(), str(tmp_path / "others.jsonl"), data)
    assert set(found.plan.settings) == {"split", "retrieve", "retrieve_by", "protocol"}
    assert set(found.plan.inputs) == {"data", "predictions"}


@pytest.mark.parametrize(
    ("models", "predictions", "names"),
    [
        ((), (), ["sft"]),
        ((), ("p.jsonl",), ["p"]),
        (("a", "b", "a"), (), ["a", "b"]),
        (("a",), ("p.jsonl", "p.jsonl"), ["p", "a"]),
    ],
)
def test_files_come_first_and_each_is_evaluated_once(
    models, predictions, names, data, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.jsonl").write_bytes(b"")
    monkeypatch.setattr(subjects, "read_predictions_file", lambda *_: {})
    monkeypatch.setattr(
        subjects, "find_model", lambda name, *_: Source(name, "base", None, f"of {name}")
    )
    settings = EvalSettings(model=models, predictions=predictions)
    assert [
        one.name for one in subjects.find_subjects(settings, data, RunTarget(tmp_path, "eval"))
    ] == names


def test_two_models_of_one_folder_are_refused(data, tmp_path, monkeypatch):
    monkeypatch.setattr(subjects, "find_model", lambda *_: SOURCE)
    settings = EvalSettings(model=("b", "a/b", "a-b"))
    with pytest.raises(UserError, match="two models share the folder a-b"):
        subjects.find_subjects(settings, data, RunTarget(tmp_path, "eval"))


def test_records_without_tools_are_not_asked(tmp_path, dialog):
    plain = Record(messages=dialog.messages[:2] + dialog.messages[6:7])
    folder = tmp_path / "prep"
    with open_stage(folder, Plan("prep", {}, {}), force=False) as stage:
        for split in ("train", "dev"):
            write_rows(folder / f"{split}.jsonl", [to_row(plain)])
        write_rows(folder / "test.jsonl", [to_row(plain), to_row(dialog)])
        stage.finish(["train.jsonl", "dev.jsonl", "test.jsonl"], {})
    found = subjects.load_data(EvalSettings(), tmp_path)
    assert [one.id for one in found.records] == [dialog.id]
    assert {*found.every} == {dialog.id, plain.id}
    done = msgspec.json.decode((folder / "done.json").read_bytes())
    assert found.digest == done["outputs"]["test.jsonl"] and found.folder == folder
    with pytest.raises(UserError, match="holds no record with tools") as refused:
        subjects.load_data(EvalSettings(split="dev"), tmp_path)
    assert refused.value.location.endswith("dev.jsonl")


def test_a_limit_asks_so_many_records_and_another_seed_asks_others(tmp_path, dialog):
    folder = tmp_path / "prep"
    every = [
        msgspec.structs.replace(
            dialog, messages=(Message("user", f"Question {n}?"), *dialog.messages[2:])
        )
        for n in range(6)
    ]
    with open_stage(folder, Plan("prep", {}, {}), force=False) as stage:
        for split in ("train", "dev", "test"):
            write_rows(folder / f"{split}.jsonl", map(to_row, every))
        stage.finish(["train.jsonl", "dev.jsonl", "test.jsonl"], {})
    asked = set()
    for seed in range(5):
        found = subjects.load_data(EvalSettings(limit=2, seed=seed), tmp_path)
        assert len(found.records) == 2 and len(found.every) == 6
        asked.add(frozenset(one.id for one in found.records))
    assert len(asked) > 1


@pytest.mark.parametrize(
    ("url", "name", "kept"),
    [
        ("http://a/v1", "m", "http://a/v1 http://b/v1"),
        ("http://b/v1", "m", "http://a/v1 http://b/v1"),
        ("http://c/v1", "m", "http://c/v1"),  # none of the servers of before
        ("http://a/v1", "n", "http://a/v1"),  # another model of theirs
    ],
)
def test_a_served_model_that_was_begun_keeps_its_servers(url, name, kept, data, tmp_path):
    for folder, servers in (("m-0", "http://z/v1"), ("m-a", "http://a/v1 http://b/v1")):
        plan = Plan("eval", {"model": f"m@{servers[7]}"}, {"model": servers})
        with open_stage(tmp_path / "eval/prep" / folder, plan, force=False):
            pass
    settings = EvalSettings(model=(name,), endpoint=(url,))
    served = data._replace(folder=tmp_path / "prep")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EvalData, "model", property(lambda _: SOURCE))
        [found] = subjects.find_subjects(settings, served, RunTarget(tmp_path, "eval"))
        forced = RunTarget(tmp_path, "eval", force=True)
        [anew] = subjects.find_subjects(settings, served, forced)
    assert found.plan.inputs["model"] == kept and anew.plan.inputs["model"] == url


@pytest.mark.parametrize("unanswered", ["ask", "wrong"])
def test_a_dry_run_counts_what_was_not_asked_yet(unanswered, tmp_path, dialog, monkeypatch):
    """Two of three steps have an answer, and one of these is that no server answered."""
    folder = tmp_path / "eval/prep/m"
    folder.mkdir(parents=True)
    asked = [{"record_id": dialog.id, "turn": turn} for turn in (2, 4)]
    write_rows(folder / "answers.jsonl", [asked[0], {**asked[1], "problem": "no answer"}])
    plan = Plan("prep", {"protocol": "hermes", "model": "base"}, {})
    with open_stage(tmp_path / "prep", plan, force=False):
        pass
    data = EvalData([dialog], {dialog.id: dialog}, tmp_path / "prep", "rows")
    memory: list[object] = []
    for name, value in (
        ("data_of", lambda *_: SimpleNamespace(longest=77)),
        ("identity_of", lambda *_: None),
        ("dry_run_memory", lambda *given: memory.append(given[2:]) or {"total": 1.0}),
    ):
        monkeypatch.setattr(stage_of_eval, name, value)
    monkeypatch.setattr("agentlite.stages.eval.run_folder.compare", lambda *_: "half")
    served: Any = SOURCE._replace(endpoints=("e",))
    settings = EvalSettings(unanswered=unanswered)
    models = [
        subjects.EvalSubject("m", plan, SOURCE),
        subjects.EvalSubject("s", plan, served),
        subjects.EvalSubject("file", plan),
    ]

    def figures(force: bool) -> Any:
        target = RunTarget(tmp_path, "eval", force=force)
        return stage_of_eval._dry_run(settings, target, models, data).figures

    found = figures(force=False)
    missing = 2 if unanswered == "ask" else 1
    assert found == {
        "m": {"prompts": 3, "missing": missing, "memory_gib": {"total": 1.0}},
        "s": {"prompts": 3, "missing": 3, "memory_gib": {}},  # its model is elsewhere
        "file": {"prompts": 3, "missing": 0, "memory_gib": {}},
    }
    assert memory == [("base", 77)] and figures(force=True)["m"]["missing"] == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_new_tokens": 2048}, "leaves no room for a prompt"),
        ({"max_new_tokens": 2047}, ""),
        ({"judge_prices": (0.5,)}, "are two"),
        ({"judge_prices": (0.5, 1.5, 2.0)}, "are two"),
        ({"judge_prices": (0.5, 1.5)}, ""),
        ({"judge": "http://h/v1"}, "which model is the judge"),
        ({"judge": "http://h/v1", "judge_model": "m"}, ""),
        ({"endpoint": "http://h/v1"}, "which of its models"),
        ({"endpoint": "http://h/v1", "model": ("m",)}, ""),
        (
            {"endpoint": "http://h/v1", "model": ("m",), "num_samples": 2},
            "needs the model itself",
        ),
        ({"endpoint": "http://h/v1", "model": ("m",), "general": "g"}, "needs the model itself"),
        ({"retrieve": 3, "predictions": ("p",)}, "have prompts without the tools"),
        ({"retrieve": 3}, ""),
        ({"predictions": ("p",)}, ""),
    ],
    ids=str,
)
def test_settings_that_cannot_go_together_are_refused_first(changes, message):
    if not message:
        stage_of_eval._check_settings(EvalSettings(**changes))
        return
    with pytest.raises(UserError, match=message) as refused:
        stage_of_eval._check_settings(EvalSettings(**changes))
    assert refused.value.exit_code == 2 and refused.value.fix and refused.value.location


def test_the_key_figure_names_what_was_measured():
    figures = {"exact_call": 0.256, "tool_selection_accuracy": 0.5, "other": 1.0}
    assert stage_of_eval.key_figure(figures) == "right tool 50 %, exact 26 %"
    assert stage_of_eval.key_figure({"other": 1.0}) == ""


# --- folders side by side ---


def finished(folder: Path, data: str = "d", command: str = "eval", finish: bool = True) -> Path:
    with open_stage(folder, Plan(command, {}, {"data": data}), force=False) as stage:
        for name in ("dialogs.jsonl", "predictions.jsonl"):
            write_rows(folder / name, [])
        if finish:
            stage.finish(["dialogs.jsonl", "predictions.jsonl"], {})
    return folder


def test_earlier_models_are_those_finished_on_the_same_data_and_left_as_they_were(tmp_path):
    for name in ("same", "now", "changed", "old"):
        finished(tmp_path / name)
    finished(tmp_path / "other", data="e")
    finished(tmp_path / "half", finish=False)
    (tmp_path / "changed/predictions.jsonl").write_bytes(b"\n")
    (tmp_path / "old/dialogs.jsonl").unlink()
    now: Any = {"now": {}}
    assert [*compare_folders.earlier_scores(tmp_path, "d", now)] == ["same"]
    more: Any = {"now": {Step("a", 1): 1}}  # which the earlier one was not asked
    assert compare_folders.earlier_scores(tmp_path, "d", more) == {}


def test_answers_to_other_questions_are_not_compared(tmp_path):
    folders = [finished(tmp_path / name, data) for name, data in (("a", "d"), ("b", "e"))]
    settings = EvalSettings(compare=tuple(map(str, folders)))
    with pytest.raises(UserError, match="a and b answered different questions") as refused:
        compare_folders._compare_folders(settings, tmp_path, [])
    assert refused.value.location == "--compare"


def test_a_folder_stands_for_itself_or_for_all_evaluations_in_it(tmp_path):
    run = tmp_path / "run"
    one = finished(run / "eval/prep/a")
    two = finished(run / "eval/prep/b")
    finished(run / "eval/prep/half", finish=False)
    finished(run / "prep", command="prep")
    assert compare_folders._finished(one, run) == [one]
    assert compare_folders._finished(Path("eval/prep/a"), run) == [one]
    assert sorted(compare_folders._finished(run, run)) == [one, two]
    for name in ("eval/prep/half", "prep", "none"):
        with pytest.raises(UserError, match="holds no finished evaluation"):
            compare_folders._finished(Path(name), run)
    (two / "dialogs.jsonl").write_bytes(b"\n")
    with pytest.raises(UserError, match="has changed since the stage wrote it"):
        compare_folders._finished(run, run)


def test_folders_are_named_by_as_much_as_tells_them_apart(tmp_path):
    folders = [tmp_path / name for name in ("x/prep/a", "x/prep/b", "y/prep/a")]
    for folder in folders:
        folder.mkdir(parents=True)
    names = compare_folders._short_names
    assert names(folders[:2]) == {"a": folders[0], "b": folders[1]}
    assert names(folders) == {
        "x/prep/a": folders[0],
        "x/prep/b": folders[1],
        "y/prep/a": folders[2],
    }
    assert names([folders[0], folders[0]]) == {"a": folders[0]}


def test_a_comparison_keeps_the_order_in_which_models_first_came(tmp_path, monkeypatch):
    base = tmp_path / "eval"
    for name in ("a", "b", "c"):
        finished(base / name)
    compared: list[list[str]] = []

    class Comparison(msgspec.Struct, frozen=True):
        models: list[str]
        predictions: dict[str, str] = {}

    def compare(by_model: Any, seed: int) -> Any:
        compared.append([*by_model])
        return Comparison([*by_model])

    monkeypatch.setattr(stage_of_eval, "compare", compare)

    def evaluated(*names: str) -> Any:
        return {name: SimpleNamespace(folder=base / name, scores={}) for name in names}

    monkeypatch.setattr(stage_of_eval, "earlier_scores", lambda base, digest, now: {})
    stage_of_eval._write_comparison(base, evaluated("b"), "d", 0)
    assert not (base / "compare.json").exists()  # one model alone is compared with nothing
    stage_of_eval._write_comparison(base, evaluated("b", "a"), "d", 0)
    stage_of_eval._write_comparison(base, evaluated("a", "c", "b"), "d", 0)
    assert compared == [["b", "a"], ["b", "a", "c"]]
    written = msgspec.json.decode((base / "compare.json").read_bytes())
    assert [*written["predictions"]] == ["b", "a", "c"]
    write_json(base / "compare.json", {"models": ["gone", "c"]})
    stage_of_eval._write_comparison(base, evaluated("a", "c"), "d", 0)
    assert compared[-1] == ["c", "a"]


# --- pass^k ---


def sampling(tmp_path: Path, monkeypatch: Any, decoding: Decoding, *prompts: Prompt) -> Any:
    """The batches that were sampled, and which samples counted as right, by record."""
    batches: list[list[str]] = []
    counted: dict[str, list[bool]] = {}

    def make(source: Any, name: str, protocols: Any, loading: Any, decoding: Any) -> Any:
        def answer(batch: Any) -> Any:
            batches.append([one.record.id for one in batch])
            for one in batch:
                for n in range(decoding.num_samples):
                    text = f"{one.record.id}{n}"
                    yield Candidate(*one.step, one.protocol, name, n, text, "turn", 1)

        return answer

    def answered(prompt: Any, answer: Any, protocol: Any) -> Any:
        right = answer.text.endswith("0")  # the first sample of each
        exact = {"exact_call": float(right)} if prompt.record.id == "a" else {}
        return SimpleNamespace(metrics={"call_decision": float(right), **exact})

    def passes(right: Any, seed: int) -> Any:
        counted.update({step.record_id: marks for step, marks in right.items()})
        return {"seed": seed}

    for name, value in (("make_sampler", make), ("answered", answered), ("passes", passes)):
        monkeypatch.setattr(extra_metrics, name, value)
    found = extra_metrics.pass_metrics(
        SOURCE,
        "m",
        prompts,
        {"hermes": None},  # type: ignore[dict-item]
        Loading("hf", 100),
        decoding,
        tmp_path / "samples.jsonl",
        batch_size=2,
    )
    assert found == {"seed": decoding.seed}
    return batches, counted


def test_every_step_is_sampled_once_and_one_that_is_too_long_is_wrong(tmp_path, monkeypatch):
    decoding = Decoding(40, 0.7, seed=5, num_samples=3)
    prompts = [prompt("a", 60), prompt("b", 61), prompt("c", 5), prompt("d", 5)]
    batches, counted = sampling(tmp_path, monkeypatch, decoding, *prompts)
    assert batches == [["a", "c"], ["d"]]
    first = [True, False, False]
    assert counted == {"a": first, "b": [False] * 3, "c": first, "d": first}
    assert len(list(read_rows(tmp_path / "samples.jsonl"))) == 9
    again, counted = sampling(tmp_path, monkeypatch, decoding, *prompts)
    assert again == [] and counted["d"] == first
    more = [*prompts[:3], prompt("d", 6)]  # asked with other words
    assert sampling(tmp_path, monkeypatch, decoding, *more)[0] == [["d"]]


@pytest.mark.parametrize(
    ("changes", "again"),
    [
        ({}, False),
        ({"num_samples": 1}, False),
        ({"num_samples": 3}, True),
        ({"seed": 6}, True),
        ({"temperature": 0.8}, True),
        ({"top_p": 0.9}, True),
        ({"max_new_tokens": 39}, True),
    ],
    ids=str,
)
def test_samples_serve_again_if_they_were_drawn_alike(tmp_path, monkeypatch, changes, again):
    decoding = Decoding(40, 0.7, seed=5, num_samples=2)
    sampling(tmp_path, monkeypatch, decoding, prompt("a", 5))
    other = decoding._replace(**changes)
    batches, counted = sampling(tmp_path, monkeypatch, other, prompt("a", 5))
    assert bool(batches) is again and len(counted["a"]) == other.num_samples


@pytest.mark.parametrize("name", ["said.jsonl", "qwen2.5-sft.jsonl", "a.b.json", "plain"])
def test_a_file_of_answers_has_the_name_of_the_file_with_all_its_points(name, tmp_path, data):
    (tmp_path / name).write_text("")
    called = {"said.jsonl": "said", "a.b.json": "a.b"}.get(name, name.removesuffix(".jsonl"))
    assert subjects._from_file(SETTINGS, str(tmp_path / name), data).name == called
    row = {"id": "1", "type": "profile", "golden_result_list": [{"golden_result": "I help."}]}
    write_rows(tmp_path / "bench.jsonl", [row])
    write_rows(tmp_path / name, [{**row, "model_predict": "I help."}])
    scored = EvalSettings(kagent=str(tmp_path / "bench.jsonl"), predictions=(str(tmp_path / name),))
    found = compare_folders._score_kagent(scored, tmp_path, [])
    assert [*found.figures["models"]] == [f"{called} as_published", f"{called} corrected"]


@pytest.mark.parametrize("twice", [("a/said.jsonl", "b/said.jsonl"), ("a/said.json", "a/said.txt")])
def test_two_files_of_one_name_are_refused_and_the_figures_of_none_are_lost(twice, tmp_path):
    settings = EvalSettings(kagent="bench.jsonl", predictions=("a/other.jsonl", *twice))
    with pytest.raises(UserError, match="two files are called said") as refused:
        compare_folders._score_kagent(settings, tmp_path, [])
    assert refused.value.location == "--predictions"
