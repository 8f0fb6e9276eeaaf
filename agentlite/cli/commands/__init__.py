"""The commands that are not stages: what each does, in the order of `agentlite --help`."""

from typing import NamedTuple


class OtherCommand(NamedTuple):
    help: str
    examples: str
    other_names: str = ""  # what others call it, apart by blanks


OTHERS = {
    "init": OtherCommand(
        "Make a folder with sample rows, settings with comments and a README, to start from.",
        """
agentlite init home
cd home && agentlite prep data.jsonl && agentlite sft && agentlite eval
""",
        "new create start",
    ),
    "doctor": OtherCommand(
        "Say what this machine has and can train, what is missing, and what to do about it.",
        """
agentlite doctor
agentlite doctor --json | jq '.findings[] | select(.state != "ok")'
""",
        "check info",
    ),
    "plan": OtherCommand(
        "Say what memory, time and disk a command will need, and what would fit; nothing is run.",
        """
agentlite plan --model Qwen/Qwen2.5-7B-Instruct --fit 12GB
agentlite plan --command grpo --profile rtx4090 --set grpo.group_size=8
agentlite plan --config-json config.json --command dpo --json
agentlite plan --sweep memory.svg
""",
        "estimate memory",
    ),
    "runs": OtherCommand(
        "List the stages of a workspace: state, key figure, size, age; free what is not needed "
        "any more.",
        """
agentlite runs
agentlite runs runs/* --json
agentlite runs --rm sft
""",
        "list ls status",
    ),
    "report": OtherCommand(
        "Write the report of a workspace again, say the result in words, and open the page.",
        """
agentlite report
agentlite report --run runs/weather --no-browser
agentlite report --json | jq -r '.sentences[][]'
""",
        "open show view html",
    ),
    "chat": OtherCommand(
        "Talk to a model in its own protocol, and answer its calls: by hand, from a file, by "
        "functions.",
        """
agentlite chat sft --tools tools.json
agentlite chat sft --tools tools.json --exec tools.py
agentlite chat sft --tools tools.json --replay dialog.jsonl --json
""",
        "generate infer inference ask talk",
    ),
    "export": OtherCommand(
        "Write a trained model as others want it: merged weights, GGUF, Ollama, or the adapter "
        "alone.",
        """
agentlite export sft --merged weather-model
agentlite export sft --gguf weather.gguf --llama-cpp ~/llama.cpp
agentlite export sft --ollama weather-ollama --llama-cpp ~/llama.cpp
""",
        "merge convert push",
    ),
    "serve": OtherCommand(
        "Answer OpenAI's chat completions on this machine, with tools, from one model.",
        """
agentlite serve sft
agentlite serve dpo --port 8080 --max-new-tokens 512
""",
        "api server",
    ),
}
