"""Stand-ins for llama.cpp's converter, and for its server, which answers alike; not tests."""

CONVERT = """import json, sys
from pathlib import Path
from gguf import GGUFWriter

source, out = Path(sys.argv[1]), sys.argv[sys.argv.index("--outfile") + 1]
Path(__file__).with_name("told.json").write_text(json.dumps([sys.argv[1:], sorted(p.name for p in source.iterdir())]))
writer = GGUFWriter(out, "llama")
writer.add_tokenizer_model("gpt2")
writer.add_eos_token_id(2)
writer.add_add_bos_token({bos})
writer.add_chat_template((source / "chat_template.jinja").read_text(encoding="utf-8"){change})
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.close()
"""  # noqa: E501  (verbatim text)
SERVER = """#!{python}
import json, sys
from http.server import BaseHTTPRequestHandler, HTTPServer

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        assert asked["prompt"].endswith("<|im_start|>assistant\\n") and not asked["temperature"]
        self.send_response(200)
        self.end_headers()
        reply = {{"content": {answer!r}, "stop_type": "eos", "stopping_word": ""}}
        self.wfile.write(json.dumps(reply).encode())

HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Handler).serve_forever()
"""
