"""A model's numbers and a command's settings -> the memory, time and disk that it will take, before
it is run.
"""
