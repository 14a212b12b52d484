#!/usr/bin/env python3
"""Two builds of rustorch-cli in turns: which operations are slower in the second one?

scripts/compare.py OLD NEW [--rounds N] [OPTIONS OF `rustorch-cli bench --ops`...]

OLD and NEW are programs; `scripts/compare.sh` builds commits. In each round both measure all operations, one right
after the other, in the one order and the other by turns. A round's ratio of an operation is its time in NEW over that in
OLD. An operation is slower if its median ratio is above 1.02, and so is the lower end of the interval that has
the true median at 99 % (order statistics of the binomial distribution: no form of the noise is assumed), and faster
likewise. Exits with 1 if one is slower, with 2 if nothing could be compared.
"""

import argparse
import json
import math
import statistics
import subprocess
import sys

# What is not worth telling, as a ratio.
LEAST = 1.02
# How sure the interval is.
SURE = 0.99


def measure(program, options):
    """Seconds by what was measured."""
    if not any(option.startswith("--ops") for option in options):
        options = ["--ops", *options]
    command = [program, "bench", "--output", "json", *options]
    try:
        ran = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    except OSError as error:
        print(f"{program}: {error.strerror}", file=sys.stderr)
        sys.exit(2)
    if ran.returncode:
        # The program has said why; 1 means that something is slower.
        sys.exit(2)
    rows = json.loads(ran.stdout)["measured"]
    return {tuple(row[key] for key in ("device", "case", "dtype", "size")): row["seconds"] for row in rows}


def interval(ratios):
    """The ends of the interval that has the median: the k-th least and the k-th greatest; none if there are too few."""
    ratios, n = sorted(ratios), len(ratios)
    outside, k = 0.0, 0
    while k < n // 2:
        outside += 2 * math.comb(n, k) / 2**n
        if outside > 1 - SURE:
            break
        k += 1
    return (ratios[k - 1], ratios[n - k]) if k else None


def verdict(ratios):
    """"slower", "faster" or nothing."""
    ends = interval(ratios)
    middle = statistics.median(ratios)
    if ends and min(ends[0], middle) > LEAST:
        return "slower"
    if ends and max(ends[1], middle) < 1 / LEAST:
        return "faster"
    return ""


def main():
    parser = argparse.ArgumentParser(usage="compare.py OLD NEW [--rounds N] [OPTIONS...]")
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--rounds", type=int, default=15, help="at least 8")
    args, options = parser.parse_known_args()
    if args.rounds < 8:
        parser.error("--rounds: with fewer than 8 nothing is sure")
    rounds = []
    for number in range(args.rounds):
        programs = [args.old, args.new]
        times = [measure(program, options) for program in programs[:: 1 if number % 2 == 0 else -1]]
        rounds.append(times if number % 2 == 0 else times[::-1])
        print(f"round {number + 1} of {args.rounds}", file=sys.stderr)
    both = set(rounds[0][0]) & set(rounds[0][1])
    print("| device | operation | type | size | old | new | ratio | sure | |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    slower = 0
    for key in [key for key in rounds[0][0] if key in both]:
        old, new = ([times[side][key] for times in rounds] for side in (0, 1))
        ratios = [b / a for a, b in zip(old, new)]
        said, ends = verdict(ratios), interval(ratios)
        slower += said == "slower"
        old, new = (f"{1e6 * statistics.median(times):.1f} µs" for times in (old, new))
        ratio, ends = f"{statistics.median(ratios):.3f}", f"{ends[0]:.3f} to {ends[1]:.3f}"
        print("|", " | ".join([*map(str, key), old, new, ratio, ends, said]), "|")
    print(f"\n{slower} slower, of {len(both)}")
    sys.exit(1 if slower else 0)


if __name__ == "__main__":
    main()
