"""What every room may use: errors, records, row files, console, HTTP client, user code."""
