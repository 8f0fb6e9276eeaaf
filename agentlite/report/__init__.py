"""Finished run folders -> pages for people. Reads, never hooks."""
