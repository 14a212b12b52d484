#!/usr/bin/env python3
"""Two builds of rustorch-cli in turns: which operations are slower in the second one?

scripts/compare.py OLD NEW [--rounds N] [--seconds S] [OPTIONS OF `rustorch-cli bench --ops`...]
scripts/compare.py OLD NEW --instructions [OPTIONS...]

OLD and NEW are programs; `scripts/compare.sh` builds commits.

Both run at the same time, and compute an operation by turns of about a millisecond, the one first and the other first by
turns, so that what else the machine does hits both. The ratio of an operation is its time in NEW over that in OLD. Of a
round it is that of the least times, as what else the machine does only makes turns longer; each round starts both programs
anew, as where their memory comes to be makes a difference, too. An operation is slower if the median of its rounds is above 1.02, and so is the lower end of the
interval that has the true median at 99 % (order statistics of the binomial distribution: no form of the noise is
assumed), and faster likewise.

Of operations on the processor that is told twice, on Linux: by the clock, and by the time that the program had of processors,
which leaves out what other programs took meanwhile. `-t 1` makes both surer. An operation is slower if either says so.

With --instructions instructions of the processor are counted instead, by valgrind, of each operation's smallest size on
one thread with kernels for AVX2. They are nearly the same in every run, so that 1 % more is slower; but they do not
tell what waits for memory. What takes 2 % more of a run in planning, replaying or sampling, the test `instructions`
finds.

Exits with 1 if something is slower, with 2 if nothing could be compared.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time

# What is not worth telling, as a ratio: of times, and of instructions.
LEAST = 1.02
LEAST_INSTRUCTIONS = 1.01
# How sure the interval is.
SURE = 0.99
# Seconds of a turn.
TURN = 0.001
# Seconds of work whose instructions are counted, without valgrind.
COUNTED = 0.02


class Program:
    """A program that computes operations when it is asked to."""

    def __init__(self, path, options):
        if not any(option.startswith("--ops") for option in options):
            options = ["--ops", *options]
        self.command = [path, "bench", *options, "--on-request"]
        try:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
            )
        except OSError as error:
            fail(f"{path}: {error.strerror}")
        self.cases = {tuple(case): index for index, case in enumerate(self.answer())}
        # The clock that counts this process's time on processors; see clock_getcpuclockid(3).
        self.clock = (~self.process.pid << 3) | 2 if sys.platform == "linux" else None

    def answer(self):
        line = self.process.stdout.readline()
        # A program that ends has said why.
        return json.loads(line) if line else fail(f"{self.command[0]} ended")

    def seconds(self, case, runs):
        """The time of so many runs."""
        self.process.stdin.write(f"{self.cases[case]} {runs}\n")
        self.process.stdin.flush()
        return self.answer()

    def times(self, case, runs):
        """The same by the clock, and on processors, which is infinite where nobody tells."""
        before = time.clock_gettime(self.clock) if self.clock else math.inf
        seconds = self.seconds(case, runs)
        return seconds, time.clock_gettime(self.clock) - before if self.clock else math.inf

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def fail(why):
    print(why, file=sys.stderr)
    sys.exit(2)


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


def runs_of(program, case, seconds):
    """How many runs take so long."""
    program.seconds(case, 3)
    one = program.seconds(case, 1)
    return max(1, round(seconds / max(one, 1e-9)))


def turns(programs, case, seconds):
    """The least seconds of a run in both programs: by the clock, and on processors."""
    runs = max(runs_of(program, case, TURN) for program in programs)
    end = time.monotonic() + seconds
    least, pairs = [(math.inf, math.inf)] * 2, 0
    while pairs < 4 or time.monotonic() < end:
        for side in (0, 1) if pairs % 2 == 0 else (1, 0):
            its = programs[side].times(case, runs)
            least[side] = tuple(min(a, b / runs) for a, b in zip(least[side], its))
        pairs += 1
    return list(zip(*least))


def both_have(programs):
    """The cases of both programs, in the first one's order."""
    cases = [case for case in programs[0].cases if case in programs[1].cases]
    return cases or fail("the programs have no operation in common")


