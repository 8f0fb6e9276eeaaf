"""One file a command: settings -> a stage run. None imports another."""
