"""A record -> the keys, passwords, mails, phones, identity numbers, cards, IBANs and addresses of
the Internet (IPv4) its texts hold: counted, or masked.

Looked for are values that name a person or open a door: addresses of documentation (example.com),
ids, times, sizes and coordinates are none. Names, streets, birthdays, passports and other numbers
are not looked for. Full-width digits count as digits.
"""

import ipaddress
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from typing import Any

import msgspec
from msgspec.structs import replace

from agentlite.core.records import Gold, Message, Record, Tool

# A JSON text inside a text may have an escape right before a value: \n13812345678
START = r"(?:(?<![0-9A-Za-z_\\])|(?<=\\[nrt])|(?<=\\u[0-9A-Fa-f]{4}))"
END = r"(?![0-9A-Za-z_])"
# no number begins behind a decimal point, #, +, . or -: neither "3.13812345678" nor "#13812345678"
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
    # somewhere in it a run of 16 holds a letter and a digit: "sk-some-long-name" is a name
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
KEY_IN_REQUEST = re.compile(
    r"(?:[?&][\w-]*(?:token|key|secret|signature)=|Basic[ ]+)"
    r"(?P<token>(?=[\w.~+/%-]*[0-9])[\w.~+/%-]{12,}=*)" + END,
    re.ASCII | re.IGNORECASE,
)
PASSWORD_IN_URL = re.compile(
    r"(?<![A-Za-z])[A-Za-z][A-Za-z0-9+.-]{1,20}://[^\s/:@\"'<>]+:(?P<token>[^\s/@\"'<>{}$*]{3,})@"
)
PASSWORD_IN_WORDS = re.compile(  # it has a digit and a letter, as no other word behind it has
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
NO_ADDRESS = re.compile(  # of nobody; of a house's own net, or a version; of a file
    r"(?:.*\.)?(?:example|test|invalid|localhost|(?:your|my)?domain)(?:\.(?:com|org|net|edu|cn))?"
    r"|.*\.(?:lan|local|internal|home)|(?:.*\.)?[0-9]+\.(?!(?:com|net|org|cn)$)[a-z]+"
    r"|.*\.(?:png|jpe?g|gif|svg|webp|py|js|ts|json|css|html?|md|txt)",
    re.IGNORECASE,
)
IN_URL = re.compile(r"://[^\s/?@]+:$")  # a password, and no mail, follows
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
# by issuer, the digits of its cards: Visa 13, 16 or 19, Mastercard 16, American Express 15,
# Discover and JCB 16, UnionPay 16 to 19, Diners 14
ISSUER = re.compile(
    r"4(?:.{12}|.{15}|.{18})|(?:5[1-5].{2}|222[1-9]|22[3-9].|2[3-6].{2}|27[01].|2720).{12}|3[47].{13}"
    r"|(?:6011|65.{2}|64[4-9].).{12}|35.{14}|62.{14,17}|3(?:0[0-5]|6.|8.).{11}"
)
# the calling codes of all countries (E.164): 1, 7, 20, 211, ...
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
PHONE_WORD = re.compile(
    r"phone|mobile|whatsapp|contact|telefon|numéro|(?<![A-Za-z])(?:cell|tel|fax|call|dial|text|sms|reach"
    r"|ring|handy|my number)|手机|电话|電話|携帯|号码|联系|拨打|致电",
    re.IGNORECASE,
)
CHINESE = r"(?:[\u4e00-\u9fff]|\\u[4-9][0-9A-Fa-f]{3})"
AFTER_CHINESE = re.compile(CHINESE + "[ :：，、；（(“]{0,2}$")
BEFORE_CHINESE = re.compile("[ ，。、；）)”]{0,2}" + CHINESE)
# what stands right after an amount
UNIT = re.compile(" ?(?:[美欧日]?元|字节|毫?秒|吨|米|公里|除以|乘以|加上|减去|转换)")
MASK = re.compile("<?[A-Z]+_[0-9]+>")  # its beginning may be cut off
NARROW = {**{0xFF10 + digit: str(digit) for digit in range(10)}, ord("＠"): "@", ord("＋"): "+"}
NUMBER_MASKS = ("<IDENTITY", "<CARD", "<PHONE")
CARD_WORD = re.compile(r"card|visa|amex|credit|debit|unionpay|卡号|银行卡|信用卡|储蓄卡", re.I)
# what stands last before a number that counts or names a thing
NUMBER_LABEL = re.compile(
    r"(?:(?:^|[^A-Za-z])(?:[Ii]d|[Nn]o|[Ss]ku|[Ii]sbn|[Uu]pc|[Ee]an|[Tt]ime(?:stamp)?|[Cc]ode|[Oo]rder|[Ss]erial|[Bb]arcode"
    r"|[Tt]racking|[Ii]nvoice|[Tt]icket|[Pp]rice|[Aa]mount|[Pp]opulation|[Ss]ize|[Bb]ytes"
    r"|(?:[Tt]he|[Aa]|[Ff]unction|[Tt]ool) call)s?|[a-z](?:Id|Code|Time|No)s?|ID|SKU"
    r"|编号|单号|订单|编码|货号|流水号?|条码|金额|价格|时间戳)(?: ?(?:number|is|was|号|为|是))?$"
)


Value = tuple[str, str]  # kind and normal form


def find_personal(record: Record) -> Counter[str]:
    """How many different values of each kind a record holds; empty for most."""
    return Counter(kind for kind, _ in dict.fromkeys(_values(_contents(record)).values()))


def mask_personal(record: Record) -> tuple[Record, Counter[str]]:
    """The record with a mask for every value, and how many there were of each kind.

    A value has one mask wherever it stands, however it is written: `<PHONE_1>`, and 0 where it is a
    number. What is masked is a variant: it has the id of what was read as its `parent`.
    """
    counts: Counter[str] = Counter()
    # again, since masks are short: a word may have come near another number
    while values := _values(contents := _contents(record)):
        counts.update(kind for kind, _ in dict.fromkeys(values.values()))
        masked = _replace_values(contents, _masks(values, [text for _, text in texts_of(contents)]))
        if masked == contents:
            break
        messages, tools, gold, meta = msgspec.convert(masked, Contents)
        parent = record.parent or record.id
        record = replace(
            record, messages=messages, tools=tools, gold=gold, meta=meta, parent=parent
        )
    return record, counts


def _contents(record: Record) -> object:
    return msgspec.to_builtins((record.messages, record.tools, record.gold, record.meta))


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


def _values(contents: object) -> dict[str, Value]:
    """By how a value is written its kind and normal form, in the order of the record."""
    values: dict[str, Value] = {}
    for key, text in texts_of(contents):
        # character by character: the positions are the same
        narrow = text if text.isascii() else text.translate(NARROW)
        has_digits = DIGITS_NEAR.search(narrow)
        spans: list[tuple[int, int]] = []  # each piece is of one kind
        for kind, pattern, is_value in KINDS:
            for match in pattern.finditer(narrow) if has_digits or kind not in NUMBERS else ():
                # of "Bearer abc..." the token alone is masked
                start, end = match.span("token" if match.groupdict().get("token") else 0)
                is_free = all(end <= first or last <= start for first, last in spans)
                before = MASK.sub("", f"{key} {narrow[:start]}"[-TAIL:])
                before = re.sub(r"[^A-Za-z\u4e00-\u9fff]+$", "", before)
                if is_free and is_value(match, before):
                    spans.append((start, end))
                    values.setdefault(text[start:end], (kind, _normalize(kind, narrow[start:end])))
    return values


def _normalize(kind: str, written: str) -> str:
    """What all ways to write a value have in common."""
    if kind in ("iban", "ip") or kind not in NUMBERS:
        return written.lower() if kind == "mail" else written.replace(" ", "")
    # a (0) is dialled at home only: "+44 (0)20 7946 0958" is 442079460958
    digits = re.sub(r"\(0\)|[^0-9Xx]", "", written).upper()
    # the same with its country as without: +86 138 1234 5678 and 13812345678 are 3812345678
    return digits[-10:] if kind == "phone" else digits


def _is_mail(match: re.Match[str], before: str) -> bool:
    """Whether it is neither of a machine nor the password of a URL."""
    is_in_url = IN_URL.search(match.string, 0, match.start())
    return not (is_in_url or NO_ADDRESS.fullmatch(match["domain"]) or match[0].startswith("git@"))


def _is_iban(match: re.Match[str], before: str) -> bool:
    """By its checksum (ISO 7064, mod 97)."""
    written = match[0].replace(" ", "")
    # country and check digits go to the end, and a letter counts as 10 to 35
    digits = "".join(str(int(sign, 36)) for sign in written[4:] + written[:4])
    return len(written) >= 15 and int(digits) % 97 == 1


def _is_ip(match: re.Match[str], before: str) -> bool:
    """One that anybody can reach, and no version, whose numbers are small."""
    octets = match[0].split(".")
    numbers = [*map(int, octets)]
    is_address = max(numbers) <= 255 and octets == [*map(str, numbers)]
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
    total = sum(int(digit) * 2 ** (17 - position) for position, digit in enumerate(digits[:17]))
    return "10X98765432"[total % 11] == digits[17].upper()


def _is_card(match: re.Match[str], before: str) -> bool:
    """By its sum (Luhn's), and by its issuer, its blanks or the words before it: a tenth of all
    numbers have a right sum.
    """
    digits = re.sub(r"[ .-]", "", match[0])
    doubled = sum(sum(divmod(2 * int(digit), 10)) for digit in digits[-2::-2])
    if (doubled + sum(map(int, digits[-1::-2]))) % 10:
        return False
    if CARD_WORD.search(before[-24:]):
        return True
    is_grouped = digits != match[0] and digits[0] in "3456"
    return not NUMBER_LABEL.search(before) and bool(ISSUER.fullmatch(digits) or is_grouped)


def _is_phone(match: re.Match[str], before: str) -> bool:
    """Bare digits are a phone by a word before them, or as a Chinese mobile in Chinese words (or
    with all of its prefix); round numbers and those of descriptions are none.
    """
    digits = re.sub(r"[^0-9]", "", match[0])
    if digits.endswith("00000"):
        return False
    if not (match["bare"] or match["national"]) and not (match["mobile"] and match[0].isdigit()):
        return bool(match["mobile"]) or not digits.startswith("1234567")
    if NUMBER_LABEL.search(before):
        return False
    if PHONE_WORD.search(before[-24:]) or digits.startswith("0086"):
        return True
    text, start, end = match.string, *match.span()
    in_chinese = AFTER_CHINESE.search(text[max(0, start - 8) : start]) or BEFORE_CHINESE.match(
        text, end
    )
    return bool(match["mobile"] and in_chinese) and not UNIT.match(text, end)


KINDS: tuple[tuple[str, re.Pattern[str], Callable[[re.Match[str], str], bool]], ...] = (
    ("key", KEY, lambda match, _: not match[0].endswith("EXAMPLE")),
    ("key", KEY_IN_REQUEST, lambda match, _: not match[0].endswith("EXAMPLE")),
    ("password", PASSWORD_IN_WORDS, lambda match, _: True),
    ("password", PASSWORD_IN_URL, lambda match, _: not PLACEHOLDER.fullmatch(match["token"])),
    ("mail", MAIL, _is_mail),
    ("iban", IBAN, _is_iban),
    ("ip", IP, _is_ip),
    ("identity", IDENTITY, _is_identity),
    ("card", CARD, _is_card),
    ("phone", PHONE, _is_phone),
)
NUMBERS = {kind: pattern for kind, pattern, _ in KINDS[5:]}


def _masks(values: Mapping[str, Value], texts: Sequence[str]) -> dict[str, str]:
    """Every way a value is written -> its mask, one that no text holds yet."""
    all_text, counts = " ".join(texts), Counter[str]()
    masks: dict[Value, str] = {}
    for kind, form in dict.fromkeys(values.values()):
        # a value without a mask has "", which is in every text: it gets a mask, and then the next
        # one until no text holds it
        while (mask := masks.get((kind, form), "")) in all_text:
            counts[kind] += 1
            masks[kind, form] = f"<{kind.upper()}_{counts[kind]}>"
    spellings = {written: masks[value] for written, value in values.items()}
    # also where nothing around a number says what it is: it was said elsewhere
    for kind, pattern in (NUMBERS | {"phone": PHONE_OR_DIGITS}).items():
        for text in texts if any(kind == other for other, _ in masks) else ():
            for match in pattern.finditer(text.translate(NARROW)):
                if mask := masks.get((kind, _normalize(kind, match[0])), ""):
                    spellings[text[match.start() : match.end()]] = mask
    return spellings


def _replace_values(contents: object, masks: Mapping[str, str]) -> object:
    # the longest first, since a value may begin with another one
    spellings = sorted(masks, key=len, reverse=True)
    patterns = (re.escape(text) + (MAIL_END if "@" in text else END) for text in spellings)
    pattern = re.compile(f"{START}(?:{'|'.join(patterns)})")

    def replace_in(value: object) -> object:
        if isinstance(value, str):
            return pattern.sub(lambda match: masks[match[0]], value)
        if type(value) is int:
            # 0, so that it stays a number; a password's digits may be a number of its own
            return 0 if masks.get(str(value), "").startswith(NUMBER_MASKS) else value
        if isinstance(value, dict):
            return {replace_in(key): replace_in(inner) for key, inner in value.items()}
        return [replace_in(i) for i in value] if isinstance(value, list | tuple) else value

    return replace_in(contents)
