"""No wait for the disk: only a power failure would show the difference, and no test can cause one.

The fixture `disk_calls` shows which files are synced, and in which order.
"""

import os


def install() -> None:
    """For this process and its forks."""
    os.fsync = lambda _handle: None
