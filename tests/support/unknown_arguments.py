"""A step whose gold names the tool alone, and arguments that are valid or not for that tool."""

from hypothesis import strategies as st

from agentlite.core.records import ANY_ARGUMENTS, Call, Gold, GoldCall, Message, Record, Tool

FORECAST = Tool(
    "forecast_001",
    "Weather of a town on a day.",
    {
        "type": "object",
        "properties": {
            "town": {"type": "string"},
            "days": {"type": "integer"},
            "hours": {"type": "array", "items": {"type": "integer"}},
        },
        "required": ["town"],
    },
)
TIDE = Tool("tide_002", "Tides of a port.")
RECORD = Record(
    messages=(
        Message("user", "Is it wet in Oslo?"),
        Message("assistant", "I look it up.", (Call("forecast_001", {}, "call_0"),)),
        Message("tool", "4 mm", call_id="call_0"),
        Message("assistant", "Yes."),
    ),
    tools=(FORECAST, TIDE),
    gold={1: Gold((GoldCall("forecast_001", ANY_ARGUMENTS),))},
)
VALID = st.fixed_dictionaries(
    {"town": st.text()},
    optional={"days": st.integers(), "hours": st.lists(st.integers(), max_size=3)},
)
INVALID = st.sampled_from(
    [{}, {"town": ["Oslo"]}, {"town": "Oslo", "hours": [None]}, {"town": "Oslo", "street": "Karl"}]
)
