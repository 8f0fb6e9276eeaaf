"""How the processes of a run begin and end together, with a store that is a dictionary."""

from typing import Any

import pytest

from agentlite.core.errors import UserError
from agentlite.engine import processes


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
        assert key == processes.SEEN
        self.looks += amount == 0
        self.seen += 1 if amount == 0 else amount
        return self.seen

    def compare_set(self, key: str, expected: str, value: str) -> None:
        if self.values.get(key, b"") == expected.encode():
            self.set(key, value)

    def set_timeout(self, timeout: Any) -> None:
        self.timeouts.append(timeout.total_seconds())


@pytest.fixture(autouse=True)
def three(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes.distributed, "count", lambda: 3)
    monkeypatch.setattr(processes.time, "sleep", lambda seconds: None)


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
    ],
)
def test_the_first_process_leaves_its_exit_code_for_the_others(
    error: BaseException | None, code: str, raised: Any, begun: bool
) -> None:
    store = Store(**({processes.WORD: "go"} if begun else {}))
    if raised:
        with pytest.raises(raised):
            processes._lead(raising(error), store)
    else:
        assert processes._lead(raising(None), store) == "the result"
    assert store.values[processes.END] == code.encode()
    # those that have not begun are sent home; those that have go on to their own end
    assert store.values[processes.WORD] == (b"go" if begun else code.encode())


@pytest.mark.parametrize("code", ["0", "7"])
def test_another_process_runs_once_the_first_says_so_and_ends_with_its_code(code: str) -> None:
    ran: list[int] = []
    for word in ("go", code):
        store = Store(**{processes.WORD: word, processes.END: code})
        with pytest.raises(SystemExit) as ended:
            processes._follow(lambda: ran.append(1), store)  # type: ignore[arg-type]
        assert ended.value.code == int(code) and store.seen == 1
    assert ran == [1]  # not where the first process ended before
