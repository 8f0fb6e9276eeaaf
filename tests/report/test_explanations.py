"""agentlite.report.explanations: a sentence for every figure, and for nothing else."""

from agentlite.report.explanations import EXPLANATIONS
from agentlite.scoring.metrics import bfcl
from agentlite.scoring.metrics.model_metrics import COUNTS, GROUPS

FIGURES = {name for group in GROUPS.values() for name in group.names}


def test_each_explanation_is_of_a_figure_that_there_is():
    assert {*EXPLANATIONS} <= FIGURES


def test_each_figure_has_a_sentence():
    assert FIGURES - {*bfcl.RULES} - {*COUNTS} <= {*EXPLANATIONS}
