"""prep's and rollout's tables: each reason with its meaning, and wrong lines in colour."""

from typing import Any, get_args

from agentlite.cli.summary_tables import (
    ENDINGS,
    Line,
    of_make,
    of_prep,
    of_queries,
    of_rollout,
)
from agentlite.environments.trajectories import EndedBy

FIGURES: dict[str, Any] = {
    "read": 81,
    "kept": 73,
    "rejected": 6,
    "duplicates": 2,
    "filtered": 0,
    "train": 46,
    "dev": 5,
    "test": 22,
    "groups": 73,
    "new_tools": 3,
    "train_rows": 46,
    "trained_tokens": 3012,
    "rejects": {"E217": 5, "E121": 1},
    "left_out": {"D401": 2},
    "by_task": {"tool_selection": 46, "timing_decision": 27},
    "by_protocol": {"hermes": 73},
    "length": {"50%": 583, "90%": 660, "99%": 691, "100%": 1691},
    "proxy_loss": {"50%": 0.6},
    "tokens": {"all": 42946, "trained": 4698, "trained_share": 0.1094},
    "tools": {
        "offered": 9,
        "called": 7,
        "calls": 1080,
        "most_called": {"a": 1000, "b": 20, "c": 19, "d": 18, "e": 13, "f": 6, "g": 4},
        "offered_at_once": {"50%": 5},
    },
    "by_file": {"d.jsonl": {"formats": {"openai": 80}, "read": 81, "kept": 73}},
}


def named(figures: dict[str, Any], limit: int | None = 2048) -> dict[str, list[Line]]:
    """The lines by their names; a line without one belongs to the name above."""
    found: dict[str, list[Line]] = {}
    for line in of_prep(figures, limit):
        found.setdefault(line.name or [*found][-1], []).append(line)
    return found


def test_a_person_sees_what_was_kept_and_why_the_rest_was_not():
    found = named(FIGURES)
    assert found["rows"] == [Line("rows", "81", "from d.jsonl (openai)")]
    assert found["kept"] == [Line("kept", "73", "90% of the rows")]
    assert [(line.figure, line.words[:5], line.colour) for line in found["rejected"]] == [
        ("5", "E217:", "red"),
        ("1", "E121:", "red"),
    ]
    (left_out,) = found["left out"]
    assert left_out.words == "D401: The same dialog, tools and gold as another record"
    assert left_out.colour == ""
    names = [line.name for line in of_prep(FIGURES, 2048)]
    assert names.count("rejected") == names.count("left out") == 1  # the title of several lines


def test_the_split_has_shares_and_a_missed_one_is_marked():
    found = named(FIGURES | {"split_missed": {"dev": {"wanted": 15, "got": 5}}})
    assert found["train"] == [Line("train", "46", "63% of the records")]
    assert found["dev"] == [Line("dev", "5", "7% of the records; 15 were asked for", "yellow")]
    (test,) = found["test"]
    assert test.words == "30% of the records; 3 call only tools that train never calls"


def test_a_rollout_says_its_scores_how_it_ended_and_which_calls_failed():
    figures = {
        "tasks": 4,
        "rollouts": 8,
        "ended": {"user": 5, "turns": 1, "world": 2},
        "turns": 12,
        "calls": 16,
        "failed_calls": 8,
        "scores": {"env": 0.5},
    }
    assert of_rollout(figures) == [
        Line("rollouts", "8", "of 4 tasks, 12 turns"),
        Line("score env", "0.50", "mean of 6 rollouts"),
        Line("", "5", "ended with an answer to the user"),
        Line("", "1", "ended at max_turns or user_turns"),
        Line("", "2", "lost their world: the environment broke down", "red"),
        Line("calls", "16", "of them failed: 8 (50%)", "yellow"),
    ]
    assert of_rollout({**figures, "failed_calls": 7})[-1].colour == ""
    assert of_rollout({**figures, "calls": 0, "failed_calls": 0})[-1].words == "of them failed: 0"
    assert ENDINGS.keys() == {*get_args(EndedBy)}
    simulated = {"tool_faults": 2, "user_errors": 3, "user_errors_by_kind": {"call": 1, "cut": 2}}
    assert of_rollout({**figures, **simulated})[-2:] == [
        Line("tool faults", "2", "calls without a usable result", "yellow"),
        Line("user errors", "3", "of the simulated user: call 1, cut 2", "yellow"),
    ]
    assert of_rollout({**figures, "user_errors": 0})[-1].colour == ""


def test_queries_are_shown_by_cluster():
    clusters = [{"example": "Is it wet?", "seeds": 5, "new": 2}]
    figures = {"kept": 2, "wanted": 3, "seeds": 5, "requests": 4, "dropped": {"copy": 1}}
    assert of_queries({**figures, "clusters": clusters}) == [
        Line("queries", "2", "of 3, from 5 by 4 requests", "yellow"),
        Line("cluster", "2", "new, 5 seeds such as: Is it wet?"),
        Line("dropped", "1", "copy", "yellow"),
    ]


def test_dialogs_are_shown_by_kind_with_what_was_not_found_and_what_was_filtered():
    figures = {
        "kept": 1200,
        "wanted": 1300,
        "calls": 2400,
        "tools_called": 9,
        "kinds": {"single": 1195, "error": 5},
        "not_found": {"error": 70, "long": 2},
        "verified": {"results": 1200},
        "filtered": {"copy": 28},
        "judges": {"a": {"model": "a", "judged": 1200, "without_fault": 1100}},
        "judges_agree": {"dialogs": 900, "share": 0.875, "alpha": 0.5},
        "quality": {},
    }
    assert of_make(figures) == [
        Line("dialogs", "1,200", "of 1,300, with 2,400 calls of 9 tools", "yellow"),
        Line("", "1,195", "single"),
        Line("", "5", "error; for 70 no calls were found", "yellow"),
        Line("", "0", "long; for 2 no calls were found", "yellow"),
        Line("verified", "1,200", "whose results another process confirms"),
        Line("filtered", "28", "copy", "yellow"),
        Line("judge", "1,100", "of 1,200 dialogs are without a fault for a"),
        Line("", "88%", "of 900 dialogs: the judges agree; Krippendorff's alpha 0.50"),
    ]
    assert of_make({**figures, "wanted": 1200})[0].colour == ""
    agree = {"dialogs": 3, "share": 0.0, "alpha": 0.0}
    judged = of_make({**figures, "judges_agree": agree})[-1]
    assert judged == Line("", "0%", "of 3 dialogs: the judges agree; Krippendorff's alpha 0.00")
    none = {"dialogs": 0, "share": 0.0, "alpha": None}
    assert of_make({**figures, "judges_agree": none})[-1] == Line(
        "", "-", "of 0 dialogs: the judges agree"
    )
