"""agentlite.core.plain_words: no type of Python or msgspec reaches a reader."""

import pytest

from agentlite.core.errors import UserError
from agentlite.core.plain_words import utf8_text, wide_encoding

WIDE = ["utf-16", "utf-32"]


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
