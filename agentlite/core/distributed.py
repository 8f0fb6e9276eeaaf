"""The environment that torchrun sets, or accelerate launch -> how many processes make a run, and
which one this is.
"""

import os


def count() -> int:
    return int(os.environ.get("WORLD_SIZE", "1"))


def first() -> bool:
    """Whether this one reads, decides, writes and speaks for all."""
    return os.environ.get("RANK", "0") == "0"
