#!/usr/bin/env python3
"""Checks the words that a change adds: check-words.py [BASE | --tree]

A change is all that was committed since BASE: by default the latest commit that is a day older than HEAD. Counts sentences
that open with a bare pronoun or preposition, sentences of more than 20 words, and commit subjects that are not
`area: imperative` of at most 72 characters. Public text (documents, and doc comments of Rust) fails the check. Subjects
and other comments are counted, since a subject cannot be mended later.

With --tree, counts the faults of every file that is committed, most public ones first. Nothing fails.
"""

import collections
import re
import subprocess
import sys

OPENERS = re.compile(r"^(What|Who|Whose|Whom|Of|Those|That|Where|As|Which)\b(?! is\b.*\?$)")
LONGEST = 20
# Git's name of a tree without files.
EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
# Code begins and ends in lines that no change needs to touch.
WHOLE_FILES = "-U1000000"
SUBJECT = re.compile(r"^[a-z0-9_/,{} .-]+: \S")
# Reports and figures are records; contributors' documents are not public text.
RECORDS = re.compile(r"^docs/(reports/|benchmarks\.md)|^CONTRIBUTING\.md|^README\.ja\.md|CHANGELOG\.md")
DOC = re.compile(r"^\s*//[/!] ?(.*)$")
COMMENT = re.compile(r"^\s*(?://|#(?!!|\[)|\*(?= |$)) ?(.*)$")


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True, errors="replace").stdout


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
            lines.append(re.sub(r"^([*-] |\d+\. )", ". ", text.strip()))


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


def faults_since(base: str):
    """Faults of the text since a base: place, line, whether it is public, kind and sentence."""
    for path, line, is_public, text in paragraphs(git("diff", WHOLE_FILES, "--no-color", base, "HEAD")):
        for sentence, words in sentences(text):
            if OPENERS.match(sentence):
                yield path, line, is_public, "opener", sentence
            if len(words) > LONGEST:
                yield path, line, is_public, "long", sentence


def list_tree() -> None:
    public, others = collections.Counter(), collections.Counter()
    for path, _, is_public, _, _ in faults_since(EMPTY_TREE):
        (public if is_public else others)[path] += 1
    for path, count in public.most_common():
        print(f"{count:5} {others.pop(path, 0):5} {path}")
    for path, count in others.most_common():
        print(f"{0:5} {count:5} {path}")
    print(f"in public text {public.total()}")


def check_change(base: str) -> None:
    in_public, counted = 0, collections.Counter()
    for path, line, is_public, kind, sentence in faults_since(base):
        if is_public:
            in_public += 1
            print(f"{path}:{line}: {kind}: {sentence[:110]}")
        else:
            counted[kind] += 1
    for subject in git("log", "--no-merges", "--format=%s", f"{base}..HEAD").splitlines():
        if len(subject) > 72 or not SUBJECT.match(subject):
            counted["subject"] += 1
            print(f"subject: {subject}")
    print(f"since {base[:12]}: {in_public} faults in public text, {counted['subject']} in subjects;", end=" ")
    print(f"in other comments {counted['opener']} openers, {counted['long']} long sentences")
    sys.exit(in_public > 0)


def main() -> None:
    match sys.argv[1:]:
        case ["--tree"]:
            list_tree()
        case [base]:
            check_change(base)
        case _:
            check_change(base_of_today())


if __name__ == "__main__":
    main()
