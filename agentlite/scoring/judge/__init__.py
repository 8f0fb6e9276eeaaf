"""Answers -> scores from 0 to 5: by a model behind an endpoint, or by people with a sheet."""
