"""Losses of records are taken from the cache where nothing that they depend on has changed."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agentlite.config.settings import PrepSettings
from agentlite.data.ingest_row import IngestContext
from agentlite.engine import loss_per_record
from agentlite.rendering import settled
from agentlite.rendering.template import Template
from agentlite.stages.prep.losses import losses
from agentlite.workspace.model_source import Source

MODEL = Source("one", "smollm2-135m", None, "digest of one")


def found(
    template: Template,
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    first: dict[str, Any],
    changed: dict[str, Any],
) -> bool:
    """Whether the second run, with these changes, finds what the first has computed."""
    computed_for: list[list[str]] = []

    def computed(ids: list[str], *_: object) -> list[tuple[str, float]]:
        computed_for.append([*ids])
        return [(one, 1.5) for one in ids]

    monkeypatch.setenv("AGENTLITE_CACHE", str(cache))
    monkeypatch.setattr(loss_per_record, "record_losses", computed)
    ingested: Any = SimpleNamespace(traits=[SimpleNamespace(id="a"), SimpleNamespace(id="b")])
    for given in (first, {**first, **changed}):
        model = given.pop("model", MODEL)
        settings = PrepSettings(**given)
        mixture = settled(settings.protocol, template, settings.seed)
        context = IngestContext(settings, template, mixture)
        assert losses([0, 1], ingested, context, model) == {"a": 1.5, "b": 1.5}
    assert computed_for[0] == ["a", "b"] and computed_for[1] in ([], ["a", "b"])
    return not computed_for[1]


MIX = "hermes,react"


@pytest.mark.parametrize(
    ("protocol", "changed", "is_known"),
    [
        ("hermes", {}, True),
        ("hermes", {"model": MODEL._replace(name="another name")}, True),
        ("hermes", {"model": MODEL._replace(digest="digest of another")}, False),
        ("hermes", {"protocol": MIX}, False),
        ("hermes", {"protocol": "react"}, False),
        ("hermes", {"seed": 1}, True),
        (MIX, {}, True),
        (MIX, {"seed": 1}, False),
        (MIX, {"protocol": "hermes=2,react"}, False),
    ],
    ids=str,
)
def test_losses_are_known_again_but_for_another_model_or_protocol_or_seed_of_a_mixture(
    protocol: str,
    changed: dict[str, Any],
    is_known: bool,
    smollm2: Template,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert found(smollm2, tmp_path, monkeypatch, {"protocol": protocol}, changed) == is_known
