"""Answers -> scores from 0 to 5, by an LLM judge or by people with a sheet."""
