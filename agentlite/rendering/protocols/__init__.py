"""protocols: see docs/design.md."""
