"""`agentlite retriever` and --retrieve, as they are used: trained, killed, carried on, joined to
prep and eval.
"""

import json
import math
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy
import pytest
from support.processes import agentlite
from support.processes import run as run_program
from support.samples import ROOT

from agentlite.core.records import from_row
from agentlite.core.row_files import read_rows
from agentlite.data.formats import to_record
from agentlite.retrieval.index import VECTORS, read
from agentlite.retrieval.tool_pool import ToolFile, ToolPool
from agentlite.stages.retriever import _new_examples

DOES = (
    "rain",
    "trains",
    "letters",
    "coins",
    "songs",
    "bread",
    "maps",
    "taxes",
    "planets",
    "poems",
    "shoes",
    "rivers",
)
TOWNS = ("Oslo", "Lima", "Rome", "Graz", "Bern", "Cork")
OTHERWISE = {
    "rivers": "Where might we both go swimming",
    "shoes": "Who could sell boots or sandals to me",
}
TRAIN = [
    "--max-steps",
    6,
    "--save-steps",
    2,
    "--batch-size",
    4,
    "--negatives",
    2,
    "--max-length",
    32,
]
ASK = ["--max-new-tokens", 6, "--profile", "cpu", "--max-length", 1024]


def tool(what: str) -> dict[str, Any]:
    town = {
        "type": "object",
        "properties": {"town": {"type": "string", "description": "a town"}},
        "required": ["town"],
    }
    return {
        "type": "function",
        "function": {
            "name": f"find_{what}",
            "description": f"Tells all about {what} in a town",
            "parameters": town,
        },
    }


def row(what: str, town: str, call: bool = True) -> dict[str, Any]:
    answer: dict[str, Any] = {"role": "assistant", "content": "I cannot say."}
    if call:
        function = {"name": f"find_{what}", "arguments": json.dumps({"town": town})}
        answer = {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "a", "type": "function", "function": function}],
        }
    asked = {
        "role": "user",
        "content": f"{OTHERWISE.get(what, f'What about {what} over there')} in {town}?",
    }
    return {"messages": [asked, answer], "tools": [tool(what if call else "nothing")]}


