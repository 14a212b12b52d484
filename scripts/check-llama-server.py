#!/usr/bin/env python3
"""Runs the tests of llama.cpp's server against `rustorch-cli serve`.

    scripts/check-llama-server.py PROGRAM TESTS [--encoder FOLDER] [PYTEST'S OPTIONS]

PROGRAM is rustorch-cli. TESTS is the folder tools/server/tests of llama.cpp. PyPI's packages in its requirements.txt
are needed. The tests download models. Here the bundled model stands in for their model of texts, and FOLDER for their
model of vectors, such as all-MiniLM-L6-v2. Tests that cannot pass with other models are left out, as are those of
features that this server does not have. The script counts and names them with the reasons.

The tests start this script in place of llama-server. It then gives the options to PROGRAM, by their names there.
"""

import collections
import os
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODEL = ROOT / "models/classics-13m-f16.gguf"

# Options of llama-server that mean the same here, and whether they have a value.
SAME = {
    "--alias": True, "--api-key": True, "--chat-template": True, "--chat-template-file": True,
    "--context-shift": False, "--cors-origins": True, "--host": True, "--lora": True, "--n-predict": True,
    "--no-slots": False, "--no-ui": False, "--pooling": True, "--port": True, "--reasoning-format": True,
    "--seed": True, "--slot-save-path": True, "--tags": True, "--temp": True, "--threads": True, "-ctk": True,
    "-ctv": True,
}
# Options that change nothing here, and whether they have a value. Metrics, batching and Jinja are always on. Which
# device computes is not what the tests are about.
NOTHING = {
    "--cont-batching": False, "--metrics": False, "--jinja": False, "--no-jinja": False, "--embedding": False,
    "--reranking": False, "--offline": False, "--swa-full": False, "-fa": True, "--n-gpu-layers": True,
    "--ubatch-size": True, "--backend_sampling": False, "--slots": False, "--no-cache-idle-slots": False,
    "--cache-ram": True,
}
VECTORS = ("ggml-org/models", "bert-bge-small/ggml-model-f16.gguf")


