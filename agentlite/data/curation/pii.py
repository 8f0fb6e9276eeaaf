"""A record -> the keys, passwords, mails, phones, identity numbers, cards, IBANs and addresses of
the Internet (IPv4) its texts hold: counted, or masked.

Looked for are values that name a person or open a door: addresses of documentation (example.com),
ids, times, sizes and coordinates are none. Names, streets, birthdays, passports and other numbers
are not looked for. Full-width digits count as digits.
"""

import ipaddress
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from itertools import chain
from typing import Any

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
    | gsk_[A-Za-z0-9]{40,} | xai-[A-Za-z0-9]{40,} | r8_[A-Za-z0-9]{30,} | do[opr]_v1_[a-f0-9]{64}
    | hf_[A-Za-z0-9]{30,} | npm_[A-Za-z0-9]{36} | pypi-[\w-]{50,}
    | eyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{10,}                        # JSON web token
    | [Bb]earer[ ]+(?P<token>(?=[\w.~+/-]*[0-9])[\w.~+/-]{20,}=*)
    )"""  # noqa: E501  (verbatim text)
    + END,
    re.VERBOSE | re.DOTALL | re.ASCII,
)
SENT = re.compile(
    r"(?:[?&][\w-]*(?:token|key|secret|signature)=|Basic[ ]+)"
    r"(?P<token>(?=[\w.~+/%-]*[0-9])[\w.~+/%-]{12,}=*)" + END,
    re.ASCII | re.IGNORECASE,
)
PASSWORD = re.compile(
    r"(?<![A-Za-z])[A-Za-z][A-Za-z0-9+.-]{1,20}://[^\s/:@\"'<>]+:(?P<token>[^\s/@\"'<>{}$*]{3,})@"
)
SAID = re.compile(  # it has a digit and a letter, as no other word behind it has
    r"(?:pass(?:word|wd|code)|pwd|密码|口令)"
    r"(?:[\"']?[ ]*[:：=][ ]*[\"']?|[ ]+(?:is|was)[ ]+|[是为])"
    r"(?P<token>(?=[^\s\"'<>]*[0-9])(?=[^\s\"'<>]*[A-Za-z])[^\s\"'<>(){}$,;，。；\\]{5,}[^\s\"'<>(){}$,;，。；.!?\\])",
    re.IGNORECASE,
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
    NUMBER_START + r"(?:[0-9]{13,19}|[0-9]{4}([ .-])[0-9]{4}\1[0-9]{4}\1[0-9]{4}(?:\1[0-9]{3})?"
    r"|3[0-9]{3}([ -])[0-9]{6}\2[0-9]{4,5})" + NUMBER_END
)
GROUPED = r"[ ](?=[A-Z]{0,3}[0-9])"  # a group of an IBAN, and no word in capitals
IBAN = re.compile(
    START + r"[A-Z]{2}[0-9]{2}[ ]?[A-Z0-9]{4}"
    rf"(?:(?:{GROUPED})?[A-Z0-9]{{4}}){{1,6}}(?:(?:{GROUPED})?[A-Z0-9]{{1,3}})?" + END
)
IP = re.compile(NUMBER_START + r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}" + NUMBER_END)
VERSION = re.compile(r"(?:^|[^A-Za-z])(?:v|version|release|section|build|firmware)$", re.IGNORECASE)
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
    | (?P<national>\(?0[1-9](?:[ ./()-]{0,2}[0-9]){7,10})
    | (?P<bare>(?:1[ ]?)?[2-9][0-9]{2}[ ]?[2-9][0-9]{2}[ ]?[0-9]{4})
    )"""
    + NUMBER_END,
    re.VERBOSE,
)
# also as an ordinary number, which is one only if it is also written as a phone elsewhere
PHONE_OR_DIGITS = re.compile(f"{PHONE.pattern}|{NUMBER_START}[0-9]{{9,15}}{NUMBER_END}", re.VERBOSE)
DIGITS_NEAR = re.compile(r"[0-9][0-9 ()./-]{7,}[0-9]|\+[0-9]")
CALLED = re.compile(
    r"phone|mobile|whatsapp|contact|telefon|numéro|(?<![A-Za-z])(?:cell|tel|fax|call|dial|text|sms|reach"
    r"|ring|handy|my number)|手机|电话|電話|携帯|号码|联系|拨打|致电",
    re.IGNORECASE,
)
CHINESE = r"(?:[\u4e00-\u9fff]|\\u[4-9][0-9A-Fa-f]{3})"
AFTER_CHINESE = re.compile(CHINESE + "[ :：，、；（(“]{0,2}$")
BEFORE_CHINESE = re.compile("[ ，。、；）)”]{0,2}" + CHINESE)
# what stands right after an amount
COUNTED = re.compile(" ?(?:[美欧日]?元|字节|毫?秒|吨|米|公里|除以|乘以|加上|减去|转换)")
MASK = re.compile("<?[A-Z]+_[0-9]+>")  # its beginning may be cut off
NARROW = {**{0xFF10 + digit: str(digit) for digit in range(10)}, ord("＠"): "@", ord("＋"): "+"}
NUMBER_MASKS = ("<IDENTITY", "<CARD", "<PHONE")
PAID = re.compile(r"card|visa|amex|credit|debit|unionpay|卡号|银行卡|信用卡|储蓄卡", re.IGNORECASE)
# what stands last before a number that counts or names a thing
THING = re.compile(
    r"(?:(?:^|[^A-Za-z])(?:[Ii]d|[Nn]o|[Ss]ku|[Ii]sbn|[Uu]pc|[Ee]an|[Tt]ime(?:stamp)?|[Cc]ode|[Oo]rder|[Ss]erial|[Bb]arcode"
    r"|[Tt]racking|[Ii]nvoice|[Tt]icket|[Pp]rice|[Aa]mount|[Pp]opulation|[Ss]ize|[Bb]ytes"
    r"|(?:[Tt]he|[Aa]|[Ff]unction|[Tt]ool) call)s?|[a-z](?:Id|Code|Time|No)s?|ID|SKU"
    r"|编号|单号|订单|编码|货号|流水号?|条码|金额|价格|时间戳)(?: ?(?:number|is|was|号|为|是))?$"
)


