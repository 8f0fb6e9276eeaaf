"""commands: see docs/design.md."""
