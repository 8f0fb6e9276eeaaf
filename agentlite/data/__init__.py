"""Raw rows -> checked, curated records: formats, curation, ingest."""
