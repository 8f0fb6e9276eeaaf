"""How the processes of a run begin and end together, with a store that is a dictionary."""

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from agentlite.core.errors import NETWORK, UserError
from agentlite.engine import coordinate, heartbeat


class Store:
    """The launcher's key-value store; `seen` others look into it, one more at each look."""

    def __init__(self, **values: str):
        self.values = {name: value.encode() for name, value in values.items()}
        self.seen = self.looks = 0
        self.timeouts: list[float] = []

    def set(self, key: str, value: str) -> None:
        self.values[key] = value.encode()

    def get(self, key: str) -> bytes:
        if key not in self.values:
            raise RuntimeError("wait timeout")
        return self.values[key]

    def add(self, key: str, amount: int) -> int:
        assert key == heartbeat.SEEN
        self.looks += amount == 0
        self.seen += 1 if amount == 0 else amount
        return self.seen

    def compare_set(self, key: str, expected: str, value: str) -> None:
        if self.values.get(key, b"") == expected.encode():
            self.set(key, value)

    def set_timeout(self, timeout: Any) -> None:
        self.timeouts.append(timeout.total_seconds())


class Beats:
    """A heartbeat: how many processes are missing, and whether it was stopped."""

    def __init__(self, missing: int = 0):
        self.lost, self.stopped = missing, False

    def missing(self) -> int:
        return self.lost

    def stop(self) -> None:
        self.stopped = True

    def cause(self, error: Exception) -> UserError:
        return UserError("process 1 is gone.", exit_code=NETWORK)


@pytest.fixture(autouse=True)
def three(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three processes; a connection of torch's is a ConnectionError here."""
    monkeypatch.setattr(coordinate.distributed, "count", lambda: 3)
    monkeypatch.setattr(
        coordinate, "is_connection", lambda error: isinstance(error, ConnectionError)
    )
    monkeypatch.setattr(coordinate.time, "sleep", lambda seconds: None)


def raising(error: BaseException | None) -> Any:
    def run() -> str:
        if error:
            raise error
        return "the result"

    return run


@pytest.mark.parametrize("begun", [True, False])
@pytest.mark.parametrize(
    ("error", "code", "raised"),
    [
        (None, "0", None),
        (UserError("no room.", exit_code=7), "7", UserError),
        (ValueError("odd"), "1", ValueError),
        (KeyboardInterrupt(), "130", KeyboardInterrupt),
        (ConnectionError("closed"), str(NETWORK), UserError),
    ],
)
def test_the_first_process_leaves_its_exit_code_for_the_others(
    error: BaseException | None, code: str, raised: Any, begun: bool
) -> None:
    store, beats = Store(**({coordinate.WORD: "go"} if begun else {})), Beats()
    if raised:
        with pytest.raises(raised) as found:
            coordinate._lead(raising(error), store, beats)
        assert (found.value is error) == (not isinstance(error, ConnectionError))
    else:
        assert coordinate._lead(raising(None), store, beats) == "the result"
    assert store.values[heartbeat.END] == code.encode() and beats.stopped
    # those that have not begun are sent home; those that have go on to their own end
    assert store.values[coordinate.WORD] == (b"go" if begun else code.encode())


@pytest.mark.parametrize(("missing", "looks"), [(0, 2), (1, 1)])
def test_the_first_process_waits_until_every_other_that_is_left_has_seen_how_it_ended(
    missing: int, looks: int
) -> None:
    store = Store()
    coordinate._lead(raising(None), store, Beats(missing))
    assert store.looks == looks


def test_it_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 10**6, 7))
    monkeypatch.setattr(coordinate.time, "monotonic", lambda: next(clock))
    store = Store()
    monkeypatch.setattr(store, "add", lambda *_: 0)
    coordinate._dismiss(store, 0, 2)
    assert next(clock) < 10 * coordinate.SECONDS


@pytest.mark.parametrize("code", ["0", "7"])
def test_another_process_runs_once_the_first_says_so_and_ends_with_its_code(code: str) -> None:
    ran: list[int] = []
    for word in ("go", code):
        store = Store(**{coordinate.WORD: word, heartbeat.END: code})
        with pytest.raises(SystemExit) as ended:
            coordinate._follow(lambda: ran.append(1), store, Beats())  # type: ignore[arg-type]
        assert ended.value.code == int(code) and store.seen == 1
    assert ran == [1]  # not where the first process ended before


@pytest.mark.parametrize("end", ["0", "7"])
def test_a_process_that_has_left_is_seen_to_end(end: str) -> None:
    """As by `leave`, when nothing is left that all must do."""
    store = Store(**{coordinate.WORD: "go", heartbeat.END: end})
    with pytest.raises(SystemExit) as ended:
        coordinate._follow(raising(SystemExit(0)), store, Beats())
    assert (ended.value.code, store.seen) == (int(end), 1)


@pytest.mark.parametrize(
    ("end", "raised"), [("0", ValueError), ("7", SystemExit), ("", ValueError)]
)
def test_an_error_of_another_process_is_reported_and_its_own_where_the_first_knows_of_none(
    end: str, raised: Any
) -> None:
    store = Store(**{coordinate.WORD: "go"} | ({heartbeat.END: end} if end else {}))
    with pytest.raises(raised) as ended:
        coordinate._follow(raising(ValueError("odd")), store, Beats())
    failure = msgspec.json.decode(store.values[heartbeat.FAILED], type=heartbeat.Failure)
    assert (failure.problem, failure.exit_code) == ("ValueError: odd", 1)
    assert store.timeouts == [coordinate.SECONDS]
    if raised is SystemExit:
        assert ended.value.code == 7


