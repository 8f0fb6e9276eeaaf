"""A row of a file that a stage wrote and that holds no records -> which file, and what reads it."""

from typing import Any, NamedTuple

from agentlite.core.errors import RowError

CANDIDATE = frozenset({"record_id", "turn", "protocol", "model", "sample"})
PAIRS = "`agentlite pairs --from FOLDER` ranks its candidates, and `agentlite dpo` learns from it"


class OwnFile(NamedTuple):
    """`keys`: those that its rows have, whatever else they hold."""

    name: str
    keys: frozenset[str]
    hint: str


# the first whose keys are all there: the more particular stand first
OWN_FILES = (
    OwnFile("rollouts.jsonl", CANDIDATE | {"text", "components"}, PAIRS),
    OwnFile("candidates.jsonl", CANDIDATE | {"text"}, PAIRS),
    OwnFile("scores.jsonl", CANDIDATE | {"components"}, PAIRS),
    OwnFile("pairs.jsonl", frozenset({"record_id", "turn", "chosen", "rejected"}), PAIRS),
    OwnFile(
        "predictions.jsonl",
        frozenset({"record_id", "turn", "text", "metrics"}),
        "`agentlite eval --predictions FILE` measures it",
    ),
    OwnFile(
        "answers.jsonl",
        frozenset({"record_id", "turn", "text", "ended"}),
        "`agentlite eval` measures it",
    ),
    OwnFile(
        "dialogs.jsonl", frozenset({"record_id", "metrics", "slices"}), "`agentlite eval` writes it"
    ),
    OwnFile(
        "rejects.jsonl",
        frozenset({"location", "code", "reason", "hint"}),
        "correct the rows in their source",
    ),
    OwnFile(
        "provenance.jsonl",
        frozenset({"id", "location", "format", "end"}),
        "`agentlite prep --why ID` reads it",
    ),
    OwnFile(
        "measures.jsonl",
        frozenset({"id", "tokens", "trained_tokens", "lexical_diversity"}),
        "`agentlite prep --why ID` reads it",
    ),
)


def refuse_own_file(row: dict[str, Any]) -> None:
    """Raises RowError E202 for a row of such a file: its texts are not for learning."""
    for file in OWN_FILES:
        if file.keys <= row.keys():
            raise RowError("E202", f"a row of {file.name}, which holds no dialogs: {file.hint}")
