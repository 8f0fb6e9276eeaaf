"""deploy: see docs/design.md."""
