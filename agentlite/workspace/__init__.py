"""What a name means (stage, folder, alias, hub id) and what a stage's folder holds."""
