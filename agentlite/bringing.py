"""A finished retriever and a way to rank -> what brings its tools to records; loads a model only where one ranks."""

from collections.abc import Callable
from pathlib import Path

from agentlite import config, console, stages
from agentlite.engine import embedding
from agentlite.extras import need
from agentlite.retrieval import index
from agentlite.retrieval.encoders import MADE, find_encoder
from agentlite.retrieval.index import Index
from agentlite.retrieval.offers import Missing, Offers
from agentlite.retrieval.rankers import BY_WORDS, Ranker, by_vectors, fused
from agentlite.templates import Source

NEEDED = {"bm25": ("bm25s",), "tfidf": ("sklearn",)}


def digest_of(settings: config.Prep | config.Eval, run: Path) -> str:
    """Names the tools, and the model that ranks them. Raises UserError for a stage that is not finished."""
    done = stages.finished(stages.find_stage(settings.retriever, run), "retriever")
    return ",".join(value[:16] for name, value in sorted(done.outputs.items()) if name.startswith(("index", MADE)))


def check_packages(method: str) -> None:
    """Asked before anything slow: whether what the method needs is installed. Raises UserError 5."""
    if method in ("tuned", "hybrid"):
        embedding.check_libraries()
    else:
        need(f"ranking by {method}", NEEDED.get(method, ()), 'pip install "agentlite[retriever]"')


def offers(settings: config.Prep | config.Eval, run: Path, missing: Missing) -> Offers:
    """Raises UserError 2, 5 or 8."""
    assert settings.retrieve
    check_packages(settings.retrieve_by)
    folder = stages.find_stage(settings.retriever, run)
    stages.finished(folder, "retriever")
    found = index.read(folder)
    names = len(found.pool.names)
    if settings.retrieve > names:
        console.notice(f"{folder}: has {names} tools, not {settings.retrieve}: all are brought")
    ranker = METHODS[settings.retrieve_by](found, folder, run)
    return Offers(found.pool, ranker, min(settings.retrieve, names), settings.retrieve_by, missing)


def _tuned(found: Index, folder: Path, run: Path) -> Ranker:
    source = find_encoder(str(folder), run)
    model = embedding.load(Source(f"{folder.name}'s model", source.base, None, source.digest),
                           int(stages.read_plan(folder).settings["max_length"]))  # fmt: skip
    return by_vectors(found.vectors, lambda texts: embedding.embed(model, texts))


def _hybrid(found: Index, folder: Path, run: Path) -> Ranker:
    tuned, words = _tuned(found, folder, run), BY_WORDS["bm25"](found.pool.texts)
    return lambda texts: fused(tuned(texts), words(texts))


def _by_words(name: str) -> Callable[[Index, Path, Path], Ranker]:
    return lambda found, folder, run: BY_WORDS[name](found.pool.texts)


METHODS: dict[str, Callable[[Index, Path, Path], Ranker]] = {
    "tuned": _tuned, "hybrid": _hybrid, **{name: _by_words(name) for name in BY_WORDS},
}  # fmt: skip
