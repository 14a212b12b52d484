#!/usr/bin/env python3
"""Records a chat that goes on while its device is lost: record-chat.py PROGRAM MODEL OUT

Runs PROGRAM (a build of rustorch-cli) with MODEL on OpenCL, and injects the loss of the device. Writes OUT.cast, which
asciinema plays (https://docs.asciinema.org/manual/asciicast/v2/), and OUT.svg, an animation of the same recording. Needs an
OpenCL device, such as PoCL.
"""

import html
import json
import os
import subprocess
import sys
import time

COLUMNS, ROWS = 84, 12
MESSAGE = "Write two sentences about the sea."
OPTIONS = ["-n", "60", "--temp", "0", "-b", "opencl", "--inject", "device=opencl:0;op=attention;nth=700;kind=lost"]
# Pixels of a character, and of the frame.
WIDTH, HEIGHT, MARGIN = 8, 18, 12
# Seconds that each typed character takes, and seconds after which a pause is cut.
TYPING, LONGEST_PAUSE = 0.04, 1.5


def record(program: str, model: str) -> list[tuple[float, str]]:
    """Texts that are shown, each with the seconds at which it came."""
    shown = f"$ rustorch-cli chat -m {os.path.basename(model)} -b opencl --inject …\n> "
    events = [(0.0, shown)]
    events += [((i + 1) * TYPING, character) for i, character in enumerate(MESSAGE + "\n")]
    command = [program, "chat", "-m", model, *OPTIONS]
    # Pipes show no progress bars.
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    child.stdin.write(f"{MESSAGE}\n".encode())
    child.stdin.close()
    now, last = events[-1][0], time.monotonic()
    pending = b""
    while data := os.read(child.stdout.fileno(), 65536):
        arrived = time.monotonic()
        now, last = now + min(arrived - last, LONGEST_PAUSE), arrived
        pending += data
        try:
            events.append((now, pending.decode()))
            pending = b""
        except UnicodeDecodeError:  # the rest of a character follows
            continue
    if child.wait() != 0:
        sys.exit(f"{' '.join(command)}: status {child.returncode}")
    return events


def cast(events: list[tuple[float, str]]) -> str:
    header = {"version": 2, "width": COLUMNS, "height": ROWS, "title": "A chat goes on while its device is lost"}
    lines = [json.dumps(header)]
    for at, text in events:
        text = text.replace("\r\n", "\n").replace("\n", "\r\n")
        lines.append(json.dumps([round(at, 3), "o", text], ensure_ascii=False))
    return "\n".join(lines) + "\n"


def cells(events: list[tuple[float, str]]) -> list[list[tuple[float, str]]]:
    """Rows of characters, each with the seconds at which it appears. Lines break between words."""
    lines: list[list[tuple[float, str]]] = [[]]
    for at, text in events:
        for character in text.replace("\r", ""):
            if character == "\n":
                lines.append([])
                continue
            lines[-1].append((at, character))
            if len(lines[-1]) > COLUMNS:
                line = lines[-1]
                spaces = [i for i, (_, c) in enumerate(line) if c == " "]
                cut = spaces[-1] + 1 if spaces else COLUMNS
                lines[-1:] = [line[:cut], line[cut:]]
    return [line for i, line in enumerate(lines) if line or i + 1 < len(lines)]


def svg(events: list[tuple[float, str]]) -> str:
    lines = cells(events)
    width, height = COLUMNS * WIDTH + 2 * MARGIN, len(lines) * HEIGHT + 2 * MARGIN
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" xml:space="preserve" font-family="monospace" font-size="13">',
        "<title>A chat goes on while its device is lost</title>",
        # If animations are not played, all of the text is there.
        "<style>text{fill:#d8dee9;white-space:pre;animation:come .01s backwards}.w{fill:#ebcb8b}"
        "@keyframes come{from{opacity:0}}</style>",
        f'<rect width="{width}" height="{height}" rx="6" fill="#20242c"/>',
    ]
    for row, line in enumerate(lines):
        text = "".join(character for _, character in line)
        warning = text.find("warning:")
        start = 0
        while start < len(line):
            end = start + 1
            while end < len(line) and line[end][0] == line[start][0] and end != warning:
                end += 1
            mark = ' class="w"' if 0 <= warning <= start else ""
            x, y = MARGIN + start * WIDTH, MARGIN + (row + 1) * HEIGHT - 5
            part = html.escape(text[start:end])
            length = (end - start) * WIDTH
            out.append(
                f'<text{mark} x="{x}" y="{y}" textLength="{length}" style="animation-delay:{line[start][0]:.2f}s">{part}</text>'
            )
            start = end
    return "\n".join([*out, "</svg>"]) + "\n"


def main() -> None:
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    program, model, out = sys.argv[1:]
    events = record(program, model)
    for name, text in ((f"{out}.cast", cast(events)), (f"{out}.svg", svg(events))):
        with open(name, "w") as file:
            file.write(text)


if __name__ == "__main__":
    main()
