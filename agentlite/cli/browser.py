"""A page is opened in the browser of the person at this machine, if there is one."""

import os
import sys
import webbrowser


def open_in_browser(url: str) -> bool:
    """Whether it was opened."""
    return _has_screen() and webbrowser.open(url)


def _has_screen() -> bool:
    """Whether there is a window for it; a text browser would take the terminal."""
    display = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    return sys.stdout.isatty() and bool(display or sys.platform == "darwin")
