"""prep's and rollout's tables: each reason with its meaning."""

from typing import Any

from agentlite.cli.output import Line, prep_lines

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
    "length": {"50%": 583, "90%": 660, "99%": 691, "100%": 1691},
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
    for line in prep_lines(figures, limit):
        found.setdefault(line.name or [*found][-1], []).append(line)
    return found


def test_a_person_sees_what_was_kept_and_why_the_rest_was_not():
    found = named(FIGURES)
    assert found["rows"] == [Line("rows", "81", "from d.jsonl (openai)")]
    assert found["kept"] == [Line("kept", "73", "90% of the rows")]
    rejected = [(line.figure, line.words[:5]) for line in found["rejected"]]
    assert rejected == [("5", "E217:"), ("1", "E121:")]
    (left_out,) = found["left out"]
    assert left_out.words == "D401: The same dialog, tools and gold as another record"
    names = [line.name for line in prep_lines(FIGURES, 2048)]
    assert names.count("rejected") == names.count("left out") == 1  # the title of several lines


def test_the_split_has_shares_and_new_tools_are_counted():
    found = named(FIGURES)
    assert found["train"] == [Line("train", "46", "63% of the records")]
    assert found["dev"] == [Line("dev", "5", "7% of the records")]
    (test,) = found["test"]
    assert test.words == "30% of the records; 3 call only tools that train never calls"
