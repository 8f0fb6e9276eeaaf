"""agentlite.config.pipeline: what the house knows of each stage before it imports one."""

from agentlite.config.pipeline import MADE, STAGES, TRAINED, TRAINERS, typed


def test_no_two_stages_have_a_name_in_common():
    names = [*STAGES, *(other for stage in STAGES.values() for other in stage.other_names.split())]
    assert len(names) == len({*names})


def test_a_stage_under_a_word_is_typed_behind_it():
    assert MADE == ("queries", "templates")
    assert [typed(name) for name in ("queries", "make", "sft", "chat")] == [
        "make queries",
        "make",
        "sft",
        "chat",
    ]


def test_stages_that_share_their_work_train_and_those_that_sample_for_it_do_not_share():
    shared = {name for name, stage in STAGES.items() if stage.torchrun}
    assert shared == {"sft", "dpo"} and shared < {*TRAINERS}
    assert {*TRAINERS} - shared == {"grpo", "distill"} and TRAINED in TRAINERS