NUMBERS = {"iban": IBAN, "ip": IP, "identity": IDENTITY, "card": CARD, "phone": PHONE}
Values = dict[tuple[str, str], list[str]]  # kind and normal form -> how the value is written


def find(record: Record) -> Counter[str]:
    """How many different values of each kind a record holds; empty for most."""
    return Counter(kind for kind, _ in _values(_contents(record)))


def mask(record: Record) -> tuple[Record, Counter[str]]:
    """The record with a mask for every value, and how many there were of each kind.

    A value has one mask wherever it stands, however it is written: `<PHONE_1>`, and 0 where it is a
    number. What is masked is a variant: it has the id of what was read as its `parent`.
    """
    counts: Counter[str] = Counter()
    # again, since masks are short: a word may have come near another number
    while values := _values(contents := _contents(record)):
        counts.update(kind for kind, _ in values)
        plain = msgspec.to_builtins(contents)
        masked = msgspec.convert(_mask(plain, _masks(values, plain)), Contents)
        if masked == contents:
            break
        changed = dict(zip(("messages", "tools", "gold", "meta"), masked, strict=True))
        record = replace(record, **changed, parent=record.parent or record.id)
    return record, counts


def _contents(record: Record) -> Contents:
    return record.messages, record.tools, record.gold, record.meta


def _values(contents: Contents) -> Values:
    """The values in the order in which they stand in the record."""
    values: Values = {}
    for key, text in texts_of(msgspec.to_builtins(contents)):
        for kind, written in _values_in(text, key):
            values.setdefault((kind, _normal(kind, written)), []).append(written)
    return values


def texts_of(value: object, key: str = "") -> Iterator[tuple[str, str]]:
    """Every text and whole number, keys included, with the key it stands under."""
    if isinstance(value, str) or type(value) is int:
        yield key, str(value)
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield key, str(name)
            yield from texts_of(inner, str(name))
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from texts_of(inner, key)


def _normal(kind: str, written: str) -> str:
    """What all ways to write a value have in common."""
    written = written.translate(NARROW)
    if kind in ("iban", "ip") or kind not in NUMBERS:
        return written.lower() if kind == "mail" else written.replace(" ", "")
    digits = re.sub(r"\(0\)|[^0-9Xx]", "", written).upper()
    return digits[-10:] if kind == "phone" else digits


