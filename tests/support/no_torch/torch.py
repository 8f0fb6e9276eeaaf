"""On the path of the programs that a quick run starts: none of them may import torch."""

raise ImportError("a test that imports torch in a program of its own needs the mark `torch`")
