"""workspace: see docs/design.md."""
