"""agentlite.data.curation.pii: what names a person or opens a door is found, what only looks so is
not.
"""

import random
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from agentlite.core.records import Call, Gold, GoldCall, Message, Record, Tool, from_row, to_row
from agentlite.data.curation.pii import find_personal, mask_personal
from agentlite.data.curation.validate import validate
from agentlite.scoring.metrics.step_metrics import calls_right

chances = st.integers(0, 10**9).map(random.Random)
LETTERS = string.ascii_letters + string.digits


def some(alphabet: str, count: int, chance: random.Random) -> str:
    return "".join(chance.choices(alphabet, k=count))


def key(chance: random.Random) -> str:
    """Put together here: a whole one in a file looks like a leak to those who look for leaks."""
    start, alphabet, count = chance.choice(
        [
            ("AKIA", string.ascii_uppercase, 16),
            ("ghp_", LETTERS, 36),
            ("AIza", LETTERS + "-_", 35),
            ("hf_", LETTERS, 34),
            ("sk-proj-", LETTERS + "-", 60),
            ("sk-", "0123456789abcdef", 32),
            ("glpat-", LETTERS, 20),
            ("sk_live_", LETTERS, 24),
            ("xoxb-12345678901-", LETTERS, 24),
            ("LTAI5t", LETTERS, 20),
        ]
    )
    return f"{start}{some(alphabet, count - 2, chance)}72"


def mail(chance: random.Random) -> str:
    host = chance.choice(["gmail.com", "qq.com", "163.com", "mail.uni-bonn.de", "outlook.co.uk"])
    return f"{some(string.ascii_lowercase, 5, chance)}{chance.choice(['', '.', '_'])}{some(LETTERS, 4, chance)}@{host}"  # noqa: E501  (verbatim text)


def phone(chance: random.Random) -> str:
    end = some(string.digits, 4, chance)
    mobile = f"1{chance.choice('3456789')}{some(string.digits, 1, chance)}"
    middle, area = (
        some(string.digits, 4, chance),
        f"{chance.choice('23489')}{some(string.digits, 2, chance)}",
    )
    return chance.choice(
        [
            f"{mobile} {middle} {end}",
            f"+86{mobile}{middle}{end}",
            f"+86 {mobile}-{middle}-{end}",
            f"+44 20 7{middle[1:]} {end}",
            f"({area}) {area}-{end}",
            f"{area}-{area}-{end}",
            f"+1 {area} {area} {end}",
            f"010-6{middle[1:]}{end}",
            f"+4915{middle}{end}",
        ]
    )


def identity(chance: random.Random) -> str:
    digits = f"{chance.choice(['110105', '310104', '440306'])}{chance.randint(1950, 2010)}{chance.randint(1, 12):02}"  # noqa: E501  (verbatim text)
    digits += f"{chance.randint(1, 28):02}{some(string.digits, 3, chance)}"
    weights = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)
    return (
        digits + "10X98765432"[sum(int(d) * w for d, w in zip(digits, weights, strict=True)) % 11]
    )


def card(chance: random.Random) -> str:
    digits = chance.choice(["4", "51", "62", "6011"])
    digits += some(string.digits, 15 - len(digits), chance)
    total = sum(
        int(d) if place % 2 else sum(map(int, str(2 * int(d)))) for place, d in enumerate(digits)
    )
    digits += str(-total % 10)
    return chance.choice(
        [digits, *(sep.join(digits[i : i + 4] for i in range(0, 16, 4)) for sep in " -")]
    )


def iban(chance: random.Random) -> str:
    country, digits = chance.choice(["DE", "NL", "GB"]), some(string.digits, 18, chance)
    account = digits if country == "DE" else f"ABNA{digits[:10]}"
    number = "".join(str(int(sign, 36)) for sign in f"{account}{country}00")
    written = f"{country}{98 - int(number) % 97:02}{account}"
    grouped = " ".join(written[i : i + 4] for i in range(0, len(written), 4))
    return chance.choice([written, grouped])


def ip(chance: random.Random) -> str:
    return f"{chance.choice([34, 85, 151])}.{chance.randint(0, 99)}.{chance.randint(100, 255)}.7"


KINDS = {
    **{"key": key, "mail": mail, "phone": phone, "identity": identity, "card": card},
    **{"iban": iban, "ip": ip},
}
FRAMES = [
    "{}",
    "My number or address is {}.",
    "请记下：{}，谢谢",
    "我的是{}吗？",
    '{{"contact": "{}", "city": "Oslo"}}',
    "a\\n{}\\nb",
]


def saying(text: str) -> Record:
    return Record(messages=(Message("user", text), Message("assistant", "Noted.")))


