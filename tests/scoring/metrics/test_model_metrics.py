"""agentlite.scoring.metrics.model_metrics: one list of figures, each with its sentence."""

from agentlite.scoring.metrics import bfcl
from agentlite.scoring.metrics.model_metrics import (
    DONE,
    EXPLANATIONS,
    GROUPS,
    HEADLINE,
    NAMES,
    Metrics,
)

FIGURES = {name for group in GROUPS.values() for name in group.figures}


def test_each_figure_has_a_sentence_or_is_a_category_of_bfcl():
    assert FIGURES - {*EXPLANATIONS} == {*bfcl.RULES}
    assert all(says.endswith(".") and "\n" not in says for says in EXPLANATIONS.values())


def test_groups_are_keys_of_metrics_json_and_gates_know_their_figures():
    assert {*GROUPS} <= {*Metrics.__struct_fields__}
    assert {*NAMES} >= FIGURES >= {*DONE, *HEADLINE}
