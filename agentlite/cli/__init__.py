"""The command line: options, output, completion, and the commands that are not stages."""