@pytest.fixture(scope="module")
def workspace(
    tiny_model: Path, tiny_encoder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """prep and a retriever that was never disturbed."""
    run = tmp_path_factory.mktemp("retriever") / "run with blanks"
    rows = [row(what, town) for what in DOES for town in TOWNS] + [
        row("planets", town, False) for town in TOWNS
    ]
    source = run.parent / "rows.jsonl"
    source.write_text("".join(json.dumps(one) + "\n" for one in rows), encoding="utf-8")
    told = agentlite(
        "prep",
        source,
        "--run",
        run,
        "--model",
        tiny_model,
        "--protocol",
        "hermes",
        "--set",
        "prep.split_by=parent",
        "--test",
        0.3,
    )
    assert told.returncode == 0, told.stderr.decode()
    told = agentlite("retriever", "--run", run, "--model", tiny_encoder, *TRAIN, "--json")
    assert told.returncode == 0, told.stderr.decode()
    (run / "told.json").write_bytes(told.stdout)
    return run


def test_it_tells_every_way_of_ranking_at_every_size_and_what_the_tuned_one_has_over_them(
    workspace,
):
    told = json.loads((workspace / "told.json").read_bytes())["figures"]
    assert (told["tools"], told["names"], told["steps"]) == (13, 13, 6)
    assert {*told["ranking"]["all"]} == {"13"}  # the sizes asked for are larger than the pool
    assert {*told["ranking"]["all"]["13"]} == {
        "keyword",
        "tfidf",
        "bm25",
        "untrained",
        "tuned",
        "hybrid",
    }
    assert (
        0.6 < told["ranking"]["all"]["13"]["bm25"]["recall@5"]["mean"] < 1
    )  # most questions name what they ask for
    whole = json.loads((workspace / "retriever" / "metrics.json").read_bytes())
    assert {"recall@1", "precision@5", "comp@10", "hit@10", "map"} <= {
        *whole["ranking"]["all"]["13"]["tuned"]
    }
    assert {one["second"] for one in told["differences"]} == {"tuned"}
    assert {*told["latency_ms"]} == {"encode", "search", "bm25"}
    again = agentlite("retriever", "--run", workspace, *same(workspace), "--json")
    assert json.loads(again.stdout)["status"] == "up to date", again.stderr.decode()


def same(workspace: Path) -> list[object]:
    plan = json.loads((workspace / "retriever" / "plan.json").read_bytes())
    return ["--model", plan["settings"]["model"], *TRAIN]


def test_killed_in_training_it_carries_on_and_ends_with_the_same_bits(workspace, tmp_path):
    shutil.copytree(workspace / "prep", tmp_path / "prep")
    arguments = ["retriever", "--run", tmp_path, *same(workspace)]
    killed = run_program(
        [sys.executable, ROOT / "tests/support/kill_at.py", "save 4", *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
    )
    assert killed.returncode == -9, killed.stderr.decode()
    done = agentlite(*arguments)
    assert done.returncode == 0, done.stderr.decode()
    assert "carrying on after step 2 of 6" in done.stderr.decode()
    assert "widget" not in done.stderr.decode()  # a bar of the library's
    for name in (
        VECTORS,
        "index/tools.jsonl",
        "pairs.jsonl",
        "metrics.jsonl",
        "model/model.safetensors",
        "rankings.jsonl",
    ):
        assert (tmp_path / "retriever" / name).read_bytes() == (
            workspace / "retriever" / name
        ).read_bytes(), name


def test_the_index_holds_what_the_trained_model_makes_of_each_tool(workspace):
    from sentence_transformers import SentenceTransformer

    found = read(workspace / "retriever")
    model = SentenceTransformer(str(workspace / "retriever" / "model"), device="cpu")
    model.max_seq_length = 32
    for place in (0, 7):
        expected = model.encode([found.pool.entries[place].text], normalize_embeddings=True)[0]
        assert numpy.allclose(found.vectors[place], expected, atol=1e-5)


def test_prep_offers_what_is_brought_and_adds_what_was_not(workspace, tmp_path):
    source = workspace.parent / "rows.jsonl"
    told = agentlite(
        "prep",
        source,
        "--run",
        workspace,
        "--out",
        "prep-3",
        "--retrieve",
        3,
        "--retrieve-by",
        "bm25",
        "--protocol",
        "hermes",
        "--set",
        "prep.split_by=parent",
        "--test",
        0.3,
        "--model",
        model_of(workspace),
        "--json",
    )
    assert told.returncode == 0, told.stderr.decode()
    figures = json.loads(told.stdout)["figures"]
    assert (
        figures["read"]
        == figures["kept"] + figures["duplicates"] + figures["rejected"] + figures["filtered"]
    )
    records = [
        from_row(one)
        for split in ("train", "dev", "test")
        for one in read_rows(workspace / "prep-3" / f"{split}.jsonl")
    ]
    assert figures["retrieved"]["records"] == len(records)
    assert all(len(one.tools) == 3 for one in records)
    missing = [one for one in records if one.meta["retrieved"].get("missing")]
    assert len(missing) == figures["retrieved"]["missing"] > 0
    for one in records:
        expected = {call.name for turn in one.turns for call in one.expected(turn).calls}
        assert expected <= {tool.name for tool in one.tools}


def model_of(workspace: Path) -> str:
    return str(json.loads((workspace / "prep" / "plan.json").read_bytes())["settings"]["model"])


def test_eval_says_what_is_lost_to_retrieval_and_what_to_choosing(workspace):
    model = model_of(workspace)
    by_words = ["--retrieve", 3, "--retrieve-by", "bm25"]
    told = agentlite("eval", "--run", workspace, "--model", model, *by_words, *ASK, "--json")
    assert told.returncode == 0, told.stderr.decode()
    (figures,) = json.loads(told.stdout)["figures"].values()
    found = figures["retrieval"]
    assert (found["k"], found["by"]) == (3, "bm25")
    assert 0 < found["retrieved"]["mean"] < 1
    for name in ("tool_selection_accuracy", "exact_call"):
        right, *lost = (
            found[name + part]["mean"] for part in ("", "_lost_to_retrieval", "_lost_to_choosing")
        )
        assert right + sum(lost) == pytest.approx(1)
        assert lost[0] == pytest.approx(1 - found["retrieved"]["mean"])  # none can be right there
    assert (workspace / "eval" / "prep-retrieve-3-bm25").is_dir()
    shown = agentlite("eval", "--run", workspace, "--model", model, *by_words, *ASK).stdout.decode()
    assert (
        f"{100 * found['retrieved']['mean']:.1f} % had their tools among the 3 retrieved (bm25)"
        in shown
    )
    tuned = agentlite(
        "eval", "--run", workspace, "--model", model, "--retrieve", 3, "--limit", 4, *ASK
    )
    assert tuned.returncode == 0, tuned.stderr.decode()
    assert (workspace / "eval" / "prep-retrieve-3").is_dir()
    shutil.copytree(
        workspace / "eval" / "prep-retrieve-3", workspace / "changed" / "prep-retrieve-3"
    )
    path = next((workspace / "changed").rglob("plan.json"))
    plan = json.loads(path.read_bytes()) | {
        "seal": ""
    }  # as if it had been made with another retriever
    plan["inputs"]["data"] = plan["inputs"]["data"].rpartition(" ")[0] + " " + "0" * 16
    path.write_text(json.dumps(plan), encoding="utf-8")
    again = agentlite(
        "eval",
        "--run",
        workspace,
        "--model",
        model,
        "--retrieve",
        3,
        "--limit",
        4,
        *ASK,
        "--out",
        "changed",
    )
    assert (again.returncode, len(again.stderr) < 1000) == (3, True), again.stderr.decode()


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["retriever", "--data", "nowhere"], 2, "Run `agentlite prep` first"),
        (["retriever", "--model", "minilm"], 5, "all-minilm-l6-v2"),
        (["retriever", "--tools", "gone.jsonl"], 2, "gone.jsonl: there is no such file"),
        (["retriever", "--set", "retriever.negativ=3"], 2, "Did you mean 'retriever.negatives'?"),
        (
            ["retriever", "--set", "retriever.trl.weight_decai=3", "--out", "other"],
            2,
            "weight_decay",
        ),
        (
            ["retriever", "--set", "retriever.trl.gradient_accumulation_steps=2", "--out", "other"],
            2,
            "wrong ones",
        ),
        (
            ["retriever", "--set", "retriever.trl.learning_rate=2", "--out", "other"],
            2,
            "retriever.learning_rate",
        ),
        (["eval", "--retrieve", 3, "--retriever", "prep"], 2, "not of `retriever`"),
        (["eval", "--retrieve", 3, "--retriever", "none"], 2, "Run `agentlite retriever` first"),
        (["eval", "--retrieve", 3, "--predictions", "x.jsonl"], 2, "agentlite prep --retrieve 3"),
    ],
)
def test_a_mistake_is_told_with_its_place_and_a_way_out(workspace, arguments, code, told):
    done = agentlite(*arguments, "--run", workspace)
    assert done.returncode == code, done.stderr.decode()
    assert told in done.stderr.decode()


