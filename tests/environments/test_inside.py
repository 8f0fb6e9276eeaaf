"""What a world's process makes of requests, asked directly."""

import time

import pytest

from agentlite.environments import inside


@pytest.fixture(autouse=True)
def as_it_was(monkeypatch):
    monkeypatch.setattr(inside, "world", None)
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


class Bare:
    """TRL's least: a reset and one tool."""

    def reset(self, **row):
        self.row = row
        return 5

    def look(self) -> str:
        """Looks."""
        return "Error in the data"


class Open:
    """All hooks, one of them with a mistake."""

    closed = False

    def reset(self):
        pass

    def tools(self):
        return iter([{"name": "a"}])

    def call(self, name, arguments):
        return {name: arguments}

    def get_scores(self):
        return {"share": True}

    def get_turn_scores(self):
        return iter([{"share": True}, {}])

    def next_user(self, words):
        return None

    def state(self):
        return {"place": (1, 2)}

    def is_done(self):
        return 1

    def close(self):
        type(self).closed = True


def test_a_class_without_hooks_has_no_user_no_state_and_no_scores():
    assert inside.answer(Bare, ["reset", {"a": 1}]) == ([None, inside._tools(), False], "")
    assert inside.world.row == {"a": 1} and time.localtime(0).tm_hour == 0
    assert inside.answer(Bare, ["call", "look", {}]) == (["Error in the data", True, False], "")
    assert inside.answer(Bare, ["next_user", "Bye."])[0][0] is None
    assert inside.answer(Bare, ["state"]) == (None, "")
    assert inside.answer(Bare, ["scores"]) == ({}, "")
    assert inside.answer(Bare, ["turn_scores"]) == ([], "")
    assert inside.answer(Bare, ["close"]) == (None, "")


def test_hooks_are_used_where_a_class_has_them():
    assert inside.answer(Open, ["reset", {}]) == ([None, [{"name": "a"}], True], "")
    assert inside.answer(Open, ["call", "a", {"b": 1}]) == (['{"a": {"b": 1}}', False, True], "")
    assert inside.answer(Open, ["state"]) == ({"place": [1, 2]}, "")
    assert inside.answer(Open, ["scores"]) == ({"share": 1.0}, "")
    assert inside.answer(Open, ["turn_scores"]) == ([{"share": 1.0}, {}], "")
    inside.answer(Open, ["close"])
    assert Open.closed


def test_the_next_reset_closes_the_world_before_it(monkeypatch):
    inside.answer(Open, ["reset", {}])
    monkeypatch.setattr(Open, "closed", False)
    inside.answer(Open, ["reset", {}])
    assert Open.closed


def test_a_row_that_reset_does_not_take_is_its_error():
    with pytest.raises(TypeError, match="city"):
        inside.answer(Open, ["reset", {"city": "Oslo"}])
