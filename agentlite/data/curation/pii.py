"""A record -> the keys, passwords, mails, phones, identity numbers and cards its texts hold:
counted, or masked.

Looked for are values that name a person or open a door: addresses of documentation (example.com),
ids, times, sizes and coordinates are none. A digit is an ASCII digit.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from agentlite.core.records import Gold, Message, Record, Tool

# A JSON text inside a text may have an escape right before a value: \n13812345678
START = r"(?:(?<![0-9A-Za-z_\\])|(?<=\\[nrt])|(?<=\\u[0-9A-Fa-f]{4}))"
END = r"(?![0-9A-Za-z_])"
NUMBER_START, NUMBER_END = START + r"(?<![0-9][.])(?<![#+.-])", END + r"(?![.-]?[0-9])(?!@)"
TAIL = 96  # characters before a number that may tell what it is
Contents = tuple[tuple[Message, ...], tuple[Tool, ...], dict[int, Gold], dict[str, Any]]

KEY = re.compile(
    START
    + r"""(?:
      -----BEGIN[ ][A-Z ]*PRIVATE[ ]KEY-----.*?(?:-----END[ ][A-Z ]*PRIVATE[ ]KEY-----|\Z)
    | (?:AKIA|ASIA)[A-Z0-9]{16}                                       # AWS
    | AIza[\w-]{35} | ya29\.[\w-]{20,}                                # Google
    | LTAI[A-Za-z0-9]{16,26} | AKID[A-Za-z0-9]{32}                    # Alibaba, Tencent
    | sk-(?=[\w-]*(?<![A-Za-z0-9])(?=[A-Za-z]*[0-9])(?=[0-9]*[A-Za-z])[A-Za-z0-9]{16})[\w-]{20,}  # OpenAI, ...
    | [srp]k_(?:live|test)_[A-Za-z0-9]{16,}                           # Stripe
    | gh[pousr]_[A-Za-z0-9]{36,} | github_pat_\w{22,} | glpat-[\w-]{20,}
    | xox[abeoprs]-[A-Za-z0-9-]{20,} | SG\.[\w-]{22}\.[\w-]{43}       # Slack, SendGrid
    | hf_[A-Za-z0-9]{30,} | npm_[A-Za-z0-9]{36} | pypi-[\w-]{50,}
    | eyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{10,}                        # JSON web token
    | [Bb]earer[ ]+(?P<token>(?=[\w.~+/-]*[0-9])[\w.~+/-]{20,}=*)
    )"""  # noqa: E501  (verbatim text)
    + END,
    re.VERBOSE | re.DOTALL | re.ASCII,
)
# something of each key above
MARK = re.compile(
    rb"AKI[AD]|ASIA|AIza|LTAI|ya29|sk-|k_live_|k_test_|gh[pousr]_|_pat_|glpat-|xox|SG\.|hf_|npm_|pypi-|eyJ|earer "  # noqa: E501  (verbatim text)
)
PASSWORD = re.compile(
    r"(?<![A-Za-z])[A-Za-z][A-Za-z0-9+.-]{1,20}://[^\s/:@\"'<>]+:(?P<token>[^\s/@\"'<>{}$*]{3,})@"
)
PLACEHOLDER = re.compile(
    r"(?:your?[-_]?)?(?:pass(?:word|wd)?|pwd|secret|token|key|x+|\.+)", re.IGNORECASE
)
LATIN = "A-Za-z0-9À-ÖØ-öø-ɏ"
MAIL_END = f"(?![{LATIN}-])"  # an underscore is a mark around it
MAIL = re.compile(  # b'ann@mail.org' is a text of Python
    rf"(?:(?<![{LATIN}._%+\\-])|(?<=\\[nrt]))(?!\.|[bfru]')"
    rf"[{LATIN}._%+-]{{1,64}}+(?:'[{LATIN}._%+-]{{1,64}}+){{0,2}}"
    rf"@(?P<domain>(?:[{LATIN}](?:[{LATIN}-]*[{LATIN}])?\.)+[A-Za-z]{{2,24}})" + MAIL_END
)
NOBODY = re.compile(
    r"(?:.*\.)?(?:example|test|invalid|localhost|(?:your|my)?domain)(?:\.(?:com|org|net|edu|cn))?",
    re.IGNORECASE,
)
# of a house's own net, or a version; 163.com and its like are true
PRIVATE = re.compile(
    r".*\.(?:lan|local|internal|home)|(?:.*\.)?[0-9]+\.(?!(?:com|net|org|cn)$)[a-z]+", re.IGNORECASE
)
FILE = re.compile(r".*\.(?:png|jpe?g|gif|svg|webp|py|js|ts|json|css|html?|md|txt)", re.IGNORECASE)
IDENTITY = re.compile(
    NUMBER_START + r"[1-8][0-9]{5} ?(?P<born>(?:19|20)[0-9]{6}) ?[0-9]{3}[0-9Xx]" + NUMBER_END
)
CARD = re.compile(
    NUMBER_START + r"(?:[0-9]{13,19}|[0-9]{4}([ -])[0-9]{4}\1[0-9]{4}\1[0-9]{4}(?:\1[0-9]{3})?"
    r"|3[0-9]{3}([ -])[0-9]{6}\2[0-9]{4,5})" + NUMBER_END
)
ISSUER = re.compile(
    r"4(?:.{12}|.{15}|.{18})|(?:5[1-5].{2}|222[1-9]|22[3-9].|2[3-6].{2}|27[01].|2720).{12}|3[47].{13}"
    r"|(?:6011|65.{2}|64[4-9].).{12}|35.{14}|62.{14,17}|3(?:0[0-5]|6.|8.).{11}"
)
COUNTRY = (
    "(?:[17]|2[07]|2[1-689][0-9]|3[0-469]|3[578][0-9]|4[0-13-9]|42[0-9]|5[1-8]|5[09][0-9]|6[0-6]"
    "|6[7-9][0-9]|8[1246]|8[035789][0-9]|9[0-58]|9[679][0-9])"
)
BETWEEN = r"(?:[./-]|[ ](?![0-9]{1,2}:[0-9]|[0-9]{4}-[0-9]{2}-[0-9]))?"  # no time or date follows
# Of at most 15 digits (E.164), up to the last group that fits: a mask must leave no digit behind.
INTERNATIONAL = rf"""(?>(?:
      \+[17]{BETWEEN}(?:\([0-9]{{3}}\)|[0-9]{{3}})(?:{BETWEEN}[0-9]){{7}}(?![./-]?[0-9])  # American, Russian
    | \(?\+{COUNTRY}\)?{BETWEEN}\([0-9]{{1,5}}\)(?:{BETWEEN}[0-9]){{4,10}}
    | \(\+{COUNTRY}\)(?:{BETWEEN}[0-9]){{6,12}}
    | \+(?![0-9]+[.][0-9]+(?:[ /][0-9]+[.][0-9]+)?(?![ ./-]?[0-9]))                    # decimals
      (?={COUNTRY}(?:[ ./-][0-9]{{1,3}})?[ ./-][0-9]{{4}}|[0-9](?:[ ./-]?[0-9]){{8}})
      (?={COUNTRY})[0-9](?:{BETWEEN}[0-9]){{6,14}}
    )(?![0-9]))"""  # noqa: E501  (verbatim text)
PHONE = re.compile(
    NUMBER_START
    + r"""(?:
      (?P<mobile>(?:\+?86[ -]?|0086[ -]?)?1[3-9][0-9]([ -]?)[0-9]{4}\2[0-9]{4})          # Chinese
    | \(?0(?:10|2[0-9]|[3-9][0-9]{2})\)?[ -]?(?<=[ )-])[2-9][0-9]{6,7}  # Chinese, with its city
    | """
    + INTERNATIONAL
    + r"""
    | (?:1[ .-])?(?:\([2-9][0-9]{2}\)[ ]?|[2-9][0-9]{2}[.-])[2-9][0-9]{2}[.-][0-9]{4}    # American
    | (?P<bare>(?:1[ ]?)?[2-9][0-9]{2}[ ]?[2-9][0-9]{2}[ ]?[0-9]{4})
    )"""
    + NUMBER_END,
    re.VERBOSE,
)
# also as an ordinary number, which is one only if it is also written as a phone elsewhere
PHONE_OR_DIGITS = re.compile(f"{PHONE.pattern}|{NUMBER_START}[0-9]{{9,15}}{NUMBER_END}", re.VERBOSE)
DIGITS_NEAR = re.compile(r"[0-9][0-9 ()./-]{7,}[0-9]|\+[0-9]")
CALLED = re.compile(
    r"phone|mobile|whatsapp|contact|(?<![A-Za-z])(?:cell|tel|fax|call|dial|text|sms|reach)|手机|电话|号码|联系|拨打|致电",
    re.IGNORECASE,
)
CHINESE = r"(?:[\u4e00-\u9fff]|\\u[4-9][0-9A-Fa-f]{3})"
AFTER_CHINESE = re.compile(CHINESE + "[ :：，、；（(“]{0,2}$")
BEFORE_CHINESE = re.compile("[ ，。、；）)”]{0,2}" + CHINESE)
# what stands right after an amount
COUNTED = re.compile(" ?(?:[美欧日]?元|字节|毫?秒|吨|米|公里|除以|乘以|加上|减去|转换)")
MASK = re.compile("<?[A-Z]+_[0-9]+>")  # its beginning may be cut off
NUMBER_MASKS = ("<IDENTITY", "<CARD", "<PHONE")
PAID = re.compile(r"card|visa|amex|credit|debit|unionpay|卡号|银行卡|信用卡|储蓄卡", re.IGNORECASE)
# what stands last before a number that counts or names a thing
THING = re.compile(
    r"(?:(?:^|[^A-Za-z])(?:[Ii]d|[Nn]o|[Ss]ku|[Ii]sbn|[Uu]pc|[Ee]an|[Tt]ime(?:stamp)?|[Cc]ode|[Oo]rder|[Ss]erial|[Bb]arcode"
    r"|[Tt]racking|[Ii]nvoice|[Tt]icket|[Pp]rice|[Aa]mount|[Pp]opulation|[Ss]ize|[Bb]ytes"
    r"|(?:[Tt]he|[Aa]|[Ff]unction|[Tt]ool) call)s?|[a-z](?:Id|Code|Time|No)s?|ID|SKU"
    r"|编号|单号|订单|编码|货号|流水号?|条码|金额|价格|时间戳)(?: ?(?:number|is|was|号|为|是))?$"
)


class Spot(NamedTuple):
    """A value in a text: what it is, as it is written, and what other ways to write the same have
    in common.
    """

    kind: str
    written: str
    same: str


Reader = Callable[
    [str, str], Iterator[Spot]
]  # a text and the key it stands under -> what it holds of a kind


def find(record: Record) -> Counter[str]:
    """How many different values of each kind a record holds; empty for most."""
    return Counter(kind for kind, _ in _found(record))


def mask(record: Record) -> tuple[Record, Counter[str]]:
    """The record with a mask for every value, and how many there were of each kind.

    A value has one mask wherever it stands, however it is written: `<PHONE_1>`, and 0 where it is a
    number. What is masked is a variant: it has the id of what was read as its `parent`.
    """
    counts: Counter[str] = Counter()
    while spots := _found(
        record
    ):  # again: masks are short, so that a word may come near another number
        changed = _with_masks(record, spots)
        counts.update(kind for kind, _ in spots)
        if _contents(changed) == _contents(record):
            break
        record = changed
    return record, counts


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
        of_nobody = any(pattern.fullmatch(match["domain"]) for pattern in (NOBODY, PRIVATE, FILE))
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
            before = MASK.sub("", f"{key} {text[: match.start()]}"[-TAIL:])
            before = re.sub(r"[^A-Za-z\u4e00-\u9fff]+$", "", before)
            if free and IS_ONE[kind](match, before):
                taken.append(match.span())
                yield Spot(kind, match[0], _same(kind, match[0]))


def _same(kind: str, written: str) -> str:
    digits = re.sub(r"\(0\)|[^0-9Xx]", "", written).upper()
    return digits[-10:] if kind == "phone" else digits


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
    """By its sum, and by its issuer, its blanks or the words before it: a tenth of all numbers have
    a right sum.
    """
    digits = re.sub(r"[ -]", "", match[0])
    if not _adds_up(digits):
        return False
    if PAID.search(before[-24:]):
        return True
    return not THING.search(before) and bool(
        ISSUER.fullmatch(digits) or (digits != match[0] and digits[0] in "3456")
    )


def _adds_up(digits: str) -> bool:
    """By Luhn's sum."""
    doubled = sum(sum(divmod(2 * int(digit), 10)) for digit in digits[-2::-2])
    return (doubled + sum(map(int, digits[-1::-2]))) % 10 == 0


