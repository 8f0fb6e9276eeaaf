"""A page is opened where a person sees it, and nowhere else."""

import sys
import webbrowser

import pytest

from agentlite.cli.browser import open_in_browser


@pytest.mark.parametrize(
    ("terminal", "platform", "variables", "opens"),
    [
        (True, "linux", {"DISPLAY": ":0"}, True),
        (True, "linux", {"WAYLAND_DISPLAY": "wayland-0"}, True),
        (True, "linux", {}, False),
        (False, "linux", {"DISPLAY": ":0"}, False),
        (True, "darwin", {}, True),
        (False, "darwin", {}, False),
    ],
)
@pytest.mark.parametrize("works", [True, False])
def test_a_page_is_opened_on_a_terminal_with_a_screen(
    terminal, platform, variables, opens, works, monkeypatch
):
    addresses: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda address: addresses.append(address) or works)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    monkeypatch.setattr(sys, "platform", platform)
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert open_in_browser("http://localhost:1") is (opens and works)
    assert addresses == ["http://localhost:1"] * opens
