#!/usr/bin/env python3
"""Checks the words that a change adds: check-words.py [BASE]

A change is all that was committed since BASE: by default the latest commit that is a day older than HEAD. Counts sentences
that open with a bare pronoun or preposition, sentences of more than 20 words, and commit subjects that are not
`area: imperative` of at most 72 characters. Public text (documents, and doc comments of Rust) and subjects fail the check;
other comments are counted.
"""

import re
import subprocess
import sys

OPENERS = re.compile(r"^(What|Who|Whose|Whom|Of|Those|That|Where|As|Which)\b(?! is\b.*\?$)")
LONGEST = 20
# Code begins and ends in lines that no change needs to touch.
WHOLE_FILES = "-U1000000"
SUBJECT = re.compile(r"^[a-z0-9_/,{} .-]+: \S")
# Reports and figures are records; contributors' documents are not public text.
RECORDS = re.compile(r"^docs/(reports/|benchmarks\.md)|^CONTRIBUTING\.md|^README\.ja\.md|CHANGELOG\.md")
DOC = re.compile(r"^\s*//[/!] ?(.*)$")
COMMENT = re.compile(r"^\s*(?://|#(?!!|\[)|\*(?= |$)) ?(.*)$")


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True).stdout


def base_of_today() -> str:
    date = int(git("log", "-1", "--format=%ct")) - 24 * 3600
    found = git("rev-list", "-1", f"--before={date}", "HEAD").strip()
    return found or git("rev-list", "--max-parents=0", "HEAD").split()[0]


def paragraphs(diff: str):
    """Texts that the change adds, each with its place and whether it is public."""
    path, number, kind, lines, start, in_code = "", 0, None, [], 0, False
    for line in diff.splitlines() + ["@@ "]:
        added, text, this = line.startswith("+") and not line.startswith("+++"), None, None
        if line.startswith("+++ "):
            path, in_code = line[6:], False
        elif line.startswith("@@ ") and "+" in line:
            number, in_code = int(re.search(r"\+(\d+)", line)[1]) - 1, False
        elif added or line.startswith(" "):
            number += 1
            text, this = text_of(path, line[1:])
            if text is not None and text.startswith("```"):
                in_code, this = not in_code, None
            elif not added or in_code or text is None or is_structure(text):
                this = None
        if this is None or this != kind:
            if kind is not None and lines:
                yield path_of_start, start, kind == "public", " ".join(lines)
            kind, lines = this, []
        if this is not None:
            if not lines:
                path_of_start, start = path, number
            # A list's items are sentences of their own.
            lines.append(re.sub(r"^(\* |\d+\. )", ". ", text.strip()))


def text_of(path: str, line: str) -> tuple[str | None, str | None]:
    """The words of a line, and whether they are public."""
    if path.endswith(".md") and not RECORDS.search(path):
        return line, "public"
    if path.endswith(".rs"):
        if found := DOC.match(line):
            return found[1], "public"
        if found := COMMENT.match(line):
            return found[1], "comment"
    if re.search(r"\.(py|sh|c|h|cu|toml)$", path) and (found := COMMENT.match(line)):
        return found[1], "comment"
    return None, None


def is_structure(text: str) -> bool:
    """Is the line empty, a heading, a row of a table, a link or code?"""
    return not text.strip() or text.lstrip().startswith(("#", "|", "    ", "<", "["))


def sentences(text: str):
    # Code and addresses are one word each; a link's target and bold marks are none.
    text = re.sub(r"\]\([^)]*\)", "]", text.replace("**", ""))
    text = re.sub(r"`[^`]*`|https?://\S+", " x ", text)
    for sentence in re.split(r"(?<=[.:!?;])\s+", text):
        words = re.findall(r"[^\s—–|]*\w[^\s—–|]*", sentence)
        if len(words) > 1:
            yield sentence.strip(" .*"), words


def main() -> None:
    base = sys.argv[1] if len(sys.argv) > 1 else base_of_today()
    faults, counted = [], {"opener": 0, "long": 0}
    for path, line, is_public, text in paragraphs(git("diff", WHOLE_FILES, "--no-color", base, "HEAD")):
        for sentence, words in sentences(text):
            found = [("opener", OPENERS.match(sentence)), ("long", len(words) > LONGEST)]
            for kind, _ in (fault for fault in found if fault[1]):
                if is_public:
                    faults.append(f"{path}:{line}: {kind}: {sentence[:110]}")
                else:
                    counted[kind] += 1
    for subject in git("log", "--no-merges", "--format=%s", f"{base}..HEAD").splitlines():
        if len(subject) > 72 or not SUBJECT.match(subject):
            faults.append(f"subject: {subject}")
    print(*faults, sep="\n")
    print(f"since {base[:12]}: {len(faults)} faults in public text and subjects;", end=" ")
    print(f"in other comments {counted['opener']} openers, {counted['long']} long sentences")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
