"""Predictions and their gold -> figures with intervals; one file for each family of metrics."""
