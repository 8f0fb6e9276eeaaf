"""The whole path in one page: raw rows -> records -> a trained adapter -> a scored answer.

    python scripts/examples/minimal.py [MODEL]        (smollm2-135m, or the folder of a small model)

Every step below is what a stage of agentlite does for many rows, with checkpoints, a plan and a
report around it. Read it from top to bottom, then open the room that you are interested in.
"""

import sys
import tempfile
from pathlib import Path

import agentlite
from agentlite.config.settings import SftSettings
from agentlite.core.errors import RowError
from agentlite.data.curation.validate import validate
from agentlite.data.formats import to_record
from agentlite.data.formats.raw_rows import read_raw
from agentlite.engine import sft
from agentlite.engine.decoding import Decoding
from agentlite.engine.load import load_for_inference, loading_of
from agentlite.engine.local_sampler import generate
from agentlite.rendering import (
    PROTOCOLS,
    check_protocol,
    mark_trained,
    prompts_of,
    render,
    training_rows,
)
from agentlite.scoring.rewards import WEIGHTS, Attempt, score_attempt, total
from agentlite.workspace.input_files import load_template
from agentlite.workspace.lookup import find_model

model = sys.argv[1] if len(sys.argv) > 1 else "smollm2-135m"
folder = Path(tempfile.mkdtemp(prefix="agentlite-minimal-"))
rows = Path(agentlite.__file__).parent / "cli/starter/data.jsonl"  # what `agentlite init` copies

# 1. DATA (agentlite/data). A raw row is any JSON object. Its keys tell the format, the format's
# reader makes a Record of it: messages, tools, and what is right at each step. A row that does not
# fit is rejected with a code and a reason; it never stops the others.
records = []
for raw in read_raw(str(rows), sys.stdin.buffer):
    try:
        if raw.error:
            raise raw.error
        record = to_record(raw.value)
        validate(record)
        records.append(record)
    except RowError as error:
        print(f"rejected {raw.location}: {error.code} {error.reason}")
held_out = records.pop(4)
print(f"{len(records)} records to train on, 1 held out\n")

# 2. RENDERING (agentlite/rendering). A protocol writes tools and calls as text; the model's own
# chat template writes turns. Only what the assistant writes is trained, here between the marks.
source = find_model(model, folder)  # an alias, a folder or a hub id -> where its files are
template = load_template(source.base)
protocol = PROTOCOLS["hermes"]
check_protocol(protocol, template)
print(*[mark_trained(row, "⟦{}⟧".format) for row in render(records[0], protocol, template)], "\n")

# The same text as token ids and labels. The label is -100 where nothing is learned.
encoded = [row for record in records for row in training_rows(record, protocol, template)]

# 3. TRAINING (agentlite/engine, the only room that imports torch). TRL's SFTTrainer on a LoRA
# adapter. The folder gets checkpoints/, adapter/ and metrics.jsonl; restarted on the same folder
# after a kill, training would continue from the last checkpoint.
settings = SftSettings(max_steps=20, batch_size=2, gradient_accumulation=1, learning_rate=1e-3)
figures = sft.train(source, settings, folder, rows=encoded, dev=[])
print(f"loss {figures['first_loss']:.3f} -> {figures['last_loss']:.3f}, in {folder}\n")

# 4. SAMPLING. The prompt of a step is the rendered dialog up to where the assistant begins: its ids
# are the first ids of the training row, so training and use cannot differ. This is the dialog's
# first step. Decoding is greedy here.
prompt, *_ = prompts_of([held_out], lambda record: protocol, template)
decoding = Decoding(max_new_tokens=64).under(template)
tuned = load_for_inference(source._replace(adapter=folder / "adapter"), loading_of(settings))
((completion,),) = generate(tuned, [prompt.ids], decoding, batch_size=1)
print(f"asked:    {held_out.messages[0].content}\nanswered: {completion.text}\n")

# 5. SCORING (agentlite/scoring). The protocol reads calls back from the text. A text that cannot be
# read is a problem of the model's, so it is data, not an exception. The gold is what the record
# says at this step; each component looks at one aspect, and weights come last.
parsed = protocol.read(completion.text, held_out.tools)
gold = held_out.gold_at(prompt.turn)
attempt = Attempt(parsed, gold, held_out.tools, completion.ended != "cut", completion.text)
result = score_attempt(attempt)
for name, value in result.components.items():
    print(f"{name:>20} {value:5.2f} x {WEIGHTS[name]:5.2f}")
print(f"{'total':>20} {total(result.components, WEIGHTS):5.2f}   {result.feedback}")
