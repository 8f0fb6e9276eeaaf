"""The answers of an evaluation a page at a time, and the questions that they answer."""

import json
import threading
import time
from array import array
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from agentlite.core.errors import UserError
from agentlite.core.records import ANY_ARGUMENTS, Call, GoldCall, Record, plain, to_row
from agentlite.core.row_files import Row
from agentlite.deploy.board.indexed_rows import IndexedRows
from agentlite.deploy.board.stored_questions import GONE, Questions, questions_file, reader_of
from agentlite.scoring.metrics.wrong_answers import IN_WORDS, KINDS
from agentlite.workspace import run_folder

PREDICTIONS = "predictions.jsonl"
PAGE = 25  # answers
AT_ONCE = 0.02  # seconds of one look
SEARCH_AT_ONCE = 0.03
MOST_FILES = 8  # whose places are in memory
MOST_SEARCHES = 4  # of one file
LONGEST = 400  # characters of a text in a list
RIGHT, ANY_WRONG = "right", "wrong"
CODES = ["", *KINDS]
F = TypeVar("F", bound=IndexedRows)


class AnswerHead(Struct):
    """Of a prediction: what the list is filtered by."""

    record_id: str
    turn: int
    wrong: str = ""


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
            last = min(len(self), self.piece_end(found.seen) if text else len(self))
            rows = self.rows_with(key[1], found.seen, last) if text else range(found.seen, last)
            found.rows.extend(n for n in rows if self._kinds[n] in codes)
            found.seen = last
            if time.monotonic() >= until:
                break
        return found, found.seen == len(self)


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
    `more`: whether either number still grows; `unknown`: why the questions are not known, or "".
    """

    rows: list[ListedAnswer]
    first: int
    found: int
    answers: dict[str, int]
    unread: int
    more: bool
    unknown: str


class WholeAnswer(Struct, frozen=True):
    """An answer with all that was asked. `messages`: up to the turn that it answers; `expected`:
    calls with the accepted values of each argument, or None where the question is not known;
    `unknown`: why.
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
    unknown: str


class ChatStart(Struct, frozen=True):
    """What a chat begins with, to ask a model the same."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]
    model: str


class StillReading(Struct, frozen=True):
    """The row that was asked for is in a part of its file that was not read yet. `reading`: how
    much was, from 0 to 1.
    """

    reading: float


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
            found, whole = answers.search(wrong, text, time.monotonic() + SEARCH_AT_ONCE)
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
                GONE if questions is None else questions.problem,
            )

    def answer(self, run: Path, folder: Path, number: int) -> WholeAnswer | StillReading:
        """Reads on for a moment. Raises UserError 2 for an answer that is not there."""
        with self._lock:
            answers, questions = self._answers(folder), self._questions(run, folder)
            files = [one for one in (answers, questions) if one is not None]
            more = _read_on(answers, lambda: len(answers) > number)
            row = answers.row(number)
            if row is None and more:
                if questions is not None:
                    questions.look(0)  # a piece, so that both come to their ends
                return _still_reading(files)
            if row is None:
                raise UserError(f"holds no answer with number {number}.", location=str(folder))
            record = self._record(run, folder, str(row.get("record_id")))
            if isinstance(record, StillReading):
                return _still_reading(files)
            why = (questions is not None and questions.problem) or GONE
            return _whole(number, row, record, "" if record else why)

    def question(
        self, run: Path, folder: Path, record_id: str, turn: int
    ) -> ChatStart | StillReading:
        """What a stage asked its model at a turn. Reads on for a moment. Raises UserError 2 where
        it is not known.
        """
        with self._lock:
            record = self._record(run, folder, record_id)
            if isinstance(record, StillReading):
                return record
            if record is None or turn not in record.turns:
                questions = self._questions(run, folder)
                raise UserError(
                    (questions is not None and questions.problem)
                    or "the question is not in the workspace (any more).",
                    "The same prep brings it back.",
                    location=f"{folder}: {record_id[:80]}/{turn}",
                )
            plan = run_folder.read(folder).plan
            named = str(plan.settings.get("model", "")) if plan and plan.command == "eval" else ""
            return ChatStart(*_prompt(record, turn), named or folder.relative_to(run).as_posix())

    def _record(self, run: Path, folder: Path, record_id: str) -> Record | StillReading | None:
        questions = self._questions(run, folder)
        if questions is None:
            return None
        more = _read_on(questions, lambda: questions.find(record_id) >= 0)
        number = questions.find(record_id)
        if number < 0 and more:
            return _still_reading([questions])
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
        path = questions_file(run, plan) if plan else None
        return self._file(path, reader_of(path)) if path else None

    def _file(self, path: Path, kind: type[F]) -> F:
        known = self._files.get(path)
        if not isinstance(known, kind):
            known = self._files[path] = kind(path)
        self._files.move_to_end(path)
        while len(self._files) > MOST_FILES:
            self._files.popitem(last=False)
        return known


def _still_reading(files: Sequence[IndexedRows]) -> StillReading:
    size = sum(one.size for one in files)
    return StillReading(sum(one.read for one in files) / size if size else 0.0)


def _read_on(rows: IndexedRows, found: Callable[[], bool]) -> bool:
    """A look at a file, if it has changed or does not hold yet what a link leads to. Returns
    whether there is more to read.
    """
    return rows.look(time.monotonic() + (0 if found() else AT_ONCE))


def _codes(wrong: str) -> set[int]:
    if wrong in KINDS:
        return {CODES.index(wrong)}
    every = {*range(len(CODES))}
    return {0} if wrong == RIGHT else every - {0} if wrong == ANY_WRONG else every


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


def _whole(number: int, row: Row, record: Record | None, unknown: str) -> WholeAnswer:
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
        unknown,
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
