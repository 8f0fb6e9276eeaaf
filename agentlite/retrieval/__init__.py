"""Many tools -> the few that a question needs: a pool, ways to rank it, an index on disk, and what
it brings.
"""
