"""A method becomes the tool that transformers makes of it, or is refused where that refuses."""

import enum
from dataclasses import dataclass
from typing import Any, Literal, Optional

import pytest

from agentlite.environments.world_process import LostWorldError, tool_schema


class Methods:
    """One of each: hints of every kind, docstrings of every form; and those that are no tools."""

    def search(self, query: str, limit: int = 5) -> str:
        """
        Searches the shop.

        Args:
            query: The words to look for,
                which may go on
            limit: How many at most (choices: [1, 5, 10])

        Returns:
            The items found.

        Raises:
            ValueError: Never.
        """
        return ""

    def every_hint(
        self,
        a: list[int],
        b: dict[str, list[float]] | None,
        d: int | str | bool,
        c: Optional[int],  # noqa: UP045  (people write it so)
        e: int | None,
        f: Literal["a", "b"],
        g: tuple[int, str],
        h: Any,
        n: list,  # type: ignore[type-arg]  (people write it so)
    ) -> list[str]:
        """Takes all kinds.
        Args:
            a: one: with a colon
            b: two
            d: four
            c: three

            e: five
            f: six (choices: ["a ", "b"])
            g: seven
            h: eight
            n: thirteen
        """
        return []

    def no_parameters(self) -> dict[str, int]:
        """Gives all prices.

        In two paragraphs.
        """
        return {}

    def no_docstring(self, city: str) -> str:
        return city

    def no_hint(self, city) -> str:
        """Weather.

        Args:
            city: The city
        """
        return str(city)

    def undescribed(self, city: str, day: int) -> str:
        """Weather.

        Args:
            city: The city
        """
        return city


NAMES = [name for name in vars(Methods) if not name.startswith("_")]


@pytest.mark.torch
@pytest.mark.parametrize("name", NAMES)
def test_the_tool_is_that_of_transformers(name):
    from transformers.utils import get_json_schema

    method = getattr(Methods(), name)
    try:
        expected = get_json_schema(method)
    except Exception:
        expected = None
    if expected:
        assert tool_schema(method) == expected
    else:
        with pytest.raises(LostWorldError):
            tool_schema(method)


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Point:
    x: int


@pytest.mark.parametrize("hint", [Colour, Point, list[Colour], Point | None])
def test_a_parameter_that_json_cannot_hold_makes_no_tool(hint):
    def method(self, place):
        """Goes.

        Args:
            place: The place
        """

    method.__annotations__["place"] = hint
    with pytest.raises(LostWorldError, match="place: arguments are JSON"):
        tool_schema(method)
