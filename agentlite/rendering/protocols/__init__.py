"""The protocols: one file for each format of tool calls."""
