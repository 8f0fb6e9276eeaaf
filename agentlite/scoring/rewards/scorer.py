"""Candidates and the gold of their steps -> scores; and the user's own reward functions."""

import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from numbers import Real
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from agentlite.core.errors import REJECTS, UserError, exceeds_share
from agentlite.core.records import Candidate, Parsed, Record, Score, Step
from agentlite.core.user_code import MEMORY, UserCode, UserFunction, await_result, one_line
from agentlite.rendering import Protocol
from agentlite.rendering.protocol import thought_and_words
from agentlite.scoring.read_turn import read_turn, reference_of
from agentlite.scoring.rewards import (
    JUDGE,
    WEIGHTS,
    Attempt,
    Component,
    ComponentError,
    all_have_gold,
    components_without_gold,
    score_attempt,
)
from agentlite.scoring.rewards.attempt import recorded_steps
from agentlite.workspace.input_files import file_digest


class Scorer(NamedTuple):
    """Scores candidates: with the records by id, the protocols by name, and user functions.

    All scores have the same components: where one prompt has no gold, those that need it are left
    out of every score.
    """

    records: Mapping[str, Record]
    protocols: Mapping[str, Protocol]
    user_functions: Mapping[str, Component]

    @property
    def has_gold(self) -> bool:
        return all_have_gold(self.records.values())

    def __call__(self, candidates: Iterable[Candidate]) -> Iterator[Score]:
        has_gold = self.has_gold
        shared_attempts: dict[tuple[Step, str], Attempt] = {}
        for candidate in candidates:
            record = self.records.get(candidate.record_id)
            if record is None or candidate.turn not in record.turns:
                raise UserError(
                    f"a candidate answers record {candidate.record_id}, turn {candidate.turn}, "
                    "which does not exist.",
                    "Its records.jsonl is of other candidates: name the folder that pairs or grpo "
                    "wrote.",
                )
            protocol = self.protocols[candidate.protocol]
            # what all candidates of a step share is made once: a GRPO group has many of them
            if (key := (candidate.step, protocol.name)) not in shared_attempts:
                messages = record.messages[: candidate.turn]
                shared_attempts[key] = Attempt(
                    Parsed(""),
                    record.gold_at(candidate.turn),
                    record.tools,
                    messages=messages,
                    reference=reference_of(protocol, record, candidate.turn),
                    meta=record.meta,
                    history=recorded_steps(messages, record.meta.get("is_error", ())),
                )
            attempt = replace(
                shared_attempts[key],
                parsed=read_turn(candidate.text, protocol, record, candidate.turn),
                finished=candidate.ended != "cut",
                text=candidate.text,
                candidate=candidate.key,
                thought=thought_and_words(protocol.tag_thought(candidate.text))[0],
                recorded_thought=thought_and_words(record.messages[candidate.turn].content)[0],
            )
            components, feedback, error = score_attempt(attempt, self.user_functions)
            if not has_gold:
                components = components_without_gold(components)
            yield Score(*candidate.key, components, feedback, error)


class Tally:
    """Counts the candidates, or rollouts, that a user function or a judge gave no value for."""

    def __init__(self, limit: float, folder: Path, fix: str, noun: str = "candidates"):
        self.limit, self.folder, self.fix, self.noun = limit, folder, fix, noun
        self.scored = self.failed = 0
        self.first_error = ""

    def count(self, error: str) -> None:
        """`error`: of one candidate's score; "" if it has none."""
        self.scored += 1
        self.failed += bool(error)
        self.first_error = self.first_error or error

    def refuse(self, expected: int = 0) -> None:
        """Raises UserError 4 if more failed than the share `limit` of those `expected`, or of those
        scored so far.
        """
        count = expected or self.scored
        if exceeds_share(self.failed, count, self.limit, allowed=1):
            raise UserError(
                f"a reward failed for {self.failed} {self.noun}; {self.limit:.0%} of {count} may: "
                f"{self.first_error}.",
                self.fix,
                location=str(self.folder),
                exit_code=REJECTS,
            )


# --- `--rewards file.py:function`: user functions as components, run in a child process ---


def function_files(texts: Iterable[str]) -> dict[str, str]:
    """The digests of functions' files. Raises UserError 2 for text that names no function."""
    return {function.file: file_digest(Path(function.file)) for function in _parse_functions(texts)}


class UserFunctions:
    """The user's functions as components, by name, inside a `with`."""

    def __init__(self, texts: Sequence[str], seconds: float = 10.0, memory: float = MEMORY):
        self.code = UserCode(_parse_functions(texts), _reward_value, seconds, memory)

    def __enter__(self) -> dict[str, Component]:
        """Raises UserError 2 where a file cannot be imported or has no such function."""
        if self.code.functions:
            self.code.start()
        return {f.name: partial(self._ask, f.name) for f in self.code.functions}

    def __exit__(self, *error: object) -> None:
        self.code.stop()

    def _ask(self, function: str, attempt: Attempt) -> float:
        value, problem = self.code.ask(function, attempt)
        if problem:
            raise ComponentError(f"{function} {problem}")
        return float(value)


def _parse_functions(texts: Iterable[str]) -> list[UserFunction]:
    by_name: dict[str, UserFunction] = {}
    for text in texts:
        file, _, function = text.rpartition(":")
        if not file or not function.isidentifier():
            raise UserError(
                f"'{text}' names no function.",
                "Write it as file.py:function.",
                location="rewards",
            )
        if function in (*WEIGHTS, JUDGE, *by_name):
            raise UserError(
                f"another component is called {function}.", "Rename the function.", location=text
            )
        if not Path(file).is_file():
            raise UserError(
                "no such file.",
                f"Write it as folder/file.py:{function}, seen from here.",
                location=file,
            )
        by_name[function] = UserFunction(file, function)
    return list(by_name.values())


def _reward_value(function: Callable[..., object], attempt: Attempt) -> tuple[float, str]:
    """The value that a function returned, and a problem unless it is a number from 0 to 1."""
    value = await_result(function(attempt))
    if isinstance(value, Real) and not isinstance(value, bool) and 0 <= float(value) <= 1:
        return float(value), ""
    return 0.0, f"returned {one_line(reprlib.repr(value))}, not a number from 0 to 1"
