"""Rows of other products: where they keep what our formats have."""

from collections.abc import Mapping
from typing import Any

from agentlite.data.formats.format import Row
from agentlite.data.formats.tool_calls import parse_json

GYM = "responses_create_params"  # of NeMo Gym
ASKED = {"tools": f"{GYM}.tools"}
# the paths that a row has, `a.b` for b in a, text of JSON or not -> by the keys of our formats, the
# paths of what is read
PLACES: dict[tuple[str, ...], Mapping[str, str]] = {
    ("messages_and_choices",): {"messages": "messages_and_choices"},  # ART
    ("trajectory.0.content",): {"messages": "trajectory"},  # OpenHands
    ("values.messages",): {"messages": "values.messages"},  # LangGraph
    ("inputs.messages", "outputs.messages"): {  # LangSmith
        **{"prompt": "inputs.messages", "completion": "outputs.messages"},
        "tools": "inputs.tools",
    },
    ("answer.role", "messages"): {"prompt": "messages", "completion": "answer"},  # AReaL
    # of these nothing can be read
    **{(path,): {} for path in ("completion", "extra_info.tools_kwargs", "ground_truth.1")},
    ("answer", "info", "prompt"): {"completion": "answer"},  # verifiers
    (GYM, "response.output"): {"input": f"{GYM}.input", "output": "response.output", **ASKED},
    (GYM, "expected_answer"): {"prompt": f"{GYM}.input", "completion": "expected_answer", **ASKED},
    (GYM, "ground_truth"): {"messages": f"{GYM}.input", "gold": "ground_truth", **ASKED},
    ("reward_model.ground_truth", "prompt"): {"completion": "reward_model.ground_truth"},  # verl
}
PREFERENCE = (
    "A preference, as of When2Call: `agentlite pairs --preferences FILE` and `agentlite dpo` learn "
    "it. To imitate the better answer alone, write rows with {0} as the last turn."
)


def reshape(row: Row, known: Mapping[tuple[str, ...], Mapping[str, str]] = PLACES) -> Row:
    """The row, with what it keeps elsewhere under the keys of our formats."""
    for paths, places in known.items():
        if row.get("messages") and "messages" not in paths:
            continue  # it has a dialog where our formats have it
        if all(at(row, path) is not None for path in paths):
            moved = {path.partition(".")[0] for path in places.values()}
            kept = {key: value for key, value in row.items() if key not in moved}
            values = {key: _dialog(at(row, path)) for key, path in places.items()}
            return kept | {key: v for key, v in values.items() if v or key not in kept}
    return row


def at(row: Row, path: str) -> Any:
    """What stands at a path; None if nothing."""
    value: Any = row
    for key in path.split("."):
        if isinstance(value, list):
            value = value[int(key)] if key.isdigit() and int(key) < len(value) else None
        else:
            value = parse_json(value.get(key)) if isinstance(value, dict) else None
    return value


def _dialog(value: Any) -> Any:
    """Turns, a lone one as well, without the choice of a server's answer that wraps them."""
    turns = [value] if isinstance(value, dict) and "role" in value else value
    if not isinstance(turns, list):
        return turns
    return [turn.get("message") or turn if isinstance(turn, dict) else turn for turn in turns]