@pytest.mark.long
def test_where_one_question_needs_nearly_every_tool_the_others_columns_are_as_few():
    from agentlite.core.records import Tool
    from agentlite.engine.retriever import _dataset
    from agentlite.retrieval.tool_pool import ToolPool
    from agentlite.retrieval.training_pairs import TrainingPair

    pool = ToolPool()
    for name in ("rain", "train", "coin"):
        pool.add(Tool(name))
    found = [
        TrainingPair("any", 0, (1, 2), frozenset({"rain"})),
        TrainingPair("both", 1, (2,), frozenset({"rain", "train"})),
    ]
    assert _dataset(found, pool).column_names == ["query", "tool", "negative_0"]


@pytest.mark.parametrize(("steps", "code"), [(3, 2), (0, 0)])
def test_train_without_a_call_is_refused_unless_only_an_index_is_wanted(
    workspace, tiny_encoder, tmp_path, steps, code
):
    source = tmp_path / "rows.jsonl"
    source.write_text(
        "".join(json.dumps(row("planets", town, call=False)) + "\n" for town in TOWNS),
        encoding="utf-8",
    )
    told = agentlite(
        "prep", source, "--run", tmp_path, "--model", model_of(workspace), "--protocol", "hermes"
    )
    assert told.returncode == 0, told.stderr.decode()
    done = agentlite(
        "retriever", "--run", tmp_path, "--model", tiny_encoder, "--max-steps", steps, "--dry-run"
    )
    assert done.returncode == code, done.stderr.decode()
    assert ("no question in train needs a tool" in done.stderr.decode()) == bool(code)


