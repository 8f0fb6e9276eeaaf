"""The commands that are not stages: what each does, in the order of `agentlite --help`."""

from typing import NamedTuple


class OtherCommand(NamedTuple):
    help: str
    examples: str
    other_names: str = ""  # what others call it, apart by blanks


OTHER_COMMANDS = {
    "init": OtherCommand(
        "Make a folder to start from: sample dialogs, settings, a README.",
        """
agentlite init home
cd home && agentlite prep data.jsonl && agentlite sft && agentlite eval
""",
        "new create start",
    ),
    "doctor": OtherCommand(
        "Check this machine: what it can train, and what to fix.",
        """
agentlite doctor
agentlite doctor --json | jq '.findings[] | select(.state != "ok")'
""",
        "check info",
    ),
    "plan": OtherCommand(
        "Calculate the memory, time and disk that a command needs.",
        """
agentlite plan --model Qwen/Qwen2.5-7B-Instruct --fit 12GB
agentlite plan --command grpo --profile rtx4090 --set grpo.group_size=8
agentlite plan --model ./folder --command dpo --json
""",
        "estimate memory",
    ),
    "runs": OtherCommand(
        "List the stages of a workspace with their state, result and size.",
        """
agentlite runs
agentlite runs runs/* --json
""",
        "list ls status",
    ),
    "report": OtherCommand(
        "Say the result of a workspace, and write its report.",
        """
agentlite report
agentlite report --run runs/weather
agentlite report --json | jq -r '.sentences[][]'
""",
        "open show view html",
    ),
    "chat": OtherCommand(
        "Talk to a model, and answer its calls.",
        """
agentlite chat sft --tools tools.json
agentlite chat sft --tools tools.json --exec tools.py
agentlite chat sft --tools tools.json --save dialogs.jsonl
""",
        "generate infer inference ask talk",
    ),
    "export": OtherCommand(
        "Write a model for other programs: merged weights, GGUF or Ollama.",
        """
agentlite export sft --merged weather-model
agentlite export sft --gguf weather.gguf --llama-cpp ~/llama.cpp
agentlite export sft --ollama weather-ollama --llama-cpp ~/llama.cpp
""",
        "merge convert",
    ),
    "serve": OtherCommand(
        "Serve a model on this machine to programs that speak OpenAI's API.",
        """
agentlite serve sft
agentlite serve dpo --port 8080 --max-new-tokens 512
""",
        "api server",
    ),
}
