"""What every room may use: errors, records, reject codes, row files, console, HTTP client, user
code.
"""
