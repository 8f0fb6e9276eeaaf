"""The groups of figures: their names, their order, and what of metrics.json is printed."""

from typing import get_args

from support.samples import WEATHER

from agentlite.core.records import Call, Message, Prediction, Record
from agentlite.environments.trajectories import EndedBy
from agentlite.scoring.metrics.measure_predictions import figures
from agentlite.scoring.metrics.model_metrics import DONE, ENDINGS, GROUPS, as_printed

OSLO = Call("get_weather", {"city": "Oslo"})
ASKED = Record(
    messages=(Message("user", "Wet?"), Message("assistant", calls=(OSLO,))), tools=(WEATHER,)
)


def test_named_figures_are_printed_in_the_order_of_their_names_and_all_without_names():
    scored = {"expected": 1.0, "exact_call": 1.0}
    rows = [Prediction(ASKED.id, 1, "", "", (OSLO,), scored, {})]
    metrics = figures(rows, [], {ASKED.id: ASKED}, 0)
    for names in (["recall", "exact_call", "name_f1"], ["name_f1", "exact_call", "recall"]):
        printed = as_printed(metrics, [*names, "judge_score"])
        assert [*printed] == ["prompts", "metrics"] and printed["prompts"] == 1
        assert [*printed["metrics"]] == names
        assert all(figure["mean"] == 1.0 for figure in printed["metrics"].values())
    whole = as_printed(metrics, [])
    assert {"timing", "tools", "by"} <= whole.keys() and "judge" not in whole


def test_each_end_of_a_rollout_has_a_figure_of_its_own():
    assert {*ENDINGS} == {*get_args(EndedBy)}
    assert sorted(GROUPS["endings"].names) == sorted({*ENDINGS.values()})


def test_the_reward_of_an_environment_says_whether_a_task_is_done_before_its_right_calls_do():
    assert [name for name in DONE if name in {"gold_calls": 0.5, "env": 1.0}] == [
        "env",
        "gold_calls",
    ]


def test_only_the_columns_of_timing_are_shown_where_no_model_has_them():
    assert [name for name, group in GROUPS.items() if group.all_shown] == ["timing"]
