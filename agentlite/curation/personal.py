"""A record -> the keys, passwords, mails, phones, identity numbers and cards its texts hold: counted, or masked.

Looked for are values that name a person or open a door: addresses of documentation (example.com), ids, times, sizes and
coordinates are none. A digit is an ASCII digit.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from agentlite.records import Gold, Message, Record, Tool

# A JSON text inside a text may have an escape right before a value: \n13812345678
START = r"(?:(?<![0-9A-Za-z_\\])|(?<=\\[nrt])|(?<=\\u[0-9A-Fa-f]{4}))"
END = r"(?![0-9A-Za-z_])"
NUMBER_START, NUMBER_END = START + r"(?<![0-9][.])(?<![#+.-])", END + r"(?![.-]?[0-9])(?!@)"
TAIL = 96  # characters before a number that may tell what it is
Contents = tuple[tuple[Message, ...], tuple[Tool, ...], dict[int, Gold], dict[str, Any]]

KEY = re.compile(
    START + r"""(?:
      -----BEGIN[ ][A-Z ]*PRIVATE[ ]KEY-----.*?(?:-----END[ ][A-Z ]*PRIVATE[ ]KEY-----|\Z)
    | (?:AKIA|ASIA)[A-Z0-9]{16}                                       # AWS
    | AIza[\w-]{35} | ya29\.[\w-]{20,}                                # Google
    | LTAI[A-Za-z0-9]{16,26} | AKID[A-Za-z0-9]{32}                    # Alibaba, Tencent
    | sk-(?=[\w-]*[0-9][\w-]*[0-9])[\w-]{20,}                         # OpenAI, Anthropic, DeepSeek, ...
    | [srp]k_(?:live|test)_[A-Za-z0-9]{16,}                           # Stripe
    | gh[pousr]_[A-Za-z0-9]{36,} | github_pat_\w{22,} | glpat-[\w-]{20,}
    | xox[abeoprs]-[A-Za-z0-9-]{20,} | SG\.[\w-]{22}\.[\w-]{43}       # Slack, SendGrid
    | hf_[A-Za-z0-9]{30,} | npm_[A-Za-z0-9]{36} | pypi-[\w-]{50,}
    | eyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{10,}                        # JSON web token
    | [Bb]earer[ ]+(?P<token>(?=[\w.~+/-]*[0-9])[\w.~+/-]{20,}=*)
    )""" + END,
    re.VERBOSE | re.DOTALL | re.ASCII,
)  # fmt: skip
# Something of each key above; every one of them also has 20 word characters in a row.
LONG = 20
MARK = re.compile(
    rb"AKI[AD]|ASIA|AIza|LTAI|ya29|sk-|k_live_|k_test_|gh[pousr]_|_pat_|glpat-|xox|SG\.|hf_|npm_|pypi-|eyJ|earer "
)
PASSWORD = re.compile(r"(?<![A-Za-z])[A-Za-z][A-Za-z0-9+.-]{1,20}://[^\s/:@\"'<>]+:(?P<token>[^\s/@\"'<>{}$*]{3,})@")
PLACEHOLDER = re.compile(r"(?:your?[-_]?)?(?:pass(?:word|wd)?|pwd|secret|token|key|x+|\.+)", re.IGNORECASE)
MAIL = re.compile(
    r"(?:(?<![A-Za-z0-9._%+\\-])|(?<=\\[nrt]))(?!\.)[A-Za-z0-9._%+-]{1,64}+"
    r"@(?P<domain>(?:[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?\.)+[A-Za-z]{2,24})(?![A-Za-z0-9-])"
)
NOBODY = re.compile(r"(?:.*\.)?(?:example|test|invalid|localhost|(?:your|my)?domain)(?:\.(?:com|org|net|edu|cn))?",
                    re.IGNORECASE)  # fmt: skip
FILE = re.compile(r".*\.(?:png|jpe?g|gif|svg|webp|py|js|ts|json|css|html?|md|txt)", re.IGNORECASE)
IDENTITY = re.compile(NUMBER_START + r"[1-8][0-9]{5} ?(?P<born>(?:19|20)[0-9]{6}) ?[0-9]{3}[0-9Xx]" + NUMBER_END)
CARD = re.compile(
    NUMBER_START + r"(?:[0-9]{13,19}|[0-9]{4}([ -])[0-9]{4}\1[0-9]{4}\1[0-9]{4}(?:\1[0-9]{3})?"
    r"|3[0-9]{3}([ -])[0-9]{6}\2[0-9]{4,5})" + NUMBER_END
)
ISSUER = re.compile(
    r"4(?:.{12}|.{15}|.{18})|(?:5[1-5].{2}|222[1-9]|22[3-9].|2[3-6].{2}|27[01].|2720).{12}|3[47].{13}"
    r"|(?:6011|65.{2}|64[4-9].).{12}|35.{14}|62.{14,17}|3(?:0[0-5]|6.|8.).{11}"
)
PHONE = re.compile(
    NUMBER_START + r"""(?:
      (?P<mobile>(?:\+?86[ -]?|0086[ -]?)?1[3-9][0-9]([ -]?)[0-9]{4}\2[0-9]{4})          # Chinese
    | \(?0(?:10|2[0-9]|[3-9][0-9]{2})\)?[ -]?(?<=[ )-])[2-9][0-9]{6,7}                   # Chinese, with its city
    | \+[1-9][0-9]{8,14}
    | \+[1-9][0-9]{0,2}(?=(?:[ .()-]*[0-9]){8})[ .-]?(?:\([0-9]{1,4}\)[ .-]?)?[0-9]{1,4}(?:[ .-][0-9]{2,4}){1,5}
    | (?:1[ .-])?(?:\([2-9][0-9]{2}\)[ ]?|[2-9][0-9]{2}[.-])[2-9][0-9]{2}[.-][0-9]{4}    # American
    | (?P<bare>(?:1[ ]?)?[2-9][0-9]{2}[ ]?[2-9][0-9]{2}[ ]?[0-9]{4})
    )""" + NUMBER_END,
    re.VERBOSE,
)  # fmt: skip
DIGITS_NEAR = re.compile(r"[0-9][0-9 ().-]{7,}[0-9]")
CALLED = re.compile(
    r"phone|mobile|whatsapp|contact|(?<![A-Za-z])(?:cell|tel|fax|call|dial|text|sms|reach)|手机|电话|号码|联系|拨打|致电",
    re.IGNORECASE,
)
PAID = re.compile(r"card|visa|amex|credit|debit|unionpay|卡号|银行卡|信用卡|储蓄卡", re.IGNORECASE)
# what stands last before a number that counts or names a thing
THING = re.compile(
    r"(?:(?:^|[^A-Za-z])(?:[Ii]d|[Nn]o|[Ss]ku|[Ii]sbn|[Uu]pc|[Ee]an|[Tt]ime(?:stamp)?|[Cc]ode|[Oo]rder|[Ss]erial|[Bb]arcode"
    r"|[Tt]racking|[Ii]nvoice|[Tt]icket|[Pp]rice|[Aa]mount|[Pp]opulation|[Ss]ize|[Bb]ytes)s?|[a-z](?:Id|Code|Time|No)s?|ID|SKU"
    r"|编号|单号|订单|编码|货号|流水号?|条码|金额|价格|时间戳)(?: ?(?:number|is|was|号|为|是))?$"
)


class Spot(NamedTuple):
    """A value in a text: what it is, as it is written, and what other ways to write the same have in common."""

    kind: str
    written: str
    same: str


Reader = Callable[[str, str], Iterator[Spot]]  # a text and the key it stands under -> what it holds of a kind


def find(record: Record) -> Counter[str]:
    """How many different values of each kind a record holds; empty for most."""
    return Counter(kind for kind, _ in _found(record))


def mask(record: Record) -> tuple[Record, Counter[str]]:
    """The record with a mask for every value, and how many there were of each kind.

    A value has one mask wherever it stands, however it is written: `<PHONE_1>`. If it also stands somewhere as a
    number, its mask is a number of as many digits, 10000000001, so that types stay what they are. What is masked is a
    variant: it has the id of what was read as its `parent`.
    """
    spots = _found(record)
    if not spots:
        return record, Counter()
    contents = msgspec.to_builtins(_contents(record))
    masks = _masks(spots, " ".join(str(value) for _, value in _values(contents)))
    pattern = re.compile(f"{START}(?:{'|'.join(map(re.escape, sorted(masks, key=len, reverse=True)))}){END}")
    masked = _masked(contents, masks, pattern)
    messages, tools, gold, meta = msgspec.convert(masked, Contents)
    changed = replace(record, messages=messages, tools=tools, gold=gold, meta=meta, parent=record.parent or record.id)
    return changed, Counter(kind for kind, _ in spots)


def _keys(text: str, key: str) -> Iterator[Spot]:
    for match in KEY.finditer(text):
        written = match["token"] or match[0]
        if not written.endswith("EXAMPLE"):
            yield Spot("key", written, written)


def _passwords_and_mails(text: str, key: str) -> Iterator[Spot]:
    for match in PASSWORD.finditer(text):
        if not PLACEHOLDER.fullmatch(match["token"]):
            yield Spot("password", match["token"], match["token"])
    for match in MAIL.finditer(PASSWORD.sub(" ", text)):
        of_nobody = NOBODY.fullmatch(match["domain"]) or FILE.fullmatch(match["domain"])
        if not of_nobody and not match[0].startswith("git@"):
            yield Spot("mail", match[0], match[0].lower())


def _numbers(text: str, key: str) -> Iterator[Spot]:
    """Identity numbers, cards and phones: each number is one of them."""
    if not DIGITS_NEAR.search(text):
        return
    taken: list[tuple[int, int]] = []
    for kind, pattern in NUMBERS.items():
        for match in pattern.finditer(text):
            free = all(match.end() <= start or end <= match.start() for start, end in taken)
            before = re.sub(r"[^A-Za-z\u4e00-\u9fff]+$", "", f"{key} {text[: match.start()]}"[-TAIL:])
            if free and IS_ONE[kind](match, before):
                taken.append(match.span())
                digits = re.sub(r"[^0-9Xx]", "", match[0]).upper()
                yield Spot(kind, match[0], digits[-10:] if kind == "phone" else digits)


def _is_identity(match: re.Match[str], before: str) -> bool:
    """Whether the birthday is a day, and the last digit what ISO 7064 makes of the others."""
    digits = match[0].replace(" ", "")
    try:
        date.fromisoformat(match["born"])
    except ValueError:
        return False
    total = sum(int(digit) * 2 ** (17 - place) for place, digit in enumerate(digits[:17]))
    return "10X98765432"[total % 11] == digits[17].upper()


def _is_card(match: re.Match[str], before: str) -> bool:
    """By its sum, and by its issuer, its blanks or the words before it: a tenth of all numbers have a right sum."""
    digits = re.sub(r"[ -]", "", match[0])
    doubled = sum(sum(divmod(2 * int(digit), 10)) for digit in digits[-2::-2])
    if (doubled + sum(map(int, digits[-1::-2]))) % 10:
        return False
    if PAID.search(before[-24:]):
        return True
    return not THING.search(before) and bool(ISSUER.fullmatch(digits) or (digits != match[0] and digits[0] in "3456"))


def _is_phone(match: re.Match[str], before: str) -> bool:
    """Bare digits are a phone by the words before them; a Chinese mobile unless these say it is something else."""
    if match["bare"]:
        return bool(CALLED.search(before[-24:])) and not THING.search(before)
    if match["mobile"]:
        return not (match[0].isdigit() and THING.search(before))
    return not match[0].lstrip("+").startswith("1234567")  # of a description


NUMBERS = {"identity": IDENTITY, "card": CARD, "phone": PHONE}
IS_ONE: dict[str, Callable[[re.Match[str], str], bool]] = {
    "identity": _is_identity, "card": _is_card, "phone": _is_phone,
}  # fmt: skip

RUNS = re.sub(rb"[^A-Za-z0-9_-]", b" ", re.sub(rb"[A-Za-z0-9_-]", b"a", bytes(range(256))))
NINES = re.sub(rb"[^9]", b" ", re.sub(rb"[0-9]", b"9", bytes(range(256))))


def _may_hold_keys(text: bytes) -> bool:
    return b"-----BEGIN" in text or any(MARK.search(text, start - 8, end) for start, end in _long_runs(text))


def _long_runs(text: bytes) -> Iterator[tuple[int, int]]:
    """Where many word characters stand in a row and are no name in small letters."""
    runs, end = text.translate(RUNS), 0
    while (start := runs.find(b"a" * LONG, end)) >= 0:
        end = runs.index(b" ", start)  # JSON ends with a bracket
        run = text[start:end]
        if not run.islower() or run.translate(None, b"0123456789") != run:
            yield start, end


def _may_hold_numbers(text: bytes) -> bool:
    return b"9" * 9 in text.translate(NINES, b" ().-")


# a quick look at all of a record's JSON -> how to read its texts one by one; most records end here
LOOKS: tuple[tuple[Callable[[bytes], bool], tuple[Reader, ...]], ...] = (
    (_may_hold_keys, (_keys,)),
    (lambda text: b"@" in text, (_passwords_and_mails,)),
    (_may_hold_numbers, (_numbers,)),
)


def _contents(record: Record) -> Contents:
    return record.messages, record.tools, record.gold, record.meta


def _found(record: Record) -> dict[tuple[str, str], list[str | int]]:
    """Each value by its kind and what its ways of writing have in common -> these ways, in the order of the record."""
    contents = _contents(record)
    text = msgspec.json.encode(contents)
    readers = [reader for may_hold, them in LOOKS if may_hold(text) for reader in them]
    found: dict[tuple[str, str], list[str | int]] = {}
    for key, value in _values(msgspec.to_builtins(contents)) if readers else ():
        for kind, written, same in (spot for reader in readers for spot in reader(str(value), key)):
            found.setdefault((kind, same), []).append(value if isinstance(value, int) else written)
    return found


def _values(value: Any, key: str = "") -> Iterator[tuple[str, str | int]]:
    """Every text and whole number, keys included, with the key it stands under."""
    if isinstance(value, str) or type(value) is int:
        yield key, value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield key, str(name)
            yield from _values(inner, str(name))
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _values(inner, key)


def _masks(found: Mapping[tuple[str, str], Sequence[str | int]], text: str) -> dict[str, str]:
    """Every way a value is written -> its mask, one that the text does not hold yet."""
    counted: Counter[str] = Counter()
    masks: dict[str, str] = {}
    for (kind, _), ways in found.items():
        number = next((str(way) for way in ways if isinstance(way, int)), "")
        mask = ""
        while not mask or mask in text:
            counted[kind] += 1
            mask = f"1{counted[kind]:0{len(number) - 1}}" if number else f"<{kind.upper()}_{counted[kind]}>"
        masks |= {str(way): mask for way in ways}
    return masks


def _masked(value: Any, masks: dict[str, str], pattern: re.Pattern[str]) -> Any:
    if isinstance(value, str):
        return pattern.sub(lambda match: masks[match[0]], value)
    if type(value) is int:
        return int(masks.get(str(value), value))
    if isinstance(value, dict):
        return {_masked(key, masks, pattern): _masked(inner, masks, pattern) for key, inner in value.items()}
    return [_masked(inner, masks, pattern) for inner in value] if isinstance(value, list | tuple) else value