def compare_times(args, options):
    rounds = {}
    for number in range(args.rounds):
        programs = [Program(args.old, options), Program(args.new, options)]
        for case in both_have(programs):
            rounds.setdefault(case, []).append(turns(programs, case, args.seconds))
        for program in programs:
            program.end()
        print(f"round {number + 1} of {args.rounds}", file=sys.stderr)
    print("| device | operation | type | size | old | new | ratio | sure | | on processors | sure | |")
    print("| --- " * 12 + "|")
    slower = 0
    for case, least in rounds.items():
        clock, processors = zip(*least)
        old, new = (f"{1e6 * statistics.median(side):.1f} µs" for side in zip(*clock))
        row, all_said = [*map(str, case), old, new], []
        # Elsewhere the processor only waits.
        for its in (clock, processors if case[0] == "cpu" else []):
            ratios = [new / old for old, new in its if math.isfinite(new)]
            if not ratios:
                row += ["-"] * 3
                continue
            said, ends = verdict(ratios), interval(ratios)
            row += [f"{statistics.median(ratios):.3f}", f"{ends[0]:.3f} to {ends[1]:.3f}", said]
            all_said.append(said)
        slower += "slower" in all_said
        print("|", " | ".join(row), "|")
    return slower, len(rounds)


def instructions(program, case, runs):
    """The instructions that a program takes for so many runs of a case, its beginning and end included."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "callgrind.out")
        valgrind = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}"]
        environment = {**os.environ, "RUSTORCH_CPU_LEVEL": "avx2"}
        try:
            ran = subprocess.run(
                [*valgrind, *program.command],
                input=f"{program.cases[case]} {runs}\n",
                env=environment,
                capture_output=True,
                text=True,
            )
        except OSError as error:
            fail(f"valgrind: {error.strerror}")
        if ran.returncode:
            fail(ran.stderr)
        with open(out) as lines:
            return next(int(line.split()[1]) for line in lines if line.startswith("totals: "))


def compare_instructions(args, options):
    options = [*options, "-b", "cpu", "-t", "1"]
    programs = [Program(args.old, options), Program(args.new, options)]
    smallest = {}
    for case in both_have(programs):
        smallest.setdefault(case[:-1], case)
    print("| device | operation | type | size | old | new | ratio | |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    slower = 0
    for case in smallest.values():
        runs = min(2000, runs_of(programs[0], case, COUNTED))
        old, new = ((instructions(p, case, runs + 1) - instructions(p, case, 1)) / runs for p in programs)
        ratio = new / old
        said = "slower" if ratio > LEAST_INSTRUCTIONS else "faster" if ratio < 1 / LEAST_INSTRUCTIONS else ""
        slower += said == "slower"
        row = [*map(str, case), f"{old:.0f}", f"{new:.0f}", f"{ratio:.4f}", said]
        print("|", " | ".join(row), "|", flush=True)
    for program in programs:
        program.end()
    return slower, len(smallest)


def main():
    parser = argparse.ArgumentParser(usage="compare.py OLD NEW [--rounds N] [--seconds S] [--instructions] [OPTIONS...]")
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--rounds", type=int, default=15, help="at least 8")
    parser.add_argument("--seconds", type=float, default=0.2, help="of an operation in a round")
    parser.add_argument("--instructions", action="store_true", help="counted in place of times")
    args, options = parser.parse_known_args()
    if args.rounds < 8:
        parser.error("--rounds: with fewer than 8 nothing is sure")
    compare = compare_instructions if args.instructions else compare_times
    slower, of = compare(args, options)
    print(f"\n{slower} slower, of {of}")
    sys.exit(1 if slower else 0)


if __name__ == "__main__":
    main()
