"""The environment of torchrun or accelerate launch -> the number of processes, and our own rank."""

import os


def world_size() -> int:
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_first() -> bool:
    """Whether this process is the one that reads, decides, writes and speaks for all."""
    return os.environ.get("RANK", "0") == "0"
