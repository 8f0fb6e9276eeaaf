"""Arguments come from outputs, from the state or from the schema, and fit it."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from agentlite.core.json_schema import value_problem
from agentlite.core.records import Tool
from agentlite.environments.synthesis.values import KnownValue, arguments


def tool(name="act", **properties):
    parameters = {"type": "object", "properties": properties, "required": [*properties]}
    return Tool(name, "", parameters)


SCHEMAS = st.sampled_from(
    [
        {"type": "string"},
        {"type": "integer", "minimum": 3, "maximum": 9},
        {"type": "number"},
        {"type": "boolean"},
        {"type": "array", "items": {"type": "string"}},
        {"type": "string", "enum": ["a", "b"]},
        {"type": "object", "properties": {}},
        {},
    ]
)
VALUES = st.one_of(st.text(min_size=1, max_size=9), st.integers(-5, 99), st.floats(0, 9))


@given(
    st.dictionaries(st.sampled_from(["name", "id", "count", "text"]), SCHEMAS, min_size=1),
    st.lists(st.tuples(VALUES, st.sampled_from(["name", "id", "other"]))),
    st.integers(0, 99),
)
def test_what_is_drawn_fits_the_schema(properties, pool, seed):
    one = tool(**properties)
    chosen = arguments(one, [KnownValue(value, name) for value, name in pool], Random(seed))
    if chosen is not None:
        assert not value_problem(
            {name: value.value for name, value in chosen.items()}, one.parameters
        )
