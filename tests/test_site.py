"""The documentation as a site: it builds without a warning, every page is in its menu and in its
search, and every link leads somewhere. The README stays short.
"""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
import yaml
from support.samples import ROOT

DOCS = ROOT / "docs"
SOURCES = sorted(DOCS.rglob("*.md"))
# The tags by which a browser loads something by itself, without a click.
LOADING = {"script", "link", "img", "iframe", "source", "video", "audio"}


class Page(HTMLParser):
    """One page of the site: its anchors, its links, what it loads, and the text of paragraphs."""

    def __init__(self, path: Path):
        super().__init__()
        self.anchors, self.links, self.loaded = set[str](), list[str](), list[str]()
        self.paragraphs, self.open = list[str](), set[str]()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values.get("id", ""), values.get("name", "")}
        address = values.get("href") or values.get("src")
        if address is not None:
            (self.loaded if tag in LOADING else self.links).append(address)
        if tag == "p":
            self.paragraphs.append("")
        if tag in ("p", "code"):
            self.open.add(tag)

    def handle_endtag(self, tag: str) -> None:
        self.open.discard(tag)

    def handle_data(self, data: str) -> None:
        if self.open == {"p"}:
            self.paragraphs[-1] += data


def broken_links(site: Path) -> Iterator[str]:
    """The links and loaded files of all pages that lead out of the site, or to nothing in it."""
    pages = {path: Page(path) for path in site.rglob("*.html") if path.name != "404.html"}
    for path, page in pages.items():
        for address in [*page.links, *page.loaded]:
            parts = urlsplit(address)
            if parts.scheme in ("https", "mailto") and address in page.links:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            there = target.is_relative_to(site) and target.is_file() and not parts.netloc
            anchor = unquote(parts.fragment)
            if not there or (anchor and anchor not in pages[target].anchors):
                yield f"{path.relative_to(site)}: {address}"


def address_of(source: Path) -> str:
    """docs/commands/sft.md -> commands/sft/, its place on the site."""
    name = source.relative_to(DOCS).with_suffix("").as_posix()
    return "" if name == "index" else f"{name}/"


def title_of(source: Path) -> str:
    first = source.read_text(encoding="utf-8").partition("\n")[0]
    assert first.startswith("# "), source
    return first.removeprefix("# ").replace("`", "")


def menu(entry: Any) -> Iterator[str]:
    """The pages of an entry of `nav`: a page, or a title with a page or more entries."""
    if isinstance(entry, str):
        yield entry
    else:
        for inner in entry.values() if isinstance(entry, dict) else entry:
            yield from menu(inner)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy: the builder writes next to its configuration."""
    folder = tmp_path_factory.mktemp("site").resolve()
    shutil.copy(ROOT / "mkdocs.yml", folder)
    shutil.copytree(DOCS, folder / "docs")
    built = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict"],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    assert "No issues found" in built.stdout + built.stderr
    return folder / "site"


def test_every_page_is_in_the_menu_once():
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    assert sorted(menu(nav)) == sorted(page.relative_to(DOCS).as_posix() for page in SOURCES)


def test_the_first_page_lists_every_other_one():
    text = (DOCS / "index.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| \[[^]]+\]\(([^)]+)\)", text, re.MULTILINE)
    others = [page for page in SOURCES if page.name != "index.md"]
    assert sorted(listed) == sorted(page.relative_to(DOCS).as_posix() for page in others)


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= 1000


@pytest.mark.long
def test_every_link_of_the_site_leads_somewhere(site):
    assert [*broken_links(site)] == []


@pytest.mark.long
def test_every_page_can_be_found(site):
    items = json.loads((site / "search.json").read_text(encoding="utf-8"))["items"]
    for source in SOURCES:
        address = address_of(source)
        assert (site / address / "index.html").is_file(), source
        own = [item for item in items if item["location"].partition("#")[0] == address]
        assert title_of(source) in {item["title"] for item in own}, source
        words = " ".join(item["text"] for item in own)
        written = re.sub(r"\]\([^)]*\)", "]", source.read_text(encoding="utf-8"))  # no addresses
        longest = max(re.findall(r"[a-z]+", written), key=len)
        assert longest in words or longest in " ".join(item["title"] for item in own), source


@pytest.mark.long
def test_no_list_and_no_table_is_left_as_text(site):
    """On GitHub a list may follow a paragraph directly; on the site it needs a blank line."""
    left = [
        f"{path.relative_to(site)}: {line}"
        for path in site.rglob("*.html")
        for paragraph in Page(path).paragraphs
        for line in paragraph.splitlines()
        if re.match(r"\s*([-*] |\d+\. |\|.*\|$)", line)
    ]
    assert not left


def test_a_broken_link_would_be_seen(tmp_path):
    other = tmp_path / "other" / "index.html"
    other.parent.mkdir()
    other.write_text('<h1 id="there">There</h1>', encoding="utf-8")
    good = ["other/", "other/#there", "other/index.html", "#here", "https://example.org/"]
    bad = ["nowhere/", "other/#gone", "#gone", "../README.md", "http://example.org/"]
    links = "".join(f'<a href="{address}">x</a>' for address in [*good, *bad])
    first = tmp_path / "index.html"
    first.write_text(
        f'<p id="here">{links}</p><img src="https://example.org/a.png">', encoding="utf-8"
    )
    expected = [f"index.html: {address}" for address in [*bad, "https://example.org/a.png"]]
    assert [*broken_links(tmp_path.resolve())] == expected
