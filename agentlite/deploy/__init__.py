"""A trained model for others: export, chat and an OpenAI-compatible server."""
