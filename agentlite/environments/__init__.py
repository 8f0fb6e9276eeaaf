"""Worlds in which an agent acts: a class of the user's, or BFCL's, each in a process of its own."""