def translate(arguments):
    """The options of rustorch-cli for those of llama-server."""
    program, out, own = os.environ["RUSTORCH_CLI"], [], {}
    arguments = iter(arguments)
    for name in arguments:
        if name in SAME:
            out += [name, next(arguments)] if SAME[name] else [name]
        elif name in NOTHING:
            next(arguments) if NOTHING[name] else None
        elif name in ("--kv-unified", "--verbose"):
            own[name] = True
        else:
            own[name] = next(arguments, None)
    encoder = os.environ.get("RUSTORCH_ENCODER")
    is_encoder = (own.pop("--hf-repo", None), own.pop("--hf-file", None)) == VECTORS
    out = ["-m", encoder if is_encoder else str(MODEL), "--any-model", *out]
    # Pages of all origins may ask there, and templates are asked for reasoning.
    if "--cors-origins" not in out:
        out += ["--cors-origins", "*"]
    # The model has no tokens that fill gaps: the first ones of its vocabulary stand in.
    for token, name in enumerate(("pre", "suf", "mid"), start=2):
        out += ["--override-kv", f"tokenizer.ggml.fim_{name}_token_id=int:{token}"] if not is_encoder else []
    reasoning = own.pop("--reasoning", "auto")
    out += ["--reasoning", "on" if reasoning == "auto" else reasoning]
    if own.pop("--verbose", False):
        out.append("--verbose-prompt")
    # There, all texts share a context, unless it is unified. Here, each text has its own.
    context, parallel = int(own.pop("--ctx-size", 0)), int(own.pop("--parallel", 4))
    share = 1 if own.pop("--kv-unified", False) else parallel
    out += ["-c", str(context // share), "--parallel", str(parallel), "--device", "cpu"]
    # A prompt is computed in pieces of this size.
    if size := own.pop("--batch-size", None):
        out += ["--ubatch-size", size]
    if own:
        sys.exit(f"this server has no {' '.join(own)}")
    return [program, "serve", *out]


TEXT = "the text, or a number of tokens, is that of a model that is downloaded"
IMAGES = "there are no images"
# Reasons to leave out whole files.
FILES = {
    "test_router": "there is no router: one process serves all models",
    "test_mcp_servers": "there are no MCP servers",
    "test_tools_builtin": "there are no tools in the server",
    "test_vision_api": IMAGES,
    "test_rerank": "it needs a model of scores, which is downloaded",
    "test_speculative": "it needs two models that are downloaded",
    "test_sleep": "models stay loaded",
    "test_lora": "it needs an adapter that is downloaded",
    "test_stream": "it needs a router, and a model that is downloaded",
    "test_proxy": "there is no proxy",
}
# Reasons to leave out tests, by regular expressions of their names.
TESTS = {
    r"test_basic::test_load_split_model": TEXT,
    r"test_basic::test_server_model_aliases_and_tags": "the first alias is shown, and not the first of the alphabet",
    r"test_chat_completion::test_chat_completion(_stream)?\[": TEXT,
    r"test_chat_completion::test_chat_completion_(cached_tokens|with_openai_library)": TEXT,
    r"test_chat_completion::test_chat_template$": TEXT,
    r"test_compat_anthropic::.*(image|vision)": IMAGES,
    r"test_compat_anthropic::test_anthropic_empty_messages": "the status is 400 here, and 500 there",
    r"test_compat_oai_responses::test_responses_with_openai_library": TEXT,
    r"test_compat_oai_responses::.*telemetry": "responses have no times and progress",
    r"test_completion::test_completion(_stream)?(\[|_with_openai_library$)": TEXT,
    r"test_completion::test_(nocache_long_input_prompt|completion_prompt_cache)": TEXT,
    r"test_completion::test_completion_response_fields\[.*-32-": TEXT,
    r"test_ctx_shift::test_ctx_shift_(enabled|disabled_long_prompt)": TEXT,
    r"test_ctx_shift::test_ctx_shift_disabled_short_prompt\[-1": TEXT,
    r"test_infill::test_infill_": TEXT,
    r"test_infill::test_with_qwen": TEXT,
    r"test_kv_keep_only_active": "it reads llama-server's own log",
    r"test_metrics::test_metrics_disabled": "figures are always there",
    r"test_metrics::test_metrics_embedding": "figures do not count vectors",
    r"test_security::test_access_static_assets": "it asks for files of another page",
    r"test_security::test_cors_proxy": "there is no proxy",
    r"test_security::.*tools_enabled": "there are no tools in the server",
    r"test_security::test_local_media_file": IMAGES,
    r"test_slot_save::test_slot_restore_legacy": "it changes a file of llama-server's own format",
    r"test_slot_save::test_slot_.*(image|media|multimodal)": IMAGES,
    r"test_slot_save::": TEXT,
    r"test_tokenize::test_tokenize_with_bos": TEXT,
}


def reason_to_leave_out(item):
    """The reason why a test is left out; None if it runs."""
    file = Path(str(item.fspath)).stem
    if reason := FILES.get(file):
        return reason
    if item.get_closest_marker("slow"):
        return "it is slow, and needs a model that is downloaded"
    name = f"{file}::{item.name}"
    return next((reason for pattern, reason in TESTS.items() if re.match(pattern, name)), None)


class Shim:
    """A plugin of pytest: leaves tests out, and counts."""

    def __init__(self):
        self.left_out = collections.defaultdict(list)

    def pytest_configure(self):
        import utils

        # It would start a server for each of their models, so that they are downloaded.
        utils.ServerPreset.load_all = staticmethod(lambda: None)

    def pytest_collection_modifyitems(self, config, items):
        kept = []
        for item in items:
            reason = reason_to_leave_out(item)
            kept.append(item) if reason is None else self.left_out[reason].append(item.nodeid)
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = kept

    def pytest_terminal_summary(self, terminalreporter):
        stats = terminalreporter.stats
        for reason, names in self.left_out.items():
            terminalreporter.write_line(f"left out, {len(names)}: {reason}")
            counts = collections.Counter(name.split("[")[0] for name in names)
            for name, count in counts.items():
                terminalreporter.write_line(f"    {name}{f' ({count})' if count > 1 else ''}")
        passed, failed = len(stats.get("passed", [])), len(stats.get("failed", [])) + len(stats.get("error", []))
        left = sum(map(len, self.left_out.values())) + len(stats.get("skipped", []))
        terminalreporter.write_line(f"{passed} passed, {failed} failed, {left} left out")


def main():
    if "RUSTORCH_CLI" in os.environ:
        command = translate(sys.argv[1:])
        os.execv(command[0], command)
    import pytest

    program, tests, *options = sys.argv[1:]
    if "--encoder" in options:
        at = options.index("--encoder")
        os.environ["RUSTORCH_ENCODER"] = str(Path(options[at + 1]).resolve())
        del options[at : at + 2]
    os.environ["RUSTORCH_CLI"] = str(Path(program).resolve())
    os.environ["LLAMA_SERVER_BIN_PATH"] = str(Path(__file__).resolve())
    os.chdir(tests)
    sys.path.insert(0, os.getcwd())
    sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", *(options or ["unit"])], plugins=[Shim()]))


main()
