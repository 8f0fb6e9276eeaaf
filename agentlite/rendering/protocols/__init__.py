"""One file for each way in which tool calls are written."""
