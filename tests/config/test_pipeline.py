"""agentlite.config.pipeline: what the house knows of each stage before it imports one."""

from agentlite.config.pipeline import STAGES


def test_no_two_stages_have_a_name_in_common():
    names = [*STAGES, *(other for stage in STAGES.values() for other in stage.other_names.split())]
    assert len(names) == len({*names})
