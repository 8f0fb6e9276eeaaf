"""The commands that are not stages: no plan.json, nothing to resume."""
