"""agentlite.data.formats: rows of any shape become records, or rejects that say why."""

import json
from collections.abc import Iterator
from contextlib import suppress
from itertools import product
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.damaged_rows import json_values
from support.examples import examples, sample
from support.read_rows import from_stdin, rows_of
from support.samples import DATA

from agentlite.core.errors import RowError
from agentlite.core.records import (
    Message,
    Parsed,
    from_row,
    to_row,
)
from agentlite.data.curation.split import TIES
from agentlite.data.curation.traits import traits
from agentlite.data.curation.validate import validate
from agentlite.data.formats import FORMATS, detected, to_record
from agentlite.scoring.metrics.tool_calls import score_step


def written_rows() -> list[Any]:
    """A row of every format, and of every written form of a row of agentlite's own."""
    rows = [json.loads(known.example) for known in FORMATS.values()]
    rows += [
        raw.value
        for name in ("openai", "sharegpt", "ms_agent")
        for raw in rows_of(DATA / "formats" / f"{name}.jsonl")
    ]
    return [*rows, *(json.loads(json.dumps(to_row(to_record(row)))) for row in rows)]


def parts_of(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values inside a value, those in JSON texts too: after the key of a text
    comes None.
    """
    if isinstance(value, str) and value[:1] in ("{", "["):
        with suppress(ValueError):
            yield from parts_of(json.loads(value), (*path, None))
    inner_values = dict(enumerate(value)) if isinstance(value, list) else value
    for key, inner in inner_values.items() if isinstance(inner_values, dict) else ():
        yield (*path, key)
        yield from ((*path, key, extra) for extra in EXTRA if isinstance(inner, dict))
        yield from parts_of(inner, (*path, key))


def with_junk(value: Any, path: tuple[Any, ...], junk: Any) -> Any:
    if not path:
        return junk
    if path[0] is None:
        return json.dumps(with_junk(json.loads(value), path[1:], junk))
    changed: Any = value.copy()
    changed[path[0]] = with_junk(value[path[0]], path[1:], junk) if len(path) > 1 else junk
    return changed


JUNK = (
    st.sampled_from(
        [
            *(None, 5, 3.0, True, float("nan"), "", "True", "\ud800", "\0", "[]", "{"),
            *([], {}, ["city"], [[]], {"a": 1}, [{"a": {}}]),
        ]
    )
    | json_values
)
EXTRA = (
    *("properties", "$defs", "required", "type", "items", "description"),
    *("joined", "content", "tool_calls", "loss"),
)


@pytest.mark.long
@settings(max_examples=examples(400), deadline=None)
@given(st.data(), st.sampled_from(written_rows()), st.integers(1, 3))
def test_a_row_with_junk_in_it_is_a_reject_or_a_record_that_comes_back_as_written(
    data: st.DataObject, row: Any, changes: int
) -> None:
    for _ in range(changes):
        path = data.draw(st.sampled_from(list(parts_of(row))))
        row = with_junk(row, path, data.draw(JUNK))
    (raw,) = from_stdin(json.dumps(row).encode())
    with suppress(RowError):
        if raw.error:
            raise raw.error
        record = to_record(raw.value)
        validate(record)
        assert from_row(json.loads(json.dumps(to_row(record)))) == record
        assert all(
            any(keys(traits(record)))
            for name, keys in TIES.items()
            if name not in ("tools", "calls")
        )
        assert score_step(
            Parsed("", record.messages[-1].calls), record.expected(record.turns[-1]), record.tools
        )


@pytest.mark.parametrize("number", sample(12, range(len(written_rows()))))
def test_half_a_character_anywhere_in_a_row_never_reaches_the_disk(number: int) -> None:
    row, refused = written_rows()[number], 0
    for path in parts_of(row):
        (raw,) = from_stdin(json.dumps(with_junk(row, path, "Oslo \ud800")).encode())
        try:
            if raw.error:
                raise raw.error
            record = to_record(raw.value)
            validate(record)
        except RowError as error:
            refused += error.code == "E113"
        else:
            msgspec.json.encode(to_row(record))  # raises UnicodeEncodeError
    assert refused


TURNS = json.loads(FORMATS["openai"].example)["messages"]


@pytest.mark.parametrize(
    ("row", "right"),
    [
        ({"message": TURNS}, "messages"),
        ({"dialog": TURNS}, "messages"),
        ({"conversatons": [{"from": "human", "value": "q"}]}, "conversations"),
        ({"instructions": "q", "input": "", "output": "a"}, "instruction"),
        ({"txt": "a"}, "text"),
    ],
)
def test_a_key_that_is_misspelt_gets_the_name_by_which_the_row_fits(row: Any, right: str) -> None:
    with pytest.raises(RowError) as caught:
        to_record(row)
    (wrong,) = row.keys() & {caught.value.at}
    assert caught.value.hint == f"Did you mean '{right}' in place of '{wrong}'?"
    to_record({right if key == wrong else key: value for key, value in row.items()})


def sample_rows(*names: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for name in names:
        for line in (DATA / f"formats/{name}.jsonl").read_text(encoding="utf-8").splitlines():
            yield name, json.loads(line)


@pytest.mark.parametrize("mark", [{"loss": False}, {"weight": 0}], ids=str)
def test_a_turn_that_says_so_is_not_learned_in_any_format_of_turns(mark: dict[str, Any]) -> None:
    formats = set()
    for name, row in sample_rows(
        *("anthropic", "apigen_mt", "hermes_fc", "ms_agent", "ms_agent_exec", "ms_bench"),
        *("ms_swift", "openai", "sharegpt", "toolace", "toolllama"),
    ):
        turns = row.get("messages") or row.get("conversations") or row.get("conversation") or []
        speakers = ("assistant", "gpt", "function_call", "tool_call")
        learned = [t for t in turns if t.get("from", t.get("role")) in speakers]
        for turn in learned:
            turn.update(mark)
        if learned:
            formats.add(name)
            messages = to_record(row, "ms_bench" if name == "ms_bench" else None).messages
            assert not [m for m in messages if m.role == "assistant" and m.loss], (name, row)
            assert all(m.loss for m in messages if m.role != "assistant") or name == "openai"
    assert len(formats) == 11


def test_a_system_text_beside_the_turns_comes_first_in_every_format_that_has_one() -> None:
    tested = set()
    for name, row in sample_rows(
        *("agentinstruct", "alpaca", "anthropic", "apigen_mt", "hermes_fc", "ms_agent"),
        *("ms_agent_exec", "ms_bench", "ms_swift", "sharegpt", "toolace"),
    ):
        record = to_record(row)
        if row.get("system") or record.messages[0].role == "system":
            continue
        with_system = to_record({**row, "system": "Be kind."}, detected(row))
        expected = (Message("system", "Be kind."), *record.messages)
        assert with_system.messages == expected, (name, row)
        tested.add(name)
    assert len(tested) == 11


SECOND = ("messages", "conversations", "prompt", "input", "contents")
OTHERS = [name for name in FORMATS if name not in ("agentlite", "bfcl")]


@pytest.mark.parametrize(("name", "key"), sample(30, [*product(OTHERS, SECOND)]))
def test_a_second_dialog_in_a_row_is_kept_or_refused_and_not_lost(name: str, key: str) -> None:
    own = json.loads(FORMATS[name].example)
    turns = [{"role": "user", "content": "Say 317."}, {"role": "assistant", "content": "317."}]
    row = {**own, key: turns}
    if key in own or not FORMATS[name].fits(row) or detected(row) != name:
        return
    try:
        record = to_record(row, name)
    except RowError as error:
        refused = error
    else:
        kept = str((record.messages, record.meta))
        assert "Say 317." in kept and repr(to_record(own, name).messages[0].content) in kept
        return
    assert refused.code == "E201" and repr(key) in str(refused)
