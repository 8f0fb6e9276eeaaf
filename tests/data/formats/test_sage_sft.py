"""agentlite.data.formats.sage_sft: results name a tool; the call that each answers is put before
it.
"""

from typing import Any

import pytest
from support.damaged_rows import Row

from agentlite.core.records import (
    Tool,
)
from agentlite.data.formats import sage_sft

OPEN = {"type": "object", "properties": {}, "additionalProperties": True}
RAIN, TIDE = Tool("rain_001", "", OPEN), Tool("tide_table_002", "", OPEN)


def dialog(*turns: Any, **row: Any) -> Row:
    asked = {"role": "user", "content": "q"}
    return {"dialog_id": "sft_1", "turns": [asked, *turns], "target_tools": ["rain_001"], **row}


SAID = {"role": "assistant", "content": "a"}
RESULT = {"role": "tool", "content": "r", "tool_id": "rain_001"}


@pytest.mark.parametrize("inside", [False, True], ids=["beside the turns", "in metadata"])
@pytest.mark.parametrize(
    ("candidates", "names"),
    [
        (None, {"rain_001"}),
        ([], {"rain_001"}),
        (["rain_001", "tide_table_002"], {"rain_001", "tide_table_002"}),
        (["tide_table_002", "snow_003"], {"rain_001", "tide_table_002", "snow_003"}),
    ],
)
def test_the_target_is_on_offer_once_whether_or_not_it_is_among_the_candidates(
    candidates: list[str] | None, names: set[str], inside: bool
) -> None:
    named = {"candidate_tools": candidates}
    row = dialog(SAID, RESULT, SAID, **({"metadata": named} if inside else named))
    offered = [tool.name for tool in sage_sft.read(row).tools]
    assert sorted(offered) == sorted(names)
    orders = {
        tuple(tool.name for tool in sage_sft.read({**row, "dialog_id": f"sft_{n}"}).tools)
        for n in range(40)
    }
    # in some dialogs every tool comes first: the place does not tell which one is the target
    assert {order[0] for order in orders} == names