@pytest.mark.parametrize("kind", KINDS)
@given(chances, st.sampled_from(FRAMES))
def test_a_value_is_found_in_any_sentence(kind: str, chance: random.Random, frame: str) -> None:
    text = frame.format(KINDS[kind](chance))
    assert find_personal(saying(text)) == {kind: 1}, text


MORE = {
    "mysql://root:hu8ter2@db.internal:3306/shop": {"password": 1},
    "Authorization: Bearer " + "a8" * 15: {"key": 1},
    "-----BEGIN RSA PRIVATE " + "KEY-----\nMIIEow\n-----END RSA PRIVATE " + "KEY-----": {"key": 1},
    "ey" + "JhbGciOiJIUzI1NiJ9.ey" + "JzdWIiOiIxMjM0NTY3ODkwIn0.SflKxwRJSMeKKF2QT4": {"key": 1},
    "call me at 2125550147": {"phone": 1},
    '{"phone_number": "2125550147"}': {"phone": 1},
    "请记下：13812345678，谢谢": {"phone": 1},
    "13812345678是我的": {"phone": 1},
    '{"mobile": 13812345678}': {"phone": 1},
    "008613812345678": {"phone": 1},
    "Write to _ann@mail.org_ please": {"mail": 1},
    "ann@vip.163.com": {"mail": 1},
    "+86 138 1234 5678, that is 13812345678": {"phone": 1},
    "13812345678@qq.com": {"mail": 1},
    "My number is 07700 900456": {"phone": 1},
    "Handy: 0171/2345678": {"phone": 1},
    "numéro: 06.12.34.56.78": {"phone": 1},
    "携帯は 090-1234-5678": {"phone": 1},
    "电话：１３８１２３４５６７８": {"phone": 1},
    "ann＠mail.org": {"mail": 1},
    "4111.1111.1111.1111": {"card": 1},
    "gsk_" + "aB3" * 17: {"key": 1},
    "xai-" + "aB3" * 26: {"key": 1},
    "r8_" + "aB3" * 12: {"key": 1},
    "dop_v1_" + "a1b2" * 16: {"key": 1},
    "https://a.org/x?token=8fj20dkf93jf02kd": {"key": 1},
    "Authorization: Basic YWRtaW46aHVudGVyMjI=": {"key": 1},
    "the password is hunter2!x.": {"password": 1},
    "密码：abc123xyz": {"password": 1},
    "GB82 WEST 1234 5698 7654 32": {"iban": 1},
    "MT84MALT011000012345MTLCAST001S": {"iban": 1},
    "ssh root@203.12.9.77": {"ip": 1},
}


def test_how_it_is_written_does_not_matter() -> None:
    for text, kinds in MORE.items():
        assert find_personal(saying(text)) == kinds, text


NONE = [
    "write to ann@example.com, bob@mail.example.org, user@domain.com",
    "git clone git@github.com:a/b.git",
    "logo@2x.png",
    "postgres://user:password@localhost/db",
    "{'sku_code': '15956662254', 'orderId': 15956662254}",
    "订单编号：13812345678",
    "at 1700000000 or 1700000000123",
    "2023-10-15 12:30:45 to 2023-10-16",
    "48.858844, 2.294351; -122.4194155, 37.7749295",
    "550e8400-e29b-41d4-a716-446655440000",
    "192.168.100.200",
    "version 3.4.105.6, Chrome/120.0.6099.129, 1.2.3.4, 255.255.255.0, 256.1.2.300",
    "DE12345678901234567890",
    "order 06 12 34 56 78, on 06 12 2023, numbers 01 02 03 04 05",
    "Password is required: the password is wrong, or case-sensitive; pwd: /home/ann",
    "https://a.org/?token=YOUR_TOKEN&key=abc, Basic understanding",
    "+1234567890",
    "4111111111111112",
    "11010519491231002Y",
    "110105194913310024",
    "a Bearer of good news",
    "hotel 2125550147",
    "contact id 2125550147",
    "root@server.lan",
    "sk-learn-ensemble-2-random-forest-3",
    "a call 2125550147",
    "约13812345678元",
    "15 138 12345 678",
    "2019 2020 2021 2022",
    "+5 10 2023",
    "+48.8566 2.3522",
    "+2097152 bytes",
]


def test_what_only_looks_like_one_is_left_alone() -> None:
    for text in NONE:
        record = saying(text)
        assert not find_personal(record), text
        assert mask_personal(record)[0] is record


