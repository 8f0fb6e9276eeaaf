"""`serve --save`: what clients ask and a model answers -> served.jsonl, and trajectories of it."""

import threading
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from agentlite.core.call_results import says_error
from agentlite.core.errors import RowError
from agentlite.core.records import Message, Record, canonical, digest
from agentlite.core.row_files import Appender, read_rows
from agentlite.data.formats import to_record
from agentlite.data.openai_messages import Opened, Turn, read_wire, wire_calls, wire_message
from agentlite.deploy.completion_jobs import ServeJob
from agentlite.deploy.openai_api import Request, content_of, finished_calls
from agentlite.engine.decoding import Decoding
from agentlite.environments.continuation import SeenTokens, next_prompt, seen_with
from agentlite.environments.trajectories import EndedBy, ModelTurn, RolloutKey, Trajectory
from agentlite.rendering.template import Template

SERVED = "served.jsonl"
# dialogs whose ids are kept in memory; one that goes on later begins a new row of tokens
MOST_SEEN = 1000


class ServedTurn(Struct, frozen=True, forbid_unknown_fields=True):
    """A row of served.jsonl: one answer.

    `messages`: what the client sent since the answer before, which it repeats first; the whole
    prompt at the first turn. `tools`: those on offer; None where they are those of the turn before.
    `copies`: the sample whose turns come before this one, where a dialog was continued twice.
    """

    answered: ModelTurn
    messages: list[dict[str, Any]]
    answer: dict[str, Any]
    tools: list[dict[str, Any]] | None = None
    copies: int | None = None


class ServedPlace(NamedTuple):
    """Where a request belongs: behind a turn of a dialog (`after`; None: it begins one); its prompt
    as text and ids; its messages behind that turn.
    """

    after: "_Answered | None"
    opened: Opened
    new: tuple[int, ...]
    opens: bool
    messages: Sequence[Message]

    @property
    def tools(self) -> list[dict[str, Any]]:
        return [dict(tool.schema) for tool in self.opened.record.tools]


class _Answered:
    """A turn that was answered: which one, and a digest of its tools; how often it was asked to go
    on, and whether the dialog did.
    """

    def __init__(self, key: RolloutKey, turn: int, tools: str):
        self.key, self.turn, self.tools = key, turn, tools
        self.requests, self.continued = 0, False


class SavedDialogs:
    """served.jsonl of a folder. Each answer is on the disk before its client has it whole. A
    context: it holds the file.

    A request continues a dialog where its last message of the assistant is an answer of ours, and
    everything up to it is as it was. Ids of calls do not count. Two continuations of one turn are
    two trajectories; so are two answers to one prompt.
    """

    def __init__(self, folder: Path, template: Template):
        self.template = template
        self.lock = threading.Lock()
        self.file = Appender(folder / SERVED)  # cuts a torn line
        self.samples: dict[str, int] = defaultdict(int)  # of each first prompt
        self.answered: dict[str, list[_Answered]] = defaultdict(list)
        self.seen: OrderedDict[tuple[RolloutKey, int], SeenTokens] = OrderedDict()
        for rows in _dialogs(map(_read, read_rows(folder / SERVED))).values():
            self._remember(rows)

    def __enter__(self) -> "SavedDialogs":
        self.file.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.file.__exit__(*error)

    def continued(self, job: ServeJob, most: int) -> tuple[ServeJob, ServedPlace]:
        """The job with the ids that the model is to read: those that it has sampled as they were.
        `most`: tokens of a prompt and an answer.
        """
        [dialog] = job.prompts
        messages = dialog.record.messages[:-1]  # the last one stands for what comes
        places = [at for at, message in enumerate(messages) if message.role == "assistant"]
        with self.lock:
            found = self.answered.get(_name(messages[: places[-1] + 1])) if places else None
            # of clients that have said and heard the same, each gets a dialog of its own
            after = min(found or (), key=lambda one: (one.continued, one.requests), default=None)
            if after:
                after.requests += 1
            seen = self.seen.get((after.key, after.turn)) if after else None
        ids, new, opens = next_prompt(seen, dialog, self.template)
        if len(ids) >= most:  # other tokens of the same text, and too many of them
            ids, new, opens = dialog.ids, tuple(dialog.ids), True
        opened = dialog._replace(ids=ids)
        behind = messages[places[-1] :] if after else messages
        return job._replace(prompts=[opened]), ServedPlace(after, opened, new, opens, behind)

    def save(self, place: ServedPlace, job: ServeJob, turn: Turn) -> None:
        """Raises UserError 74 where the disk takes nothing more."""
        assert isinstance(job.request, Request)
        answer, record = _given(turn, job.request), place.opened.record
        name = _name([*record.messages[:-1], *_as_read(answer, record)])
        with self.lock:
            after = place.after
            key, number, copies = self._position(after, record)
            answered = _model_turn(key, number, place, turn, job.decoding)
            offered = digest(canonical(place.tools))
            tools = None if after and after.tools == offered else place.tools
            messages = [wire_message(message) for message in place.messages]
            row = ServedTurn(answered, messages, answer, tools, copies)
            self.file.append(msgspec.to_builtins(row))
            if after:
                after.continued = True
            self.answered[name].append(_Answered(key, number, offered))
            before = SeenTokens(place.opened.text, place.opened.ids)
            if seen := seen_with(before, turn.text, turn.ended, turn.ids, self.template):
                self.seen[key, number] = seen
                if len(self.seen) > MOST_SEEN:
                    self.seen.popitem(last=False)

    def _position(
        self, after: _Answered | None, record: Record
    ) -> tuple[RolloutKey, int, int | None]:
        """Of an answer: its trajectory, its turn, and the sample whose turns come before."""
        if after and not after.continued:
            return after.key, after.turn + 1, None
        tools = [tool.schema for tool in record.tools]
        task = after.key.task if after else digest(canonical([_name(record.messages[:-1]), tools]))
        key = RolloutKey(task, self.samples[task])
        self.samples[task] += 1
        return key, after.turn + 1 if after else 0, after.key.sample if after else None

    def _remember(self, rows: Sequence[ServedTurn]) -> None:
        """A dialog that an earlier server has answered: the ids of its prompts are lost."""
        key = rows[-1].answered.key
        self.samples[key.task] = max(self.samples[key.task], key.sample + 1)
        messages: list[Message] = []
        tools: list[dict[str, Any]] = []
        for row, following in zip(rows, [*rows[1:], None], strict=True):
            messages += map(read_wire, row.messages)
            tools = tools if row.tools is None else row.tools
            record = Record(messages=tuple(messages), tools=())
            if row.answered.key == key:
                answer = following.messages[0] if following else row.answer
                name = _name([*messages, *_as_read(answer, record)])
                one = _Answered(key, row.answered.turn, digest(canonical(tools)))
                one.continued = following is not None
                self.answered[name].append(one)