def _is_phone(match: re.Match[str], before: str) -> bool:
    """Bare digits are a phone by what is said around them; round numbers and those of descriptions
    are none.
    """
    digits = re.sub(r"[^0-9]", "", match[0])
    if digits.endswith("00000"):
        return False
    if match["bare"] or (match["mobile"] and match[0].isdigit()):
        return _is_labelled_as_phone(match, before) and not THING.search(before)
    return bool(match["mobile"]) or not digits.startswith("1234567")


def _is_labelled_as_phone(match: re.Match[str], before: str) -> bool:
    """A word before it says so, or it is a Chinese mobile in Chinese words (or with all of its
    prefix).
    """
    if CALLED.search(before[-24:]) or match[0].startswith("0086"):
        return True
    text, start, end = match.string, *match.span()
    in_chinese = AFTER_CHINESE.search(text[max(0, start - 8) : start]) or BEFORE_CHINESE.match(
        text, end
    )
    return bool(match["mobile"] and in_chinese) and not COUNTED.match(text, end)


NUMBERS = {"identity": IDENTITY, "card": CARD, "phone": PHONE}
IS_ONE: dict[str, Callable[[re.Match[str], str], bool]] = {
    "identity": _is_identity,
    "card": _is_card,
    "phone": _is_phone,
}

