"""agentlite.environments.making.user_profile: a user knows every value that it has to say."""

from agentlite.core.records import Call, Tool
from agentlite.environments.making.blueprint import Blueprint, PlannedTurn
from agentlite.environments.making.user_profile import profile_of
from agentlite.environments.making.walk import PlannedCall


def test_values_of_one_parameter_never_replace_each_other():
    cities = ("Oslo", "Lund", "Turku", "Vaasa", "Oslo")
    calls = [PlannedCall(Call("find_station", {"city": city}), "S-1") for city in cities]
    turns = tuple(
        PlannedTurn((call,), missing="city" if at == 3 else "") for at, call in enumerate(calls)
    )
    tool = Tool("find_station", "Finds the station of a city.")
    profile = profile_of(Blueprint("long", "", turns, (tool.name,), ""), {tool.name: tool})
    assert sorted(profile.facts.values()) == sorted({*cities})
    assert [profile.facts[name] for name in profile.on_request] == ["Vaasa"]
