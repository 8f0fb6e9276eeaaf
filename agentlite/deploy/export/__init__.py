"""A trained model -> folders and files that other programs read, each proved to write dialogs as in
training.
"""