def trajectories(folder: Path) -> Iterator[Trajectory]:
    """Every dialog that was served, in the order in which they began."""
    for rows in _dialogs(map(_read, read_rows(folder / SERVED))).values():
        yield _trajectory(rows)


def _read(row: dict[str, Any]) -> ServedTurn:
    return msgspec.convert(row, ServedTurn)


def _dialogs(rows: Iterable[ServedTurn]) -> dict[RolloutKey, list[ServedTurn]]:
    dialogs: dict[RolloutKey, list[ServedTurn]] = {}
    for row in rows:
        key = row.answered.key
        if row.copies is not None:
            dialogs[key] = dialogs[RolloutKey(key.task, row.copies)][: row.answered.turn]
        dialogs.setdefault(key, []).append(row)
    return dialogs


def _trajectory(rows: Sequence[ServedTurn]) -> Trajectory:
    """The results of a call, and what the user said to an answer, came with the next request."""
    key = rows[-1].answered.key
    turns: list[ModelTurn] = []
    messages: list[dict[str, Any]] = []
    tools: dict[str, dict[str, Any]] = {}
    offered: list[tuple[str, ...]] = []
    for row, following in zip(rows, [*rows[1:], None], strict=True):
        behind = following.messages[1:] if following else []
        by_call = {one["tool_call_id"]: one["content"] for one in behind if one["role"] == "tool"}
        repeated = following.messages[0] if following else {}
        ids = [call["id"] for call in repeated.get("tool_calls", ())]
        results = [by_call[name] for name in ids if name in by_call]
        user = [one["content"] for one in behind if one["role"] == "user"]
        messages += row.messages
        names = offered[-1] if row.tools is None else tuple(map(_tool_name, row.tools))
        tools |= {_tool_name(tool): tool for tool in row.tools or ()}
        offered.append(names)
        turn = replace(
            row.answered,
            sample=key.sample,
            results=tuple((result, says_error(result)) for result in results),
            user="\n\n".join(user) if user else None,
        )
        turns.append(turn)
    last = rows[-1].answer
    ended: EndedBy = "left" if last.get("tool_calls") else "user"
    if len({*offered}) > 1:
        both = zip(turns, offered, strict=True)
        turns = [replace(turn, offered=names) for turn, names in both]
    messages.append(last)
    return Trajectory(*key, "", messages, list(tools.values()), turns, ended, {})


def _tool_name(tool: dict[str, Any]) -> str:
    return str(tool["function"]["name"])


def _model_turn(
    key: RolloutKey, number: int, place: ServedPlace, turn: Turn, decoding: Decoding
) -> ModelTurn:
    return ModelTurn(
        *key,
        number,
        turn.text,
        turn.ended,
        turn.new_tokens,
        problem=turn.parsed.problem,
        opens=place.opens,
        prompt_ids=place.new if turn.ids else (),
        ids=turn.ids,
        log_probabilities=turn.log_probabilities,
        temperature=decoding.temperature,
        top_p=decoding.top_p,
    )


def _given(turn: Turn, request: Request) -> dict[str, Any]:
    """The answer as its client is given it; its calls have other ids there."""
    calls, content = finished_calls(turn, request), content_of(turn, request)
    answer: dict[str, Any] = {"role": "assistant", "content": content or (None if calls else "")}
    return answer | ({"tool_calls": wire_calls(calls)} if calls else {})


def _as_read(answer: dict[str, Any], record: Record) -> Sequence[Message]:
    """An answer as it will be read when it comes back; nothing for one that no client can send
    back.
    """
    row = {"messages": [{"role": "user", "content": "?"}, answer]}
    row |= {"tools": [tool.schema for tool in record.tools]}
    try:
        return to_record(row, "openai", split=False).messages[1:]
    except RowError:
        return (Message("assistant", "", (), "unreadable"),)


def _name(messages: Iterable[Message]) -> str:
    """Equal for dialogs in which the same was said and called."""
    turns = [
        [one.role, one.content, [[call.name, call.arguments] for call in one.calls], one.call_id]
        if one.role != "tool"
        else [one.role, one.content]
        for one in messages
    ]
    return digest(canonical(turns))
