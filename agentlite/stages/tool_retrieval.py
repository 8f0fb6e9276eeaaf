"""A finished retriever and a ranking method -> the tools that prep and eval offer to a record."""

from collections import Counter
from typing import Literal, NamedTuple

from msgspec.structs import replace

from agentlite.core import console
from agentlite.core.errors import require
from agentlite.core.records import ANY_TOOL, Record, canonical, digest
from agentlite.engine import sentence_encoder
from agentlite.retrieval.rankers import Ranker, Scores, bm25, draw_unlikely, top_entries
from agentlite.retrieval.tool_pool import ToolPool, questions, read_index
from agentlite.scoring.metrics.summarize import RETRIEVED
from agentlite.workspace.lookup import MODEL_FOLDER, StoredStage, stage_encoder

Missing = Literal["added", "left out"]


class ToolOffers(NamedTuple):
    """Offers the top `k` tools of the pool, ranked by the method `by`.

    `missing`: what to do with an expected tool that was not retrieved: it is "added" in place of
    the least likely one, so that the record can be trained on (and an expected tool has the schema
    of the record); or "left out".
    """

    pool: ToolPool
    ranker: Ranker
    k: int
    by: str
    missing: Missing

    def offer(self, record: Record) -> Record:
        """The record with its new tools. One without tools has nothing to choose, and stays as it
        is.
        """
        texts = questions(record)
        expected = {call.name for turn in record.turns for call in record.gold_at(turn).calls}
        if not record.tools or not texts or ANY_TOOL in expected:
            return record
        pool_tools, scores = self.pool.tools, self.ranker(texts)
        # Where the record knows an id alone, the tool of the pool: else the only tool without a
        # description would be the expected one.
        indices = [(tool, self.pool.index_of(tool)) for tool in record.tools]
        own_tools = {tool.name: tool if i is None else pool_tools[i] for tool, i in indices}
        meta: dict[str, object] = {"k": self.k, "by": self.by, "expected": len(expected)}
        if not expected:
            # Where no call is expected, a retrieved tool may well be right: the record keeps its
            # tools, among unlikely ones.
            unlikely = draw_unlikely(scores, self.pool, self.k, seed=record.id)
            others = [pool_tools[i] for i in unlikely if pool_tools[i].name not in own_tools]
            tools = [*own_tools.values(), *others][: max(self.k, len(own_tools))]
        else:
            tools = [pool_tools[index] for index in top_entries(scores, self.pool, self.k)]
            own_tools = {name: tool for name, tool in own_tools.items() if name in expected}
            missing = sorted(expected - {tool.name for tool in tools})
            other_schema = (tool.name for tool in tools if own_tools.get(tool.name, tool) != tool)
            meta |= {"missing": missing, "other_schema": sorted(other_schema)}
            if self.missing == "added":
                added = [own_tools[name] for name in missing if name in own_tools]
                # of k=5 with 5 retrieved and 1 added, 1 makes room: the least likely one, but none
                # that is expected
                surplus = max(0, len(tools) + len(added) - self.k)
                spare = [tool.name for tool in reversed(tools) if tool.name not in expected]
                likely = [tool for tool in tools if tool.name not in spare[:surplus]]
                tools = [*(own_tools.get(tool.name, tool) for tool in likely), *added]
        # sorted by a hash: their order does not say which one is likely
        tools.sort(key=lambda tool: digest(f"{texts[0]} {tool.name}"))
        return replace(
            record,
            tools=tuple(tools),
            parent=record.parent or record.id,
            meta={**record.meta, RETRIEVED: meta},
        )


def count_record(record: Record) -> Counter[str]:
    """Counts of one record, to be summed over all."""
    meta = record.meta.get(RETRIEVED)
    if meta is None:
        return Counter()
    return Counter(
        {
            "records": 1,
            "without_call": int(not meta["expected"]),
            "missing": int(bool(meta.get("missing"))),
            "other_schema": int(bool(meta.get("other_schema"))),
        }
    )


def retriever_digest(retriever: StoredStage) -> str:
    """Changes with the tools of a retriever and with the model that ranks them."""
    files = [name for name in retriever.outputs if name.startswith(("index", MODEL_FOLDER))]
    return digest(canonical({name: retriever.outputs[name] for name in files}))


def check_packages(by: str) -> None:
    """Raises UserError 5 where the ranking method lacks a package."""
    if by == "tuned":
        sentence_encoder.check_libraries()
    else:
        require("ranking by bm25", ("bm25s",), sentence_encoder.INSTALL)


def offers(retriever: StoredStage, k: int, by: str, missing: Missing) -> ToolOffers:
    """Of a finished retriever."""
    check_packages(by)
    pool, vectors = read_index(retriever.folder)
    names = len(pool.names)
    if k > names:
        console.notice(f"{retriever.folder}: has {names} tools, not {k}: all are retrieved")
    ranker = bm25(pool.texts) if by == "bm25" else tuned_ranker(retriever, vectors)
    return ToolOffers(pool, ranker, min(k, names), by, missing)


def tuned_ranker(retriever: StoredStage, vectors: Scores) -> Ranker:
    """By the model of a retriever."""
    folder = retriever.folder
    source = stage_encoder(f"{folder.name}'s model", retriever, folder.parent)
    model = sentence_encoder.load(source, int(retriever.settings["max_length"]))
    return lambda texts: sentence_encoder.embed(model, texts) @ vectors.T
