"""Predictions and their gold -> numbers with intervals: one file a family."""
