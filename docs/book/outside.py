#!/usr/bin/env python3
"""Preprocessor of mdBook: turns links to files that are not chapters into text.

Guides link to source files and to documents for contributors. The book holds neither.
Protocol: https://rust-lang.github.io/mdBook/for_developers/preprocessors.html
"""

import json
import posixpath
import re
import sys

LINK = re.compile(r"(?<!!)\[((?:[^\[\]`]|`[^`]*`)+)\]\(([^()\s:#]+)(#[^()\s]*)?\)")


def chapters(items):
    """The chapters below items of the book, in order."""
    for item in items:
        if chapter := isinstance(item, dict) and item.get("Chapter"):
            yield chapter
            yield from chapters(chapter["sub_items"])


def main():
    if sys.argv[1:2] == ["supports"]:
        return
    _, book = json.load(sys.stdin)
    every = list(chapters(book.get("items") or book["sections"]))
    paths = {chapter["path"] for chapter in every}
    for chapter in every:
        folder = posixpath.dirname(chapter["path"] or "")

        def text_of(link):
            target = posixpath.normpath(posixpath.join(folder, link[2]))
            return link[0] if target in paths else link[1]

        chapter["content"] = LINK.sub(text_of, chapter["content"])
    json.dump(book, sys.stdout)


main()
