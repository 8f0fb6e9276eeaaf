"""The board: one local page over any number of workspaces, which follows them while they grow."""
