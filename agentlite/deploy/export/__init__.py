"""A trained model -> folders and files for other programs, each proved to render as in training."""
