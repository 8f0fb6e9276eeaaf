"""Which protocol of a mixture a record gets depends on the calls of a turn, not of the dialog."""

import pytest
from msgspec.structs import replace

from agentlite.core.errors import UserError
from agentlite.core.records import Call, Message, Record
from agentlite.rendering import choose


def dialog(number: int, *calls: int) -> Record:
    """A turn of the assistant for each count of calls."""
    turns = [Message("user", f"Question {number}")]
    for turn, count in enumerate(calls):
        made = tuple(Call("f", {}, f"{turn}-{one}") for one in range(count))
        turns.append(Message("assistant", "", made))
        turns += [Message("tool", "1", call_id=call.id) for call in made]
    return Record(messages=(*turns, Message("assistant", "Done.")))


@pytest.mark.parametrize(
    ("calls", "both"),
    [
        ((), True),
        ((1,), True),
        ((1, 1), True),
        ((1, 1, 1, 1), True),
        ((2,), False),
        ((1, 2), False),
    ],
)
def test_react_gets_its_share_of_dialogs_whose_turns_hold_one_call_each(smollm2, calls, both):
    mixture = choose("hermes=1,react=1", smollm2)
    names = {mixture.protocol_of(dialog(number, *calls)).name for number in range(60)}
    assert names == ({"hermes", "react"} if both else {"hermes"})


@pytest.mark.parametrize("name", ["hermes", "react"])
def test_a_record_keeps_the_protocol_that_prep_chose_for_it_if_that_is_here(smollm2, name):
    mixture = choose("hermes=1,react=1", smollm2)
    for number in range(20):
        record = dialog(number)
        chosen = replace(record, meta={"protocol": name})
        assert mixture.protocol_of(chosen).name == name
        other = replace(record, meta={"protocol": "chat"})
        assert mixture.protocol_of(other) == mixture.protocol_of(record)


@pytest.mark.parametrize(
    ("setting", "cause"),
    [
        ('{"name": 1,}', "double quotes"),
        ('{"name" 1}', "Expecting ':' delimiter"),
        ('{"name": 1, "name": 2}', "a key twice"),
        ('{"a":' * 200_000, "nested too deep"),
    ],
    ids=["a comma", "no colon", "twice", "deep"],
)
def test_a_template_in_json_that_cannot_be_read_is_refused_with_the_cause(setting, cause, smollm2):
    with pytest.raises(UserError, match="not a prompt template: ") as refused:
        choose(f"hermes=1,{setting}=2", smollm2)
    assert cause in refused.value.problem and refused.value.location == "--protocol"
