"""A model that makes data: its servers, and the order of its answers."""

from pathlib import Path
from typing import Any

import pytest

from agentlite.config.settings import QueriesSettings
from agentlite.core.errors import NETWORK, UserError
from agentlite.environments.simulators import SimulatorReply, question
from agentlite.stages import teacher
from agentlite.stages.teacher import answers, teacher_of


@pytest.mark.parametrize(
    ("failing", "share", "refused"), [(1, 0.25, False), (1, 0.2, True), (2, 0.5, False)]
)
def test_answers_come_in_the_order_of_their_questions_and_a_share_may_be_missing(
    failing: int,
    share: float,
    refused: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Backwards:
        """In place of servers: the last question is answered first."""

        def __init__(self, *_: object) -> None:
            pass

        def __enter__(self) -> "Backwards":
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def ask(self, questions: Any) -> Any:
            for number in reversed(range(len(questions))):
                problem = "silent" if number < failing else ""
                yield number, SimulatorReply(f"{number}", f"answer {number}", problem=problem)

    monkeypatch.setattr(teacher, "Simulators", Backwards)
    settings = QueriesSettings(endpoint=("http://a/v1",), model="m", max_failures=share)
    served = teacher_of(settings, "make queries", None)
    asked = [question("teacher", f"{number}") for number in range(4)]
    if not refused:
        found = answers(served, asked, settings, tmp_path / "replies.jsonl", "title")
        assert [one.text for one in found] == [f"answer {number}" for number in range(4)]
        return
    with pytest.raises(UserError) as caught:
        answers(served, asked, settings, tmp_path / "replies.jsonl", "title", "--judge-endpoint")
    assert (caught.value.exit_code, caught.value.location) == (NETWORK, "--judge-endpoint")
