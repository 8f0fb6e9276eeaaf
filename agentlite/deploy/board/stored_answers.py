"""The answers of an evaluation a page at a time, and the questions that they answer."""

import json
import threading
import time
from array import array
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from agentlite.core.errors import UserError
from agentlite.core.records import ANY_ARGUMENTS, Call, GoldCall, Record, from_row, plain, to_row
from agentlite.core.row_files import Row, find_rows
from agentlite.deploy.board.indexed_rows import IndexedRows
from agentlite.scoring.metrics.wrong_answers import IN_WORDS, KINDS
from agentlite.workspace import run_folder
from agentlite.workspace.run_folder import Plan

PREDICTIONS = "predictions.jsonl"
PAGE = 25  # answers
AT_ONCE = 0.02  # seconds of one look
MOST_FILES = 8  # whose places are in memory
MOST_SEARCHES = 4  # of one file
LONGEST = 400  # characters of a text in a list
SEARCHED = 256  # rows that are read at once to find a text
RIGHT, ANY_WRONG = "right", "wrong"
CODES = ["", *KINDS]
F = TypeVar("F", bound=IndexedRows)


class AnswerHead(Struct):
    """Of a prediction: what the list is filtered by."""

    record_id: str
    turn: int
    wrong: str = ""


class RecordHead(Struct):
    id: str


class FoundAnswers:
    """The rows that fit a filter, found a piece at a time. `seen`: rows that were looked at."""

    def __init__(self) -> None:
        self.seen = 0
        self.rows = array("I")


class PagedAnswers(IndexedRows):
    """predictions.jsonl of one evaluated model. 1 byte more for each row: its kind of mistake.
    `counts`: how many answers there are of each; "" for those that are not wrong.
    """

    def _forget(self) -> None:
        super()._forget()
        self._kinds = array("B")
        self.counts: Counter[str] = Counter()
        self._searches: OrderedDict[tuple[str, str], FoundAnswers] = OrderedDict()

    def _add(self, line: bytes) -> None:
        head = _ANSWER.decode(line)
        # a kind of another version is wrong in some other way
        known = head.wrong if head.wrong in CODES else KINDS[-1]
        self._kinds.append(CODES.index(known))
        self.counts[known] += 1

    def search(self, wrong: str, text: str, until: float) -> tuple[FoundAnswers, bool]:
        """The answers of a kind whose row holds a text. Whether it has looked at all that is
        indexed; at one piece at least.
        """
        # as the file has it: the text stands in a JSON string
        key = wrong, json.dumps(text, ensure_ascii=False)[1:-1].lower()
        found = self._searches.setdefault(key, FoundAnswers())
        self._searches.move_to_end(key)
        while len(self._searches) > MOST_SEARCHES:
            self._searches.popitem(last=False)
        codes = _codes(wrong)
        while found.seen < len(self):
            last = min(len(self), found.seen + (SEARCHED if text else len(self)))
            fits = [n for n in range(found.seen, last) if self._kinds[n] in codes]
            if text and fits:
                lines = self.lines(found.seen, last)
                fits = [n for n in fits if lines and key[1] in _lower(lines[n - found.seen])]
            found.rows.extend(fits)
            found.seen = last
            if time.monotonic() >= until:
                break
        return found, found.seen == len(self)


class Questions(IndexedRows):
    """The records of a prepared split by their ids. 8 bytes more for each."""

    def _forget(self) -> None:
        super()._forget()
        self._keys = array("Q")

    def _add(self, line: bytes) -> None:
        self._keys.append(int(_RECORD.decode(line).id, 16) & (2**64 - 1))

    def find(self, record_id: str, after: int = 0) -> int:
        """Its number, or -1. Answers stand in the order of their questions: the search begins
        there.
        """
        try:
            key = int(record_id, 16) & (2**64 - 1)
            return self._keys.index(key, after) if after else self._keys.index(key)
        except ValueError:
            return self.find(record_id) if after else -1

    def record(self, number: int, record_id: str) -> Record | None:
        """None for one that is not there, or that was harmed."""
        row = self.row(number)
        if row is None or row.get("id") != record_id:
            return None
        try:
            return from_row(row)
        except (msgspec.MsgspecError, KeyError, TypeError, ValueError, RecursionError):
            return None


class ListedAnswer(Struct, frozen=True):
    """An answer in a list. `expected`: None where the question is not known (yet)."""

    number: int
    record: str
    turn: int
    question: str
    expected: list[list[str]] | None
    given: list[list[str]]
    text: str
    problem: str
    wrong: str