def test_an_index_is_not_searched_by_another_model_than_made_it(workspace, tiny_encoder, tmp_path):
    from agentlite.core.errors import UserError
    from agentlite.workspace.encoder_source import find_encoder

    own = tmp_path / "own"
    shutil.copytree(tiny_encoder, own)
    shutil.copytree(workspace / "prep", tmp_path / "prep")
    done = agentlite(
        "retriever", "--run", tmp_path, "--model", own, "--out", "bare", "--max-steps", 0
    )
    assert done.returncode == 0, done.stderr.decode()
    assert find_encoder("bare", tmp_path).base == str(own)
    shutil.copyfile(
        workspace / "retriever" / "model" / "model.safetensors", own / "model.safetensors"
    )
    with pytest.raises(UserError, match="which has changed since"):
        find_encoder("bare", tmp_path)


def test_pairs_that_were_harmed_are_made_again(workspace, tmp_path):
    for name in ("prep", "retriever"):
        shutil.copytree(workspace / name, tmp_path / name)
    path = tmp_path / "retriever" / "pairs.jsonl"
    path.write_bytes(path.read_bytes()[:-9])
    done = agentlite("retriever", "--run", tmp_path, *same(workspace))
    assert done.returncode == 0, done.stderr.decode()
    assert path.read_bytes() == (workspace / "retriever" / "pairs.jsonl").read_bytes()


def test_a_way_to_rank_without_a_number_of_tools_changes_no_plan(workspace):
    asked = [
        "eval",
        "--run",
        workspace,
        "--model",
        model_of(workspace),
        "--limit",
        2,
        "--dry-run",
        *ASK,
    ]
    told = agentlite(*asked, "--retrieve-by", "bm25")
    assert "retrieve_by does nothing without retrieve" in told.stderr.decode()
    assert told.stdout == agentlite(*asked).stdout


def test_a_layer_that_is_code_of_its_own_and_pickled_weights_are_refused(tiny_encoder, tmp_path):
    from agentlite.core.errors import UserError
    from agentlite.workspace.encoder_source import find_encoder

    foreign, pickled = tmp_path / "foreign", tmp_path / "pickled"
    for folder in (foreign, pickled):
        shutil.copytree(tiny_encoder, folder)
    modules = json.loads((foreign / "modules.json").read_bytes())
    (foreign / "modules.json").write_text(
        json.dumps([*modules, {"idx": 2, "path": "", "type": "os.system"}])
    )
    for path in pickled.rglob("*.safetensors"):
        path.rename(path.with_suffix(".bin"))
    for folder, told in ((foreign, "os.system"), (pickled, r"holds no \*.safetensors")):
        with pytest.raises(UserError, match=told):
            find_encoder(str(folder), tmp_path)


def test_questions_that_the_retriever_learned_from_are_told(workspace):
    asked = [
        "eval",
        "--run",
        workspace,
        "--model",
        model_of(workspace),
        "--retrieve",
        2,
        "--retrieve-by",
        "keyword",
        "--limit",
        3,
        *ASK,
    ]
    assert "learned from" not in agentlite(*asked).stderr.decode()
    assert (
        "3 of 3 records ask what retriever learned from"
        in agentlite(*asked, "--split", "train", "--out", "train").stderr.decode()
    )


def test_more_tools_than_there_are_is_said_and_all_are_retrieved(workspace):
    done = agentlite(
        "eval",
        "--run",
        workspace,
        "--model",
        model_of(workspace),
        "--retrieve",
        99,
        "--retrieve-by",
        "keyword",
        "--limit",
        2,
        *ASK,
        "--json",
    )
    assert done.returncode == 0, done.stderr.decode()
    assert "has 13 tools, not 99" in done.stderr.decode()


def test_tools_of_a_file_are_searched_too_and_what_is_wrong_with_them_is_counted(
    workspace, tmp_path
):
    path = tmp_path / "tools.jsonl"
    other = tool("rain")
    other["function"]["description"] = "Something else"
    path.write_text(
        "\n".join(map(json.dumps, [tool("ships"), other, {"name": ""}])) + "\n", encoding="utf-8"
    )
    done = agentlite(
        "retriever", "--run", workspace, "--tools", path, "--out", "more", "--dry-run", "--json"
    )
    assert done.returncode == 0, done.stderr.decode()
    figures = json.loads(done.stdout)["figures"]
    assert (figures["tools"], figures["names"]) == (15, 14)
    assert figures["problems"] == {"E212": 1, "several schemas": 1}
    assert f"{path}:3: E212" in done.stderr.decode()
    asked = ["retriever", "--run", workspace, "--out", "more", "--dry-run", "--json"]
    done = agentlite(*asked, "--epochs", 2.5, "--batch-size", 2)
    figures = json.loads(done.stdout)["figures"]
    assert figures["pairs"] > 2 and figures["steps"] == math.ceil(figures["pairs"] * 2.5 / 2)


