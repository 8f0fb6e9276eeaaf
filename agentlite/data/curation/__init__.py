"""What prep does between reading and writing: check, de-duplicate, sample, split, join."""