NINES = re.sub(rb"[^9]", b" ", re.sub(rb"[0-9]", b"9", bytes(range(256))))


def _may_hold_keys(text: bytes) -> bool:
    return b"-----BEGIN" in text or MARK.search(text) is not None


def _may_hold_numbers(text: bytes) -> bool:
    return b"+" in text or b"9" * 9 in text.translate(NINES, b" ().-")


# a quick look at all of a record's JSON -> how to read its texts one by one; most records end here
LOOKS: tuple[tuple[Callable[[bytes], bool], tuple[Reader, ...]], ...] = (
    (_may_hold_keys, (_keys,)),
    (lambda text: b"@" in text, (_passwords_and_mails,)),
    (_may_hold_numbers, (_numbers,)),
)


def _contents(record: Record) -> Contents:
    return record.messages, record.tools, record.gold, record.meta


def _found(record: Record) -> dict[tuple[str, str], list[str]]:
    """Each value by its kind and what its ways of writing have in common -> these ways, in the
    order of the record.
    """
    contents = _contents(record)
    text = msgspec.json.encode(contents)
    readers = [reader for may_hold, them in LOOKS if may_hold(text) for reader in them]
    found: dict[tuple[str, str], list[str]] = {}
    for key, value in _values(msgspec.to_builtins(contents)) if readers else ():
        for kind, written, same in (spot for reader in readers for spot in reader(value, key)):
            found.setdefault((kind, same), []).append(written)
    return found