class AnswerPage(Struct, frozen=True):
    """`answers`: all that are indexed, by kind of mistake; `found`: those that fit the filter;
    `more`: whether either number still grows.
    """

    rows: list[ListedAnswer]
    first: int
    found: int
    answers: dict[str, int]
    unread: int
    more: bool


class WholeAnswer(Struct, frozen=True):
    """An answer with all that was asked. `messages`: up to the turn that it answers; `expected`:
    calls with the accepted values of each argument, or None where the question is not known.
    """

    number: int
    record: str
    turn: int
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]
    expected: list[list[str]] | None
    given: list[list[str]]
    text: str
    problem: str
    wrong: str
    metrics: dict[str, float]
    slices: dict[str, str]
    tokens: int


class ChatStart(Struct, frozen=True):
    """What a chat begins with, to ask a model the same."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]
    model: str


class StoredAnswers:
    """Those of any number of evaluations. Threads may ask at the same time."""

    def __init__(self) -> None:
        self._files: OrderedDict[Path, IndexedRows] = OrderedDict()
        self._lock = threading.Lock()

    def page(self, run: Path, folder: Path, *, wrong: str, text: str, first: int) -> AnswerPage:
        """Reads on for a moment, and gives what is known by then. Raises UserError 2 for a stage
        without answers.
        """
        with self._lock:
            answers = self._answers(folder)
            questions = self._questions(run, folder)
            until = time.monotonic() + AT_ONCE
            more = answers.look(until)
            # the first page is shown before the file is read, whose questions come first as well
            more = (questions is not None and questions.look(until)) or more
            found, whole = answers.search(wrong, text, time.monotonic() + AT_ONCE / 2)
            first = max(0, min(first, len(found.rows) - 1)) // PAGE * PAGE
            rows, at = [], 0  # where the question before stands
            for number in found.rows[first : first + PAGE]:
                if row := answers.row(number):
                    record = None
                    if questions is not None:
                        record_id = str(row.get("record_id"))
                        at = max(0, questions.find(record_id, at))
                        record = questions.record(at, record_id)
                    rows.append(_listed(number, row, record))
            return AnswerPage(
                rows,
                first,
                len(found.rows),
                {kind: answers.counts[kind] for kind in CODES if answers.counts[kind]},
                answers.unread,
                more or not whole,
            )

    def answer(self, run: Path, folder: Path, number: int) -> WholeAnswer:
        """Raises UserError 2 for one that is not there."""
        with self._lock:
            answers = self._answers(folder)
            _read_until(answers, lambda: len(answers) > number)
            row = answers.row(number)
            if row is None:
                raise UserError(f"holds no answer with number {number}.", location=str(folder))
            record = self._record(run, folder, str(row.get("record_id")))
            return _whole(number, row, record)

    def question(self, run: Path, folder: Path, record_id: str, turn: int) -> ChatStart:
        """What a stage asked its model at a turn. Raises UserError 2 where it is not known."""
        with self._lock:
            record = self._record(run, folder, record_id)
            if record is None or turn not in record.turns:
                raise UserError(
                    "the question is not in the workspace (any more).",
                    "The same prep brings it back.",
                    location=f"{folder}: {record_id[:80]}/{turn}",
                )
            plan = run_folder.read(folder).plan
            named = str(plan.settings.get("model", "")) if plan and plan.command == "eval" else ""
            return ChatStart(*_prompt(record, turn), named or folder.relative_to(run).as_posix())

    def _record(self, run: Path, folder: Path, record_id: str) -> Record | None:
        questions = self._questions(run, folder)
        if questions is None:
            return None
        _read_until(questions, lambda: questions.find(record_id) >= 0)
        number = questions.find(record_id)
        return questions.record(number, record_id) if number >= 0 else None

    def _answers(self, folder: Path) -> PagedAnswers:
        path = folder / PREDICTIONS
        if not path.is_file():
            raise UserError(
                "holds no answers to recorded questions.",
                "An evaluation writes them when it is done; the report shows rollouts.",
                location=str(folder),
            )
        return self._file(path, PagedAnswers)

    def _questions(self, run: Path, folder: Path) -> Questions | None:
        plan = run_folder.read(folder).plan
        path = _questions_file(run, plan) if plan else None
        return self._file(path, Questions) if path else None

    def _file(self, path: Path, kind: type[F]) -> F:
        known = self._files.get(path)
        if not isinstance(known, kind):
            known = self._files[path] = kind(path)
        self._files.move_to_end(path)
        while len(self._files) > MOST_FILES:
            self._files.popitem(last=False)
        return known


def _questions_file(run: Path, plan: Plan) -> Path | None:
    """The file of the workspace with the digest that a plan names, or the split that it names."""
    wanted = plan.inputs.get("data", "").partition(",")[0]  # behind it: that of a retriever
    for folder in run_folder.stages_in(run):
        stage = run_folder.read(folder)
        for name, digest in (stage.done.outputs if stage.done else {}).items():
            if wanted and digest == wanted and name.endswith(".jsonl"):
                return folder / name
    data, split = str(plan.settings.get("data", "")), str(plan.settings.get("split", "train"))
    if {"", ".", ".."} & {data, split} or {"/", "\\"} & {*data, *split}:
        return None  # not a stage of this workspace
    path = find_rows(run / data, split)
    return path if path.is_file() and path.suffix == ".jsonl" else None


def _read_until(rows: IndexedRows, found: Callable[[], bool]) -> None:
    """Of a link into a file that was not read yet."""
    while rows.look(time.monotonic() + AT_ONCE) and not found():
        pass


def _codes(wrong: str) -> set[int]:
    if wrong in KINDS:
        return {CODES.index(wrong)}
    every = {*range(len(CODES))}
    return {0} if wrong == RIGHT else every - {0} if wrong == ANY_WRONG else every


def _lower(line: bytes) -> str:
    return line.decode("utf-8", "replace").lower()


def _listed(number: int, row: Row, record: Record | None) -> ListedAnswer:
    turn = _turn(row)
    before = record.messages[:turn] if record else ()
    last = next((one.content for one in reversed(before) if one.role in ("user", "tool")), "")
    return ListedAnswer(
        number,
        str(row.get("record_id"))[:80],
        turn,
        last[:LONGEST],
        _expected(record, turn, LONGEST),
        _given(row, LONGEST),
        str(row.get("text", ""))[:LONGEST],
        str(row.get("problem", ""))[:LONGEST],
        _in_words(row),
    )


def _whole(number: int, row: Row, record: Record | None) -> WholeAnswer:
    turn = _turn(row)
    messages, tools = _prompt(record, turn) if record else ([], [])
    metrics, slices = row.get("metrics"), row.get("slices")
    return WholeAnswer(
        number,
        str(row.get("record_id")),
        turn,
        messages,
        tools,
        _expected(record, turn),
        _given(row),
        str(row.get("text", "")),
        str(row.get("problem", "")),
        _in_words(row),
        {k: v for k, v in metrics.items() if isinstance(v, int | float)}
        if isinstance(metrics, dict)
        else {},
        {k: str(v) for k, v in slices.items()} if isinstance(slices, dict) else {},
        new if isinstance(new := row.get("new_tokens"), int) else 0,
    )


def _prompt(record: Record, turn: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """In the shape of OpenAI's messages and tools."""
    row: Any = to_row(record)
    messages = [
        {key: value for key, value in one.items() if key != "loss"}
        for one in row["messages"][:turn]
    ]
    return messages, [tool.schema for tool in record.tools]


