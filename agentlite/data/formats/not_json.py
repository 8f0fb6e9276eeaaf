"""Files that hold no rows of JSON, known by how they begin -> what they are and what to do."""

import re
import shlex

from agentlite.core.errors import UserError
from agentlite.core.plain_words import conversion, wide_encoding

HEAD = 4096  # bytes that are looked at


EXPORT = "Export its rows as JSON, one object per line."
# how files of other kinds begin -> what they are and what to do; {file}: the name
SIGNATURES: dict[bytes, tuple[str, str]] = {
    b"PK\x03\x04": ("a ZIP archive", "Unpack it: unzip {file} -d rows; agentlite prep rows"),
    b"PAR1": ("Parquet", "Give it as a file, unpacked."),
    b"ARROW1": ("an Arrow file", EXPORT),
    b"BZh": ("a bzip2 archive", "Unpack it: bunzip2 -k {file}"),
    b"\xfd7zXZ\0": ("an xz archive", "Unpack it: unxz -k {file}"),
    b"%PDF": ("a PDF document", "Give the file that holds the dialogs."),
    b"SQLite format 3\0": ("an SQLite database", EXPORT),
    b"version https://git-lfs.github.com/spec/": (
        "a Git LFS pointer, which stands in for the file",
        "Fetch the file itself in its repository: git lfs pull",
    ),
}
PAGE = re.compile(rb"\s*<(?:!doctype\s+)?html", re.IGNORECASE)
# a row, or a list of rows, begins
VALUE = re.compile(rb"^(?:\s|\xef\xbb\xbf)*[{\[\"]", re.MULTILINE)


def refuse_foreign(head: bytes, name: str) -> None:
    """Raises UserError 2 for a file that is known not to hold JSON. `head`: its first bytes."""
    file = shlex.quote(name)
    signature = next((begins for begins in SIGNATURES if head.startswith(begins)), None)
    if wide := wide_encoding(head):
        what, fix = f"text in {wide}", f"Convert it: {conversion(wide, name)}"
    elif signature:
        what, fix = SIGNATURES[signature]
        fix = fix.format(file=file)
    elif PAGE.match(head):
        what = "an HTML page, as a download that failed leaves it"
        fix = "Open the address in a browser to see what it says, and download the file again."
    elif name.endswith(".py"):
        what, fix = "Python source", EXPORT
    elif head.strip().count(b"\n") > 1 and not VALUE.search(head):
        what = "text without a line that begins with { or [, as a table is"
        fix = "`agentlite prep --formats` lists the keys that rows may have."
    else:
        return
    raise UserError(f"this is {what}, not rows of JSON.", fix, location=name)
