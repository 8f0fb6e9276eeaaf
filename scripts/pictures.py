"""The pictures of the report in docs/, from a workspace of `agentlite init`.

usage: .venv/bin/python scripts/pictures.py FOLDER
  FOLDER holds runs/default with an eval of two models. It needs Chromium.
"""

import io
import sys
from pathlib import Path
from typing import NamedTuple

from PIL import Image

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from support.browser import Page, browser  # noqa: E402  (the path comes first)

COLOURS = 96  # of a picture: a page has few, and a palette makes its file small
MARGIN = 24


class Shot(NamedTuple):
    """A part of the report: from the beginning of one element to the end of another."""

    first: str
    last: str
    before: str = ""  # JavaScript that runs first


# the first answer of the tuned model that is wrong, as a reader finds it
FAILURE = """(() => {
  const [model, by] = document.querySelectorAll("#predictions-1 select");
  for (const [one, text] of [[model, "sft"], [by, "exact_call"]]) {
    one.value = [...one.options].find((option) => option.textContent === text).value;
    one.dispatchEvent(new Event("change"));
  }
  [...document.querySelectorAll("#predictions-1 .controls button")].at(-1).click();
})()"""
REPORTS = {
    "report-desktop": Shot("header", "#differences-1"),
    "report-answers": Shot("#predictions-1", "#predictions-1", before=FAILURE),
}


def taken(page: Page, report: Path, shot: Shot) -> bytes:
    """A small PNG of a part of the report."""
    page.open(report, width=1280)
    if shot.before:
        page.value(shot.before)
    top, bottom = page.value(
        f"[document.querySelector('{shot.first}').getBoundingClientRect().top + scrollY,"
        f" document.querySelector('{shot.last}').getBoundingClientRect().bottom + scrollY]"
    )
    assert not page.errors, page.errors
    whole = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    return small(whole.crop((0, max(0, int(top) - MARGIN), whole.width, int(bottom) + MARGIN)))


def small(picture: Image.Image) -> bytes:
    png = io.BytesIO()
    picture.quantize(COLOURS, dither=Image.Dither.NONE).save(png, "png", optimize=True)
    return png.getvalue()


def main() -> None:
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    with browser() as page:
        for name, shot in REPORTS.items():
            png = taken(page, Path(sys.argv[1]) / "runs/default/report.html", shot)
            (ROOT / "docs" / f"{name}.png").write_bytes(png)


if __name__ == "__main__":
    main()
