"""A method becomes the tool that transformers makes of it, or is refused where that refuses."""

from typing import Any, Literal, Optional, Union

import pytest

from agentlite.environments.tool_schema import SchemaError, tool_schema


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
        b: dict[str, list[float]],
        c: Optional[int],  # noqa: UP045  (people write it so)
        d: Union[int, str],  # noqa: UP007
        e: int | None,
        f: Literal["a", "b"],
        g: tuple[int, str],
        h: Any,
        i: int | list[str] | None,
        j: bool | float,
        k: Literal[1, "x", None],
        m: list[dict[str, bool]] | None,
        n: list,  # type: ignore[type-arg]  (people write it so)
        o: dict,  # type: ignore[type-arg]
        p: tuple,  # type: ignore[type-arg]
        q: None,
    ) -> list[str]:
        """Takes all kinds.
        Args:
            a: one: with a colon
            b: two
            c: three

            d: four, behind an empty line
            e: five
            f: six (choices: ["a ", "b"])
            g: seven
            h: eight
            i: nine
            j: ten
            k: eleven
            m: twelve
            n: thirteen
            o: fourteen
            p: fifteen
            q: sixteen
        """
        return []

    def no_parameters(self) -> dict[str, int]:
        """Gives all prices.

        In two paragraphs.
        """
        return {}

    def no_return(self, city: str):
        """Weather. Args: are named below.

        Args:
            city: The city
        """

    def returns_first(self, city: str) -> str:
        """Weather.

        Returns:
            A text.
        """
        return ""

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

    def not_json(self, city: str) -> str:
        """Weather.

        Args:
            city: The city (choices: [Oslo, Rome])
        """
        return city

    def one_in_a_tuple(self, place: tuple[int]) -> str:
        """Weather.

        Args:
            place: The place
        """
        return ""


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
        with pytest.raises(SchemaError):
            tool_schema(method)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("no_docstring", "no_docstring has no docstring"),
        ("no_hint", "no_hint: the parameter city has no type hint"),
        ("undescribed", "undescribed: the docstring says nothing about day under `Args:`"),
        ("not_json", "not_json: the choices of city are not JSON"),
        ("one_in_a_tuple", "no JSON Schema for the type hint tuple[int]"),
    ],
)
def test_what_is_no_tool_is_refused_with_its_reason(name, reason):
    with pytest.raises(SchemaError, match=f"^{reason.replace('[', '.').replace(']', '.')}$"):
        tool_schema(getattr(Methods, name))
