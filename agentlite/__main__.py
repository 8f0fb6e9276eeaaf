"""python -m agentlite."""

from agentlite.cli import main

main()