def _expected(record: Record | None, turn: int, most: int = -1) -> list[list[str]] | None:
    if record is None or turn not in record.turns:
        return None
    return _calls(record.expected(turn).calls, most)


def _given(row: Row, most: int = -1) -> list[list[str]]:
    calls = row.get("calls")
    if not isinstance(calls, list):
        return []
    found = [one for one in calls if isinstance(one, dict)]
    return [[str(one.get("name")), _cut(str(one.get("arguments", "")), most)] for one in found]


def _calls(calls: Iterable[Call | GoldCall], most: int) -> list[list[str]]:
    """Names with arguments as JSON; "" where any arguments are right."""
    return [
        [call.name, "" if call.arguments is ANY_ARGUMENTS else _cut(plain(call.arguments), most)]
        for call in calls
    ]


def _cut(text: str, most: int) -> str:
    return text if most < 0 or len(text) <= most else f"{text[:most]}…"


def _turn(row: Row) -> int:
    turn = row.get("turn")
    return turn if isinstance(turn, int) and turn >= 0 else 0


def _in_words(row: Row) -> str:
    wrong: Any = row.get("wrong", "")
    return str(IN_WORDS[wrong] if wrong in KINDS else wrong)


_ANSWER = msgspec.json.Decoder(AnswerHead)
_RECORD = msgspec.json.Decoder(RecordHead)
