"""agentlite.core.plain_words: no type of Python or msgspec reaches a reader."""

import io
from collections.abc import Callable
from pathlib import Path

import pytest

from agentlite.config.resolve import Given, resolve
from agentlite.core.errors import UserError
from agentlite.core.plain_words import utf8_text, wide_encoding
from agentlite.data.formats import read_raw
from agentlite.deploy.chat_session import read_toolbox
from agentlite.environments.registry import read_tools_file
from agentlite.rendering.protocols.prompt_template import read_templates
from agentlite.scoring.grid_file import read_grid_file
from agentlite.stages.eval.predictions_file import read_predictions_file

WIDE = ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"]


@pytest.mark.parametrize("name", [*WIDE, "utf-8-sig", "utf-8"])
@pytest.mark.parametrize("text", ['{"a": "ж"}\n', "# по-русски\nsft:\n", "- a\n", " x"])
def test_a_text_is_read_as_utf_8_or_its_encoding_is_named(name: str, text: str) -> None:
    content = text.encode(name)
    if name in WIDE:
        with pytest.raises(UserError) as caught:
            utf8_text(content, "my file.yaml")
        encoding = wide_encoding(content)
        assert content.decode(encoding) == text and encoding in caught.value.problem
        command = f"iconv -f {encoding} -t UTF-8 'my file.yaml' > 'my file.utf8.yaml'"
        assert command in caught.value.fix
    else:
        assert utf8_text(content, "my file.yaml") == text and not wide_encoding(content)


READERS: dict[str, Callable[[Path], object]] = {
    "settings": lambda path: resolve("sft", Given(files=(str(path),))),
    "grid": read_grid_file,
    "tools": lambda path: read_toolbox(str(path)),
    "mock tools": read_tools_file,
    "answers": lambda path: read_predictions_file(path, [], {}),
    "templates": read_templates,
    "rows": lambda path: [*read_raw(str(path), io.BytesIO())],
}