def _with_masks(record: Record, found: dict[tuple[str, str], list[str]]) -> Record:
    contents = msgspec.to_builtins(_contents(record))
    values = [value for _, value in _values(contents)]
    masks = _masks(_with_other_spellings(found, values), " ".join(values))
    messages, tools, gold, meta = msgspec.convert(_masked(contents, masks), Contents)
    return replace(
        record,
        messages=messages,
        tools=tools,
        gold=gold,
        meta=meta,
        parent=record.parent or record.id,
    )


def _with_other_spellings(
    found: dict[tuple[str, str], list[str]], values: Sequence[str]
) -> dict[tuple[str, str], list[str]]:
    """Also where nothing around a number says what it is: it was said elsewhere."""
    spellings = {one: list(written) for one, written in found.items()}
    for kind, pattern in (NUMBERS | {"phone": PHONE_OR_DIGITS}).items():
        for value in values if any(kind == other for other, _ in found) else ():
            for match in pattern.finditer(value):
                spellings.get((kind, _same(kind, match[0])), []).append(match[0])
    return spellings


def _values(value: object, key: str = "") -> Iterator[tuple[str, str]]:
    """Every text and whole number, keys included, with the key it stands under."""
    if isinstance(value, str) or type(value) is int:
        yield key, str(value)
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield key, str(name)
            yield from _values(inner, str(name))
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _values(inner, key)


def _masks(found: Mapping[tuple[str, str], Sequence[str]], text: str) -> dict[str, str]:
    """Every way a value is written -> its mask, one that the text does not hold yet."""
    counted: Counter[str] = Counter()
    masks: dict[str, str] = {}
    for (kind, _), spellings in found.items():
        mask = ""
        while not mask or mask in text:
            counted[kind] += 1
            mask = f"<{kind.upper()}_{counted[kind]}>"
        masks |= dict.fromkeys(spellings, mask)
    return masks


def _masked(contents: object, masks: Mapping[str, str]) -> object:
    spellings = sorted(masks, key=len, reverse=True)
    ended = (re.escape(one) + (MAIL_END if "@" in one else END) for one in spellings)
    pattern = re.compile(f"{START}(?:{'|'.join(ended)})")

    def masked(value: object) -> object:
        if isinstance(value, str):
            return pattern.sub(lambda match: masks[match[0]], value)
        if type(value) is int:
            # 0, so that it stays a number; a password's digits may be a number of its own
            return 0 if masks.get(str(value), "").startswith(NUMBER_MASKS) else value
        if isinstance(value, dict):
            return {masked(key): masked(inner) for key, inner in value.items()}
        return [masked(inner) for inner in value] if isinstance(value, list | tuple) else value

    return masked(contents)
