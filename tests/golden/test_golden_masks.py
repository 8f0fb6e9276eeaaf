"""Ids and labels of 20 dialogs, in every protocol, under the templates that packages ship."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from support.golden import Golden, digest
from support.samples import ROOT
from support.shipped_templates import shipped, with_marks

import agentlite
from agentlite.core.errors import RowError, UserError
from agentlite.core.records import Record, from_row
from agentlite.core.row_files import read_rows
from agentlite.rendering import PROTOCOLS, choose, encode_row, render
from agentlite.rendering.template import Template

FORMATS = ("openai", "sharegpt", "anthropic", "hermes_fc", "ms_agent", "responses")


@pytest.fixture(scope="module")
def dialogs(tmp_path_factory: pytest.TempPathFactory) -> list[Record]:
    """Twenty dialogs of several formats."""
    run = tmp_path_factory.mktemp("dialogs")
    files = [str(ROOT / f"tests/support/rows/formats/{name}.jsonl") for name in FORMATS]
    agentlite.prep(
        *files,
        run=str(run),
        model="smollm2-135m",
        protocol="hermes",
        max_rejects=1.0,
        dev=0.0,
        test=0.0,
    )
    return [from_row(row) for row in read_rows(run / "prep/train.jsonl")][:20]


def rendered(name: str, dialogs: Sequence[Record], template: Template) -> Iterator[Any]:
    """Of each dialog the ids and labels of its rows, or the code of the error."""
    try:
        protocol = next(iter(choose(name, template).protocols.values()))
    except UserError as error:
        yield ["refused", error.exit_code]
        return
    for record in dialogs:
        try:
            rows = [encode_row(row, template) for row in render(record, protocol, template)]
        except RowError as error:
            yield ["rejected", error.code]
        except UserError as error:
            yield ["refused", error.exit_code]
        else:
            yield [[list(row.input_ids), list(row.labels)] for row in rows]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_protocol_under_every_shipped_template(
    protocol: str, dialogs: list[Record], smollm2: Template, golden: Golden
) -> None:
    templates = {"smollm2": smollm2}
    every = list(shipped())
    # the model's own calls are those of its template; other protocols only need its turns
    for name, source in every if protocol == "chat" else every[::6]:
        templates[name] = with_marks(name, source, smollm2.tokenizer)
    values = {
        name: digest(list(rendered(protocol, dialogs, template)))
        for name, template in templates.items()
    }
    golden(protocol, values)
