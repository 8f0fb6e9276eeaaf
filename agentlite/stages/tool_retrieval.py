"""A finished retriever and a ranking method -> the tools that prep and eval offer."""

from collections.abc import Iterable
from pathlib import Path

from agentlite.config.settings import EvalSettings, PrepSettings
from agentlite.core import console
from agentlite.core.errors import need
from agentlite.core.records import Record, canonical, digest
from agentlite.core.row_files import read_rows
from agentlite.engine import sentence_encoder
from agentlite.retrieval import index
from agentlite.retrieval.index import ToolIndex
from agentlite.retrieval.offer_tools import Missing, ToolOffers
from agentlite.retrieval.queries import questions
from agentlite.retrieval.rankers import BY_WORDS, Ranker, by_vectors, fused_by_name
from agentlite.retrieval.training_pairs import PAIRS, normal
from agentlite.workspace import run_folder
from agentlite.workspace.model_source import MADE, find_encoder

METHODS = ("tuned", "hybrid", *BY_WORDS)
PACKAGES = {"bm25": ("bm25s",), "tfidf": ("sklearn",)}  # of those that need no model


def digest_of(settings: PrepSettings | EvalSettings, run: Path) -> str:
    """Changes with the tools and with the model that ranks them. Raises UserError for a stage that
    is not finished.
    """
    done = run_folder.finished(run_folder.find_stage(settings.retriever, run), "retriever")
    return digest(
        canonical(
            {
                name: value
                for name, value in done.outputs.items()
                if name.startswith(("index", MADE))
            }
        )
    )


def learned(settings: EvalSettings, records: Iterable[Record], run: Path) -> int:
    """How many of the records have a question that the retriever was trained on: with another
    split this happens.
    """
    pairs = run_folder.find_stage(settings.retriever, run) / PAIRS
    rows = read_rows(pairs) if pairs.exists() else ()
    trained = {normal(row["query"]) for row in rows if row["split"] == "train"}
    return sum(
        any(normal(text) in trained for text in questions(record))
        for record in records
        if record.tools
    )


def check_packages(settings: PrepSettings | EvalSettings) -> None:
    """Raises UserError 5 where the ranking method lacks a package."""
    if settings.retrieve_by in ("tuned", "hybrid"):
        sentence_encoder.check_libraries()
    else:
        need(
            f"ranking by {settings.retrieve_by}",
            PACKAGES.get(settings.retrieve_by, ()),
            sentence_encoder.INSTALL,
        )


def offers(settings: PrepSettings | EvalSettings, run: Path, missing: Missing) -> ToolOffers:
    """Raises UserError 2, 5 or 8."""
    assert settings.retrieve
    check_packages(settings)
    folder = run_folder.find_stage(settings.retriever, run)
    run_folder.finished(folder, "retriever")
    tools = index.read(folder)
    names = len(tools.pool.names)
    if settings.retrieve > names:
        console.notice(f"{folder}: has {names} tools, not {settings.retrieve}: all are retrieved")
    ranker = ranker_of(settings.retrieve_by, tools, folder, run)
    return ToolOffers(
        tools.pool, ranker, min(settings.retrieve, names), settings.retrieve_by, missing
    )


def ranker_of(method: str, tools: ToolIndex, folder: Path, run: Path) -> Ranker:
    """The method of METHODS that ranks the tools of a retriever's folder."""
    if method in BY_WORDS:
        return BY_WORDS[method](tools.pool.texts)
    source = find_encoder(str(folder), run)
    if source.name == str(folder):
        source = source._replace(name=f"{folder.name}'s model")
    model = sentence_encoder.load(source, int(run_folder.read_plan(folder).settings["max_length"]))
    tuned = by_vectors(tools.vectors, lambda texts: sentence_encoder.embed(model, texts))
    if method == "tuned":
        return tuned
    words, pool = BY_WORDS["bm25"](tools.pool.texts), tools.pool
    return lambda texts: fused_by_name(tuned(texts), words(texts), pool.owners, len(pool.names))