MASKED = {
    "+49 30 901820 2024-05-01": "<PHONE_1> 2024-05-01",
    "+49 30 901820 10:30": "<PHONE_1> 10:30",
    "+1 212-555-0123 2 times": "<PHONE_1> 2 times",
    "(+49 170 5551234) 5 times": "(<PHONE_1>) 5 times",
    "+49 (0)30 901820 is +49 30 901820": "<PHONE_1> is <PHONE_1>",
    "phone 212-555-0123, or phone +1 212-555-0123": "phone <PHONE_1>, or phone <PHONE_1>",
    "'joe.o'neil@acme.com'": "'<MAIL_1>'",
    "jürgen@müller.de": "<MAIL_1>",
    "'ann@mail.org','ann@mail.org'": "'<MAIL_1>','<MAIL_1>'",
    "Write to _ann@mail.org_ please": "Write to <MAIL_1>_ please",
    # a mask brings a word near to what stands behind it
    "call ann.of.the.long.name@mail.org or 13812345678": "call <MAIL_1> or <PHONE_1>",
    "<PHONE_1> (a+)+$ \\1 [x] +8613812345678": "<PHONE_1> (a+)+$ \\1 [x] <PHONE_2>",
}


def test_a_mask_ends_where_the_value_ends() -> None:
    for text, masked in MASKED.items():
        assert mask_personal(saying(text))[0].messages[0].content == masked


def told() -> Record:
    """The same phone in a text, an argument, gold, a result, a tool's description and meta; and
    another.
    """
    number = "13812345678"
    tool = Tool(
        "send_sms",
        "Sends a text, e.g. to 139 1111 2222.",
        {
            "type": "object",
            "properties": {
                "to": {"type": "string"},
                "copies": {"type": "array", "items": {"type": "string"}},
            },
            "required": ["to"],
        },
    )
    arguments = {"to": number, "copies": ["ann@mail.com"]}
    messages = (
        Message("user", "Text +86 138-1234-5678 and Ann@mail.com: hello!"),
        Message("assistant", "", (Call("send_sms", arguments, "call_0"),)),
        Message("tool", '{"13812345678": "sent"}', call_id="call_0"),
        Message("assistant", "Sent to 13812345678."),
    )
    gold = {1: Gold((GoldCall("send_sms", {"to": [number], "copies": [["ann@mail.com"], ""]}),))}
    return Record(
        messages=messages, tools=(tool,), gold=gold, meta={"who": {"13812345678": [number]}}
    )


def test_a_value_has_one_mask_wherever_it_stands() -> None:
    record = told()
    masked, counts = mask_personal(record)
    validate(masked)
    assert counts == find_personal(record) == {"phone": 2, "mail": 1}
    assert masked.messages[0].content == "Text <PHONE_1> and <MAIL_1>: hello!"
    assert masked.messages[2].content == '{"<PHONE_1>": "sent"}'
    assert masked.tools[0].description == "Sends a text, e.g. to <PHONE_2>."
    assert masked.messages[1].calls[0].arguments == {"to": "<PHONE_1>", "copies": ["<MAIL_1>"]}
    assert calls_right(masked.messages[1].calls, masked.gold[1], masked.tools)
    assert masked.parent == record.id
    assert mask_personal(replace(record, parent="whole"))[0].parent == "whole"
    assert not find_personal(masked)
    assert from_row(to_row(masked)) == masked


@given(chances, st.integers(1, 6))
def test_after_masking_nothing_is_found_and_each_value_has_its_own_mask(
    chance: random.Random, count: int
) -> None:
    kinds = chance.choices(sorted(KINDS), k=count)
    values = [KINDS[kind](chance) for kind in kinds]
    record = saying(" | ".join([*values, *values]))
    masked, counts = mask_personal(record)
    first, second = (
        masked.messages[0].content.split(" | ")[:count],
        masked.messages[0].content.split(" | ")[count:],
    )
    assert counts.total() == len(set(first)) <= count
    assert first == second
    assert [shown.strip("<>").split("_")[0].lower() for shown in first] == kinds
    assert not find_personal(masked)
    assert mask_personal(masked)[0] is masked


MARKS = ["", " call ", "我", "的是", "电话", "**", *"_*`()\"':：，/.|~<="]


@given(chances, st.lists(st.sampled_from(MARKS), min_size=3, max_size=5))
def test_whatever_stands_around_a_value_nothing_is_left_to_be_found(
    chance: random.Random, marks: list[str]
) -> None:
    values = [KINDS[chance.choice(sorted(KINDS))](chance) for _ in marks[1:]]
    values[-1] = f"13{some(string.digits, 9, chance)}"
    text = marks[0] + "".join(
        f"{value}{mark}" for value, mark in zip(values, marks[1:], strict=True)
    )
    masked, _ = mask_personal(saying(text))
    assert not find_personal(masked), text
    assert mask_personal(masked)[0] is masked