def _values_in(text: str, key: str) -> Iterator[tuple[str, str]]:
    """The kind of each value in a text that stands under a key, and the value as it is written."""
    # character by character: the places are the same
    wide, text = text, text if text.isascii() else text.translate(NARROW)
    for match in chain(KEY.finditer(text), SENT.finditer(text)):
        written = match["token"] or match[0]
        if not written.endswith("EXAMPLE"):
            yield "key", written
    for match in SAID.finditer(text):
        yield "password", wide[match.start("token") : match.end("token")]
    if "@" in text:
        for match in PASSWORD.finditer(text):
            if not PLACEHOLDER.fullmatch(match["token"]):
                yield "password", match["token"]
        for match in MAIL.finditer(PASSWORD.sub(" ", text)):
            is_nobodys = any(one.fullmatch(match["domain"]) for one in (NOBODY, PRIVATE, FILE))
            if not is_nobodys and not match[0].startswith("git@"):
                yield "mail", wide[match.start() : match.end()]
    if DIGITS_NEAR.search(text):
        taken: list[tuple[int, int]] = []  # each number is of one kind
        for kind, pattern in NUMBERS.items():
            for match in pattern.finditer(text):
                is_free = all(match.end() <= start or end <= match.start() for start, end in taken)
                before = MASK.sub("", f"{key} {text[: match.start()]}"[-TAIL:])
                before = re.sub(r"[^A-Za-z\u4e00-\u9fff]+$", "", before)
                if is_free and IS_ONE[kind](match, before):
                    taken.append(match.span())
                    yield kind, wide[match.start() : match.end()]


def _is_iban(match: re.Match[str], before: str) -> bool:
    """By its checksum (ISO 7064, mod 97)."""
    written = match[0].replace(" ", "")
    digits = "".join(str(int(sign, 36)) for sign in written[4:] + written[:4])
    return len(written) >= 15 and int(digits) % 97 == 1


def _is_ip(match: re.Match[str], before: str) -> bool:
    """One that anybody can reach, and no version, whose numbers are small."""
    numbers = [*map(int, match[0].split("."))]
    is_address = max(numbers) <= 255 and all(part == str(int(part)) for part in match[0].split("."))
    if not is_address or max(numbers) < 100 or VERSION.search(before):
        return False
    return ipaddress.IPv4Address(match[0]).is_global


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
    """By its sum (Luhn's), and by its issuer, its blanks or the words before it: a tenth of all
    numbers have a right sum.
    """
    digits = re.sub(r"[ .-]", "", match[0])
    doubled = sum(sum(divmod(2 * int(digit), 10)) for digit in digits[-2::-2])
    if (doubled + sum(map(int, digits[-1::-2]))) % 10:
        return False
    if PAID.search(before[-24:]):
        return True
    is_grouped = digits != match[0] and digits[0] in "3456"
    return not THING.search(before) and bool(ISSUER.fullmatch(digits) or is_grouped)


def _is_phone(match: re.Match[str], before: str) -> bool:
    """Bare digits are a phone by a word before them, or as a Chinese mobile in Chinese words (or
    with all of its prefix); round numbers and those of descriptions are none.
    """
    digits = re.sub(r"[^0-9]", "", match[0])
    if digits.endswith("00000"):
        return False
    if not (match["bare"] or match["national"]) and not (match["mobile"] and match[0].isdigit()):
        return bool(match["mobile"]) or not digits.startswith("1234567")
    if THING.search(before):
        return False
    if CALLED.search(before[-24:]) or digits.startswith("0086"):
        return True
    text, start, end = match.string, *match.span()
    in_chinese = AFTER_CHINESE.search(text[max(0, start - 8) : start]) or BEFORE_CHINESE.match(
        text, end
    )
    return bool(match["mobile"] and in_chinese) and not COUNTED.match(text, end)


IS_ONE: dict[str, Callable[[re.Match[str], str], bool]] = {
    "iban": _is_iban,
    "ip": _is_ip,
    "identity": _is_identity,
    "card": _is_card,
    "phone": _is_phone,
}


def _masks(values: Values, contents: object) -> dict[str, str]:
    """Every way a value is written -> its mask, one that no text holds yet."""
    texts = [text for _, text in texts_of(contents)]
    spellings = {value: list(written) for value, written in values.items()}
    # also where nothing around a number says what it is: it was said elsewhere
    for kind, pattern in (NUMBERS | {"phone": PHONE_OR_DIGITS}).items():
        for text in texts if any(kind == other for other, _ in values) else ():
            for match in pattern.finditer(text.translate(NARROW)):
                spelt = text[match.start() : match.end()]
                spellings.get((kind, _normal(kind, spelt)), []).append(spelt)
    known, counts = " ".join(texts), Counter[str]()
    masks: dict[str, str] = {}
    for (kind, _), written in spellings.items():
        mask = ""
        while not mask or mask in known:
            counts[kind] += 1
            mask = f"<{kind.upper()}_{counts[kind]}>"
        masks |= dict.fromkeys(written, mask)
    return masks


def _mask(contents: object, masks: Mapping[str, str]) -> object:
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
