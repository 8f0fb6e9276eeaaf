"""The environment of torchrun or accelerate launch -> the number of processes, and our own rank."""

import os


def count() -> int:
    return int(os.environ.get("WORLD_SIZE", "1"))


def first() -> bool:
    """Whether this one reads, decides, writes and speaks for all."""
    return os.environ.get("RANK", "0") == "0"
