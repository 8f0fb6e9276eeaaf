"""The meaning of each score from 0 to 5, as seed 003 has it."""

RUBRIC = {
    5: "all of it is right",
    4: "small flaws: the core is right, and at most 10% of the rest is wrong",
    3: "the core is right, but 10% to 60% of the rest is wrong",
    2: "the core is wrong, or more than 60% of it all",
    1: "the core is gravely wrong, and so is most or all of the answer",
    0: "holds content that is forbidden, however good the rest is",
}
USABLE = 4  # answers with this score or a better one can be used


def usable(score: float) -> bool:
    return score >= USABLE
