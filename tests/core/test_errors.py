"""The fix that an unknown name gets."""

from agentlite.core.errors import closest, nearest


def test_an_unknown_name_gets_the_closest_one_or_else_all_or_another_way_out():
    assert nearest("grop", ["dpo", "grpo"]) == "Did you mean 'grpo'?"
    assert nearest("lora_rr", ["lora_r"], prefix="sft.") == "Did you mean 'sft.lora_r'?"
    assert nearest("xyz", ["dpo", "grpo"]) == "Known: dpo, grpo."
    assert nearest("xyz", ["dpo"], other="Look there.") == "Look there."
    assert nearest("xyz", ["dpo"], other="") == ""
    assert closest("xyz", []) == ""