def test_of_two_that_fail_the_first_report_stands() -> None:
    store = Store(**{coordinate.WORD: "go", heartbeat.END: "7", heartbeat.FAILED: "of another"})
    with pytest.raises(SystemExit):
        coordinate._follow(raising(ValueError("odd")), store, Beats())
    assert store.values[heartbeat.FAILED] == b"of another"


def test_a_process_whose_connection_breaks_says_who_is_gone() -> None:
    store = Store(**{coordinate.WORD: "go", heartbeat.END: "8"})
    with pytest.raises(UserError, match="process 1 is gone") as found:
        coordinate._follow(raising(ConnectionError("closed")), store, Beats())
    assert found.value.exit_code == NETWORK and heartbeat.FAILED not in store.values


@pytest.mark.parametrize(
    ("first", "count", "begins"), [(True, 3, True), (False, 3, False), (True, 1, False)]
)
def test_the_first_of_several_tells_the_others_to_begin(
    first: bool, count: int, begins: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store()
    monkeypatch.setattr(coordinate.distributed, "count", lambda: count)
    monkeypatch.setattr(coordinate.distributed, "first", lambda: first)
    monkeypatch.setattr(coordinate, "_store", lambda: store)
    coordinate.go()
    assert store.values == ({coordinate.WORD: b"go"} if begins else {})


def test_every_process_but_the_first_leaves_when_nothing_is_left_for_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(coordinate.distributed, "first", lambda: True)
    coordinate.leave()
    monkeypatch.setattr(coordinate.distributed, "first", lambda: False)
    with pytest.raises(SystemExit) as ended:
        coordinate.leave()
    assert ended.value.code == 0


def known(**changed: Any) -> heartbeat.Heartbeat:
    """What a heartbeat of the first process knows, without its threads."""
    beats = object.__new__(heartbeat.Heartbeat)
    facts = {"_rank": 0, "_counts": {1: 5, 2: 5}, "_silent": {1: 0, 2: 0}, "_hosts": {1: "b"}}
    for name, value in {**facts, "_unanswered": 0, "_ended": None, **changed}.items():
        setattr(beats, name, value)
    return beats


@pytest.mark.parametrize(
    ("changed", "verdict"),
    [
        ({}, ""),
        ({"_silent": {1: 3, 2: 2}}, "process 1 on b has been silent for 6 s"),
        ({"_silent": {1: 2, 2: 4}}, "process 2 has been silent for 8 s"),
        ({"_unanswered": 2}, ""),
        ({"_unanswered": 3}, "the launcher cannot be reached"),
        ({"_unanswered": 3, "_rank": 1, "_hosts": {0: "a"}}, "process 0 on a cannot be reached"),
        ({"_counts": {1: 0, 2: 5}, "_silent": {1: 99, 2: 0}}, ""),  # has not begun
        ({"_ended": UserError("no room.", exit_code=7), "_unanswered": 9}, "no room."),
    ],
    ids=str,
)
def test_who_is_lost_is_named_after_as_many_beats_as_patience_has(
    changed: dict[str, Any], verdict: str
) -> None:
    found = known(**changed)._verdict(3)
    assert (found.problem if found else "").startswith(verdict) and bool(found) == bool(verdict)
    assert found is None or found.exit_code == (7 if "_ended" in changed else NETWORK)


def test_those_that_have_been_silent_for_a_few_beats_are_missing() -> None:
    brief = heartbeat.BRIEF
    assert known(_silent={1: brief, 2: brief - 1}).missing() == 1


@pytest.mark.parametrize(
    ("error", "problem", "location", "code"),
    [
        (UserError("no room.", "Free some.", location="sft", exit_code=74), "no room.", "sft", 74),
        (ValueError("odd"), "ValueError: odd", "", 1),
    ],
)
def test_a_failure_tells_where_it_was(
    error: Exception, problem: str, location: str, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat.distributed, "rank", lambda: 2)
    monkeypatch.setattr(heartbeat, "socket", SimpleNamespace(gethostname=lambda: "node"))
    known_to_all = heartbeat._of_other(heartbeat.failure(error))
    place = "process 2 on node" + (f": {location}" if location else "")
    assert (known_to_all.problem, known_to_all.location) == (problem, place)
    assert known_to_all.exit_code == code and known_to_all.fix


@pytest.mark.parametrize("by_launcher", [True, False])
@pytest.mark.parametrize("first", [True, False])
def test_the_store_is_opened_by_the_first_process_or_the_launcher_and_waits_for_a_month(
    first: bool, by_launcher: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as the first process works alone: it may sample for days."""
    opened: list[bool] = []
    store = Store()
    monkeypatch.setattr(coordinate.distributed, "first", lambda: first)
    monkeypatch.setattr(coordinate, "_connect", lambda opens: opened.append(opens) or store)
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", str(by_launcher))
    assert coordinate._store.__wrapped__() is store
    assert opened == [first and not by_launcher] and store.timeouts == [30 * 24 * 3600]
