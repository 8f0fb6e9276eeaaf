"""Predictions as what is judged, and verdicts as figures of a model."""

import csv
import io
from functools import partial

import pytest
from msgspec import UNSET

from agentlite.core import endpoint_pool
from agentlite.core.openai_client import Endpoint, Reply
from agentlite.core.records import Prediction
from agentlite.scoring.judge import human_ratings
from agentlite.scoring.judge.human_ratings import read_ratings, write_sheets
from agentlite.scoring.judge.llm_judge import Prices, judge_metrics
from agentlite.scoring.metrics.confidence import redrawn


def said(turn, text):
    return Prediction("r", turn, text, "", (), {}, {})


def test_the_figures_are_those_of_the_answers_that_have_a_score(
    dialog, tmp_path, monkeypatch, capsys
):
    replies = {"right": '{"score": 4}', "half": '{"score": 3}', "odd": "Hm."}

    def ask(endpoint, messages, parameters, stop):
        text = next(word for word in replies if f"\n{word}\n" in messages[1]["content"])
        return Reply(replies[text], prompt_tokens=100, completion_tokens=10)

    monkeypatch.setattr(endpoint_pool, "ask", ask)
    answers = [said(turn, text) for turn, text in zip((2, 4, 6), replies, strict=True)]
    url = "http://127.0.0.1:9/v1"
    metrics, run = judge_metrics(
        answers, {"r": dialog}, Endpoint(url, "m"), tmp_path / "v.jsonl", 0, Prices(1.0, 2.0)
    )
    assert [(one.mean, one.count) for one in metrics.values()] == [(3.5, 2), (0.5, 2)]
    assert (run.model, run.url, run.problems) == ("m", url, {"no score in the judge's text": 1})
    assert (run.prompt_tokens, run.completion_tokens) == (300, 30)
    assert run.cost == pytest.approx(360e-6)
    given, rows = (answers, {"r": dialog}, Endpoint(url, "m"), tmp_path / "v.jsonl", 0), []
    for prices, cost in ((Prices(0.0, 0.0), 0.0), (None, UNSET)):  # free, and not known
        _, run = judge_metrics(*given, prices, begin=rows.append)
        assert run.cost == cost
    assert rows == []  # nothing is left to be judged
    judge_metrics([said(2, "odd")], *given[1:], begin=rows.append)
    assert rows == [4]
    assert "no score to 1 answers: no score in the judge's text" in capsys.readouterr().err


def test_ratings_are_the_means_over_all_sheets_by_model(dialog, tmp_path, monkeypatch):
    monkeypatch.setattr(human_ratings, "redrawn", partial(redrawn, resamples=50))
    given = {model: [said(turn, f"{model} {turn}") for turn in (2, 4)] for model in ("a", "b")}
    write_sheets(given, {"r": dialog}, tmp_path / "s.csv", 0)
    sheet = (tmp_path / "s.csv").read_text(encoding="utf-8-sig")
    scores = {"a 2": (5, 3), "a 4": (4, 4), "b 2": (1, 0), "b 4": (2, 5)}
    for rater in (0, 1):
        with open(tmp_path / f"{rater}.csv", "w", encoding="utf-8", newline="") as file:
            rows = csv.DictReader(io.StringIO(sheet, newline=""))
            writer = csv.writer(file)
            writer.writerow(["row", "score"])
            writer.writerows([row["row"], scores[row["answer"]][rater]] for row in rows)
    found = read_ratings(tmp_path / "s.csv", [tmp_path / "0.csv", tmp_path / "1.csv"], 0)
    means = {
        model: [figures["metrics"][name]["mean"] for name in ("score", "usable")]
        for model, figures in found["models"].items()
    }
    assert means == {"a": [4.0, 1.0], "b": [2.0, 0.0]}
    assert found["agreement"]["ordinal"]["count"] == 4
