"""Record -> text with trained spans, and text -> calls; the protocols by name."""

from agentlite.rendering.encoding import Encoded as Encoded
from agentlite.rendering.encoding import Prompt as Prompt
from agentlite.rendering.encoding import encode_answer as encode_answer
from agentlite.rendering.encoding import encode_row as encode_row
from agentlite.rendering.encoding import mark_trained as mark_trained
from agentlite.rendering.encoding import prompt_at as prompt_at
from agentlite.rendering.encoding import prompts_of as prompts_of
from agentlite.rendering.encoding import training_rows as training_rows
from agentlite.rendering.protocol import Protocol as Protocol
from agentlite.rendering.protocol_mix import PROTOCOLS as PROTOCOLS
from agentlite.rendering.protocol_mix import Mixture as Mixture
from agentlite.rendering.protocol_mix import choose as choose
from agentlite.rendering.protocol_mix import mixture_of as mixture_of
from agentlite.rendering.protocol_mix import native_problem as native_problem
from agentlite.rendering.protocol_mix import parse_mixture as parse_mixture
from agentlite.rendering.renderer import Rendered as Rendered
from agentlite.rendering.renderer import check_protocol as check_protocol
from agentlite.rendering.renderer import check_reading as check_reading
from agentlite.rendering.renderer import first_messages as first_messages
from agentlite.rendering.renderer import reading_problem as reading_problem
from agentlite.rendering.renderer import render as render
from agentlite.rendering.renderer import render_last as render_last
