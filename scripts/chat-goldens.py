#!/usr/bin/env python3
"""What Hugging Face's `apply_chat_template` makes of conversations, for the tests of crates/chat.

    scripts/chat-goldens.py [--templates FOLDER] [--out FILE]

It needs transformers from PyPI, and no model: a template is a file NAME.jinja. Each is given every
conversation of crates/chat/tests/data/conversations.json; where it fails or refuses, the golden is null.
RUSTORCH_CHAT_TEMPLATES=FOLDER has the test compare FOLDER and its goldens.json as well.
"""

import argparse
import datetime
import json
import pathlib

from transformers.utils import chat_template_utils

DATA = pathlib.Path(__file__).parent.parent / "crates/chat/tests/data"
NOW = datetime.datetime(2024, 7, 26, 12, 0, 0)


class Clock(datetime.datetime):
    """A clock that stands still."""

    @classmethod
    def now(cls, tz=None):
        return NOW


def render(template, conversation):
    """The prompt, or None where the template refuses."""
    try:
        prompts, _ = chat_template_utils.render_jinja_template(
            conversations=[conversation["messages"]],
            tools=conversation.get("tools"),
            documents=conversation.get("documents"),
            chat_template=template,
            add_generation_prompt=conversation.get("add_generation_prompt", True),
            bos_token="<s>",
            eos_token="</s>",
            **conversation.get("variables", {}),
        )
        return prompts[0]
    except Exception:  # templates fail in every way there is
        return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--templates", type=pathlib.Path, default=DATA / "templates")
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    chat_template_utils.datetime = Clock
    conversations = json.loads((DATA / "conversations.json").read_text("utf-8"))
    goldens = {}
    for path in sorted(options.templates.glob("*.jinja")):
        template = path.read_text("utf-8")
        prompts = {name: render(template, it) for name, it in conversations.items()}
        goldens[path.stem] = prompts
        made = sum(prompt is not None for prompt in prompts.values())
        print(f"{path.stem}: {made} of {len(prompts)}")
    out = options.out or options.templates / "goldens.json"
    out.write_text(json.dumps(goldens, ensure_ascii=False, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
