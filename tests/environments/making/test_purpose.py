"""agentlite.environments.making.purpose: tools, parameters and values in a user's words."""

import pytest

from agentlite.core.records import Tool
from agentlite.environments.making.purpose import label, purpose, resemblance, value_text


@pytest.mark.parametrize(
    ("name", "description", "words"),
    [
        ("f", "Finds items in stock. Slowly.", "find items in stock"),
        ("f", "Carries a parcel.\nSlowly", "carry a parcel"),
        ("f", "Searches a city, e.g. Oslo. Slowly.", "search a city, e.g. Oslo"),
        ("f", "Searches a city, i.e. Oslo", "search a city, i.e. Oslo"),
        ("f", "Boxes and fizzes them", "box and fizzes them"),
        ("f", "Closes a ticket", "close a ticket"),
        ("f", "Pass it on.", "pass it on"),
        ("f", "Was it sent?", "was it sent?"),
        ("f", "SQL is run.", "SQL is run"),
        ("f", "This is BFCL's. Tool description: Gets the time.", "get the time"),
        ("f", "Find.", "find"),
        ("sendMail_toAll", "", "send mail to all"),
        ("发送", " . ", "发送"),
    ],
)
def test_a_purpose_is_a_command_or_the_name_of_the_tool(name, description, words):
    assert purpose(Tool(name, description)) == words


@pytest.mark.parametrize(
    ("one", "other", "share"),
    [
        ("find the items in stock", "get item", 1.0),
        ("find items", "count items", 0.5),
        ("find big items today", "find small items", 2 / 3),
        ("find items", "send a mail", 0.0),
        ("the", "find", 0.0),
        ("gas bus", "ga bu", 0.0),  # too short to be plurals
    ],
)
def test_purposes_resemble_each_other_by_the_words_of_the_shorter_one(one, other, share):
    assert resemblance(one, other) == resemblance(other, one) == pytest.approx(share)


@pytest.mark.parametrize(
    ("parameter", "words"),
    [("file_name", "file name"), ("orderID2", "order id 2"), ("价格", "价格"), ("URL", "url")],
)
def test_a_parameter_is_named_by_its_words(parameter, words):
    assert label(parameter) == words


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("Oslo", "Oslo"),
        ("New York", "'New York'"),
        ("done.", "'done.'"),
        ("", "''"),
        (7, "7"),
        (True, "true"),
        (["Oslo"], "Oslo"),
        (["Oslo", "New York", 3], "Oslo, 'New York' and 3"),
        ([], "[]"),
        ([[1], "a"], '[[1], "a"]'),
        ({"a": 1}, '{"a": 1}'),
    ],
)
def test_a_value_has_quotes_only_where_it_would_not_be_seen_as_one(value, text):
    assert value_text(value) == text
