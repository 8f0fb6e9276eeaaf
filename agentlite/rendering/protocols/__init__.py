"""The protocols: related formats of tool calls in one file."""
