"""python -m agentlite."""

from agentlite.cli.main import main

main()
