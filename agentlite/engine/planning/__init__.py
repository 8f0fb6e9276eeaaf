"""Estimates of the memory, time and disk that a command will take, before it is run."""
