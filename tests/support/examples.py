"""How many examples Hypothesis tries: a quarter of them in a quick run."""

import os

QUICK = bool(os.environ.get("AGENTLITE_TEST_QUICK"))


def examples(whole: int) -> int:
    """The number for this run; `whole` is that of a whole one."""
    return max(5, whole // 4) if QUICK else whole
