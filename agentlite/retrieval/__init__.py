"""Many tools -> the few that a question needs: the pool, rankers, the index on disk, offers."""
