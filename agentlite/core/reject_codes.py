"""Reject codes: what each one means, and how to repair such a row."""

from typing import NamedTuple

from agentlite.core.errors import UserError, nearest


class Code(NamedTuple):
    meaning: str
    hint: str


REPAIR = (
    "--fix repairs what it can without losing or guessing anything (Python literals, commas, "
    "quotes)"
)

# E1: the row as text; E2: the dialog; D: a copy of a record that is kept; F: no fault, left out as
# the settings say
CODES: dict[str, Code] = {
    "E104": Code(
        "A packed file is cut off or damaged. The rows before that are read: of a .gz all of them, "
        "of a .zst those in whole blocks, each of which may hold 128 KiB of rows.",
        "Fetch or pack the file again.",
    ),
    "E105": Code(
        "A JSON array, or an object spread over lines, is broken or cut from here on; what follows "
        "is kept in one piece.",
        "Fetch or repair the file, or write one row per line.",
    ),
    "E109": Code(
        "The row is not UTF-8.",
        "--repair encoding reads such rows as Windows-1252; for a whole file: iconv -f ENCODING -t "
        "UTF-8 FILE.",
    ),
    "E111": Code(
        "A NUL byte stands in the row: the disk was full, or the machine went down while it was "
        "written.",
        "Take the row out, or write it again.",
    ),
    "E112": Code(
        "A text holds the NUL character (\\u0000), which tokenizers and C strings end at.",
        "Take the character out.",
    ),
    "E113": Code(
        "Half a surrogate pair (\\ud800 to \\udfff): no character, and nothing that can be written "
        "as UTF-8.",
        "Write the whole character, or take it out.",
    ),
    "E116": Code(
        "NaN, Infinity or a number too large: not JSON, and other readers would take it "
        "differently.",
        "Write null, a text, or a number.",
    ),
    "E117": Code("A number of thousands of digits.", "Write it as text."),
    "E118": Code(
        "A key appears twice in one object; readers would silently keep one of the values.",
        "Take one of them out.",
    ),
    "E119": Code("Nested deeper than 64.", "Flatten it, or write the inner part as text."),
    "E120": Code(
        "A line of more than 16 MiB. rejects.jsonl keeps its beginning and its sha256.",
        "Split it up.",
    ),
    "E121": Code(
        "The row is not a JSON object on its own line.",
        f"`jq -c .` writes one row per line; {REPAIR}.",
    ),
    "E122": Code("The last row of the file looks cut.", f"Fetch it again; {REPAIR}."),
    "E124": Code(
        "A text inside the row that should be JSON (the tools, a tool) is not.", f"{REPAIR}."
    ),
    "E201": Code(
        "The row is not as its format has it: no dialog, no assistant turn, or a field of another "
        "type.",
        "Name the format with --format; `agentlite prep --formats` shows a row of each.",
    ),
    "E202": Code(
        "No known format fits the row, or a turn has an unknown role.",
        "Name the format with --format; `agentlite prep --formats` shows a row of each.",
    ),
    "E203": Code(
        "The order of turns: a system turn first or none, then user and assistant in turns, "
        "results only "
        "behind a call, the assistant last.",
        "Join or take out the turns that are too many.",
    ),
    "E204": Code(
        "A call without its result, a result without its call, or more calls in a turn than the "
        "protocol holds.",
        "Add what is missing; a protocol that holds several calls is --protocol hermes.",
    ),
    "E205": Code(
        "It is not clear which call a result answers.",
        "Give every call an id, and every result the tool_call_id of its call.",
    ),
    "E206": Code("The arguments of a call, or the call, are not JSON.", f"{REPAIR}."),
    "E208": Code(
        "The arguments of a call are a list or a single value, not an object.",
        'Name the arguments: {"city": "Oslo"}.',
    ),
    "E209": Code(
        "A call of a tool that the row does not offer.", "Add the tool, or correct the name."
    ),
    "E210": Code(
        "The arguments do not fit the tool's schema: one is missing, one too many, of another "
        "type, or not as an enum, a minimum or a pattern wants it; or the gold accepts none that "
        "fit.",
        "Correct the call, or the schema. In gold each argument has a list of accepted values: a "
        'list is one of them, "tags": [["red", "blue"]].',
    ),
    "E211": Code(
        "The schema of a tool is not JSON Schema.",
        "Write JSON Schema: properties an object, required a list of names.",
    ),
    "E212": Code(
        "A tool without a name, two of one name, or a name the protocol uses itself.",
        "Give each tool its own name.",
    ),
    "E214": Code(
        "A chain of thoughts and actions that cannot be taken apart, or a text that the chat "
        "template changes.",
        "Write thoughts, calls and results as turns of their own. Words beside a call that a "
        "template drops are kept by --protocol hermes.",
    ),
    "E215": Code(
        "The row does not read back as it was written: it holds a mark, a tag or a stop string of "
        "the model "
        "or the protocol.",
        "Take the mark out of the text, or take another --protocol.",
    ),
    "E216": Code(
        "A turn that is empty, or holds something other than text.",
        "Take it out, or write its text.",
    ),
    "E217": Code(
        "Longer than max_length, or no token of it would be trained.",
        (
            "Raise --max-length; --long-rows cut keeps the steps that fit; --long-rows filter "
            "leaves "
            "such rows out."
        ),
    ),
    "E218": Code(
        "A turn that is trained holds the result of a call as a protocol or a template marks it (a "
        "line Observation: behind an action, <tool_response>, <|startofexec|>, <|im_start|>tool): "
        "the model would learn to invent results.",
        "Write each call and each result as a turn of its own, or take the turn out of training: "
        '"loss": false.',
    ),
    "E219": Code(
        "A preference whose answers are the same, or that differ before the last turn.",
        "Give both the same dialog up to the last turn of the assistant, and different answers.",
    ),
    "E220": Code(
        "The model's chat template refuses the dialog: roles in an order that it does not take, or "
        "an answer that its prompt does not begin.",
        "The reason has the template's own words. Change the row, or take another --protocol.",
    ),
    "E222": Code(
        "A trained answer holds a call as text, in the form of another model (<|python_tag|>, "
        "[TOOL_CALLS], the JSON of a call alone, ...), and tools are on offer: it would be learned "
        "as plain words, and eval would count right calls as wrong.",
        "Log the tool_calls that the server parses (vLLM: --enable-auto-tool-choice "
        "--tool-call-parser NAME), write the call as tool_calls, or take the turn out of training: "
        '"loss": false.',
    ),
    "D401": Code(
        "The same dialog, tools and gold as another record.", "Nothing to fix: that one is kept."
    ),
    "D402": Code(
        "Calls the same tools with the same arguments as another record, is offered the same, and "
        "asks much alike.",
        "Nothing to fix: that one is kept.",
    ),
    "D403": Code(
        "Says nearly the same as another record, with the same tools on offer and called.",
        "Nothing to fix: that one is kept. A higher threshold keeps more.",
    ),
    "F301": Code(
        "Left out as ms-swift leaves such ms_bench rows out: another model's name, or role marks "
        "inside the text.",
        "--format sharegpt keeps them.",
    ),
    "F302": Code(
        "Longer than max_length, and --long-rows filter leaves such rows out.",
        "Raise --max-length; --long-rows cut keeps the steps that fit.",
    ),
    "F311": Code(
        "Holds a key, a password, a mail, a phone, an identity number or a card: --personal drop "
        "leaves such rows out.",
        (
            "--personal mask keeps them with a mask for each value; --personal report keeps them "
            "as "
            "they are."
        ),
    ),
    "F312": Code(
        "Not drawn: its group of sources or its task has more rows than --mix, task_weights or "
        "--limit ask for.",
        "Raise its ratio or its weight, or --limit; without these settings every row is taken.",
    ),
    "F313": Code(
        "A rollout without a turn to learn: its environment broke down, its dialog cannot be "
        "written, every turn of the model failed, broke a schema or invented a result, or the "
        "tools on offer changed on the way.",
        "Nothing to fix: the other rollouts of the task are read. `problem` in "
        "trajectories.jsonl has the reason.",
    ),
    "F314": Code(
        "A score of the rollout does not meet --keep, or it lacks the score.",
        "Nothing to fix: a looser condition keeps it, and where it lacks the score, only one on "
        "another score. provenance.jsonl has the scores of each rollout.",
    ),
    "F315": Code(
        "Another rollout of the same task has better scores, and --keep best takes one per task.",
        "Nothing to fix: without best in --keep every rollout is kept.",
    ),
    "F321": Code(
        "Contradicts another record: the same tools and the same messages, but other calls, or "
        "none.",
        "Correct the wrong one of them, and take it out of the other file if there are two.",
    ),
    "F331": Code(
        "Gives away a held-out record: the same query, nearly the same, or the same calls with the "
        "same arguments.",
        "Nothing to fix: what is held out must not be learned. Without that --holdout it is kept; "
        "pairs --preferences holds out the dev and test records of --data.",
    ),
    "F332": Code(
        "Asks or calls the same as a record in another split. That one is kept, because its row "
        "names the split or because more of the group is there.",
        "Nothing to fix: the test would be too easy if this were learned. prep.split_by names what "
        "must not be in two splits.",
    ),
    "F333": Code(
        "Calls tools of two splits, and prep.split_by includes tools.",
        "Without tools in prep.split_by it is kept.",
    ),
    "F341": Code(
        "Not chosen for the coreset of the train records.",
        "Raise prep.coreset_target_size, or take another prep.coreset_strategy.",
    ),
}


def explain(code: str) -> str:
    """Raises UserError for a code that is none, with the nearest."""
    name = code.strip().upper()
    if name not in CODES:
        raise UserError(f"no code '{code}'.", nearest(name, CODES), location="--explain")
    return f"{name}: {CODES[name].meaning}\n{CODES[name].hint}"
