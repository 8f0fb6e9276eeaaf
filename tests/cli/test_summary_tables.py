"""prep's and rollout's tables: each reason with its meaning, and wrong lines in colour."""

from typing import Any, get_args

import pytest

from agentlite.cli.summary_tables import (
    ENDINGS,
    Line,
    number,
    of_make,
    of_prep,
    of_queries,
    of_rollout,
    of_servers,
    of_templates,
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


def test_lengths_stand_against_the_limit_and_tools_are_named_by_their_calls():
    found = named(FIGURES)
    assert found["length"][0].words == (
        "tokens in a typical row; the longest has 1,691 of at most 2,048"
    )
    assert found["learned"][0] == Line(
        "learned", "3,012", "tokens in train; 11% of all tokens are the assistant's"
    )
    assert found["tools"][0].words == (
        "on offer, typically 5 at a time; 1,080 calls: a 1,000, b 20, c 19, d 18, e 13, 2 more"
    )
    assert [line.name for line in of_prep(FIGURES, None)][-2:] == ["task", "protocol"]


def test_each_kind_of_variant_has_a_line_with_why_rows_have_none():
    made = {
        "removed": {"no other tool on offer": 1200, "made": 3, "no call is expected": 2},
        "masked": {"made": 5},
        "left out": {"too long": 2},
    }
    lines = of_prep(FIGURES | {"made": made}, None)[-3:]
    assert lines == [
        Line(
            "variants",
            "3",
            "removed; other rows have none: no other tool on offer 1,200, no call is expected 2",
        ),
        Line("variants", "5", "masked"),
        Line("", "2", "left out, too long", "yellow"),
    ]


@pytest.mark.parametrize("figure", ["repaired", "personal", "cut", "buffer"])
def test_a_figure_of_what_seldom_happens_has_a_line_of_its_own(figure):
    value = 7 if figure in ("cut", "buffer") else {"json": 7, "other": {"x": 1}}
    (line,) = named(FIGURES | {figure: value})[figure]
    assert "7" in line.figure + line.words and "{" not in line.words


def test_nothing_rejected_is_said_and_nothing_kept_is_red():
    figures = {"read": 3, "kept": 0, "by_file": {}}
    found = named(figures, None)
    assert found["rejected"] == [Line("rejected", "0", "")]
    assert found["kept"][0].colour == "red" and "train" not in found


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
        Line("", "1", "ended at --max-turns or --user-turns"),
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


def test_templates_are_shown_with_their_difference_and_what_was_dropped():
    points = {"mean": 0.5, "low": -0.125, "high": 1.0}
    figures = {
        "kept": 1,
        "written": 3,
        "differences": {
            "meta-01": {"points": points, "score": 3.5, "readable": 0.75},
            "meta-02": {"points": None, "score": None, "readable": 0.0},
        },
        "benchmark": {"autogpt": 3.0},
        "dropped": {"missing slot": 1},
    }
    assert of_templates(figures) == [
        Line("templates", "1", "kept, of 3"),
        Line(
            "points",
            "+0.50",
            "meta-01, 95 % from -0.12 to +1.00; 75% of its answers can be read",
        ),
        Line("benchmark", "3.00", "of 5, autogpt"),
        Line("dropped", "1", "missing slot", "yellow"),
    ]


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


@pytest.mark.parametrize("copies", [0, 3])
@pytest.mark.parametrize("personal", [{}, {"mail": 2, "card": 1}], ids=["none", "some"])
@pytest.mark.parametrize("spread", [None, 0.0, 0.625], ids=["no encoder", "none", "spread"])
def test_the_quality_of_dialogs_is_shown_and_what_to_look_at_is_marked(copies, personal, spread):
    quality = {
        "distinct_words": {"1": 0.5, "2": 0.75},
        **({} if spread is None else {"spread": spread}),
        "difficulty": {"user_turns": 1.5, "calls": 2.25, "takes_an_earlier_result": 0.5},
        "near_copies": copies,
        "personal_data": personal,
    }
    counts = {"kept": 4, "wanted": 4, "calls": 9, "tools_called": 3, "kinds": {"single": 4}}
    more: dict[str, dict[str, int]] = {"not_found": {}, "verified": {}, "filtered": {}}
    lines = {line.name: line for line in of_make({**counts, **more, "quality": quality})}
    assert lines["diversity"].figure == "75%"
    assert ("spread" in lines) == (spread is not None)
    assert lines["difficulty"].words.startswith("calls and 1.5 turns of the user")
    assert (lines["near copies"].figure, bool(lines["near copies"].colour)) == (
        str(copies),
        copies > 0,
    )
    found = lines["personal"]
    assert (found.figure, bool(found.colour)) == (str(sum(personal.values())), bool(personal))
    assert all(f"{kind} {count}" in found.words for kind, count in personal.items())


def test_each_model_behind_a_server_is_shown_with_what_it_cost():
    one = {"replies": 1200, "tokens_read": 34567, "tokens_written": 8901}
    assert of_servers({"a": one, "b": one}) == [
        Line("replies", "1,200", f"of {model}: 34,567 tokens read, 8,901 written") for model in "ab"
    ]
    assert of_servers({}) == []


def test_several_sources_are_counted_and_each_of_their_formats_is_named_once():
    one, other = {"formats": {"openai": 1, "alpaca": 2}}, {"formats": {"openai": 3}}
    files = {"a.jsonl": one, "b.jsonl": other}
    (rows,) = named(FIGURES | {"by_file": files})["rows"]
    assert rows.words == "from 2 sources (alpaca, openai)"
    (rows,) = named(FIGURES | {"by_file": {"a.jsonl": {"formats": {}}}})["rows"]
    assert rows.words == "from a.jsonl"
    (kept,) = named(FIGURES | {"read": 0, "kept": 0})["kept"]
    assert kept.words == ""


@pytest.mark.parametrize("called", range(8))
def test_the_five_tools_that_are_called_most_are_named_and_the_others_counted(called):
    most = {name: 9 - at for at, name in enumerate("abcdefg"[:called])}
    tools = {**FIGURES["tools"], "called": called, "most_called": most, "calls": 40}
    words = named(FIGURES | {"tools": tools})["tools"][0].words
    listed = [f"{name} {count}" for name, count in most.items()][:5]
    listed += [f"{called - 5} more"] if called > 5 else []
    assert words == ": ".join(
        filter(None, ["on offer, typically 5 at a time; 40 calls", ", ".join(listed)])
    )


def test_a_figure_is_written_as_short_as_it_can_be():
    written = {"0.3333": 1 / 3, "3": 3, "1 -> 2": [1, 2], "a 1, b 0.5": {"a": 1, "b": 0.5}, "-": {}}
    assert [number(value) for value in written.values()] == [*written]