@pytest.mark.parametrize("split", ["dev", "test"])
def test_an_example_that_asks_what_is_held_out_is_not_learned(split):
    held, other = (to_record(row("ships", town), "openai") for town in ("Oslo", "Rome"))
    records = {"train": [], "dev": [], "test": []} | {split: [held]}
    read = ToolFile(ToolPool(), [held, other], [])
    read.pool.add(held.tools[0])
    assert _new_examples(read, records) == [other]
    [problem] = read.problems
    assert problem["problem"].startswith("1 examples ask what dev or test ask")


def test_without_training_there_is_an_index_by_the_model_as_it_is(workspace, tiny_encoder):
    done = agentlite(
        "retriever",
        "--run",
        workspace,
        "--model",
        tiny_encoder,
        "--out",
        "bare",
        "--max-steps",
        0,
        "--max-length",
        32,
        "--json",
    )
    assert done.returncode == 0, done.stderr.decode()
    assert "tuned" not in json.loads(done.stdout)["figures"]["ranking"]["all"]["13"]
    assert not (workspace / "bare" / "model").exists()
    told = agentlite(
        "eval",
        "--run",
        workspace,
        "--model",
        model_of(workspace),
        "--retrieve",
        2,
        "--retriever",
        "bare",
        "--limit",
        2,
        *ASK,
    )
    assert told.returncode == 0, told.stderr.decode()


@pytest.mark.slow
def test_the_embedded_model_brings_a_tool_that_is_asked_for_in_other_words(tmp_path):
    from agentlite.engine import sentence_encoder
    from agentlite.workspace.encoder_source import find_encoder

    model = sentence_encoder.load(find_encoder("all-minilm-l6-v2", tmp_path), 64)
    tools = [
        "get_rain: Precipitation in a town",
        "find_train: Departures between two stations",
        "toss_coin: Chance",
    ]
    asked = [
        "Will I need an umbrella in Oslo?",
        "How do I get to Rome by railway?",
        "Heads or tails?",
    ]
    scores = sentence_encoder.embed(model, asked) @ sentence_encoder.embed(model, tools).T
    assert scores.argmax(axis=1).tolist() == [0, 1, 2]


def test_a_static_model_is_made_once_has_a_vector_a_token_and_learns(
    workspace, tiny_encoder, tmp_path, monkeypatch
):
    from agentlite.engine import sentence_encoder
    from agentlite.workspace import encoder_source

    monkeypatch.setitem(encoder_source.STATIC, "static-tiny", str(tiny_encoder))
    monkeypatch.setenv("AGENTLITE_CACHE", str(tmp_path / "cache"))
    source = encoder_source.find_encoder("static-tiny", tmp_path)
    model = sentence_encoder.load(source, 32)
    made = (Path(source.base) / "model.safetensors").stat().st_mtime_ns
    one, other, both = sentence_encoder.embed(model, ["rain", "train", "rain train"])
    weights = model[0].embedding.weight.detach().numpy()
    ids = [model.tokenizer.encode(text, add_special_tokens=False).ids for text in ("rain", "train")]
    mean = weights[[*ids[0], *ids[1]]].mean(0)
    assert numpy.allclose(both, mean / numpy.linalg.norm(mean), atol=1e-5)
    assert not numpy.allclose(one, other, atol=1e-2)
    assert encoder_source.is_static(source)
    assert not encoder_source.is_static(encoder_source.find_encoder(str(tiny_encoder), tmp_path))
    done = agentlite(
        "retriever",
        "--run",
        workspace,
        "--out",
        "static",
        "--model",
        source.base,
        "--max-steps",
        40,
        "--batch-size",
        8,
        "--json",
    )
    assert done.returncode == 0, done.stderr.decode()
    figures = json.loads(done.stdout)["figures"]
    assert figures["last_loss"] < figures["first_loss"] / 2
    plan = json.loads((workspace / "static" / "plan.json").read_bytes())
    assert plan["settings"]["learning_rate"] == 0.02
    sentence_encoder.load(source, 32)
    assert (Path(source.base) / "model.safetensors").stat().st_mtime_ns == made
