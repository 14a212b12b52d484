#!/usr/bin/env python3
"""RusTorch beside llama.cpp on the CPU: each row's programs in turn, on the same file.

scripts/peer-llama.py --build              builds llama.cpp 0.5.0 in target/peers (cmake, a C++
                                           compiler, pip; about 20 minutes on 2 cores)
scripts/peer-llama.py [--rounds 3] [-t 2] [ROW...]

A ROW is a file's type, `depth`, `classics`, `avx2` or `memory`; without any, all of them. The
files have the shape of TinyLlama-1.1B and random weights; they are made in target/peers (7 GB).
RusTorch is what `cargo build --release` made. llama.cpp is measured with each of its settings
(`--repack`, at depth also `-fa`), of which the one with the best median counts.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PEERS = ROOT / "target" / "peers"
OURS = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "rustorch-cli"
SOURCE = "llama-cpp-python==0.3.36"
TYPES = ["q4_k_m", "q5_k_m", "q6_k", "q8_0", "f16"]
CLASSICS = ROOT / "models" / "classics-13m-Q4_K_M.gguf"

# AMX is left out: this version faults in it.
AVX2 = ["AVX", "AVX2", "FMA", "F16C", "BMI2"]
AVX512 = AVX2 + ["AVX512", "AVX512_VBMI", "AVX512_VNNI", "AVX512_BF16", "AVX_VNNI"]
BUILDS = {"avx512": AVX512, "avx2": AVX2}


def build():
    PEERS.mkdir(parents=True, exist_ok=True)
    pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", ":all:"]
    subprocess.run([*pip, "--no-build-isolation", "-d", PEERS, SOURCE], check=True)
    (archive,) = PEERS.glob("llama_cpp_python-*.tar.gz")
    subprocess.run(["tar", "xzf", archive, "-C", PEERS], check=True)
    (source,) = PEERS.glob("llama_cpp_python-*/vendor/llama.cpp")
    for name, features in BUILDS.items():
        options = ["-DCMAKE_BUILD_TYPE=Release", "-DGGML_NATIVE=OFF", "-DLLAMA_CURL=OFF"]
        options += [f"-DGGML_{feature}=ON" for feature in features]
        subprocess.run(["cmake", "-S", source, "-B", PEERS / name, *options], check=True)
        target = ["--target", "llama-bench", "-j", str(os.cpu_count())]
        subprocess.run(["cmake", "--build", PEERS / name, *target], check=True)


def model(quant):
    """A file of the type, made where it is missing."""
    path = PEERS / f"tinyllama-{quant}.gguf"
    if not path.exists():
        PEERS.mkdir(parents=True, exist_ok=True)
        preset = ["--preset", "tinyllama-1.1b", "--quant", quant, "--save", path]
        run([OURS, "bench", *preset, "-p", "0", "-n", "1", "-r", "1"])
    return path


def run(command, **variables):
    environment = {**os.environ, **variables}
    command = [str(word) for word in command]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    return done.stdout


def speeds(output):
    """Tokens a second of a bench's tests, the medians of their repetitions: prompt, decode, both or
    one of them."""
    name = lambda row: "decode" if row["n_gen"] else "prompt"
    return {name(row): statistics.median(row["samples_ts"]) for row in json.loads(output)}


class Row:
    """A file with a test, and the settings of the peer that are tried."""

    def __init__(self, name, file, test, settings, build="avx512", level=None):
        self.name, self.file, self.test, self.settings = name, file, test, settings
        self.bench = PEERS / build / "bin" / "llama-bench"
        self.level = {"RUSTORCH_CPU_LEVEL": level} if level else {}

    def measure(self, rounds, threads):
        common = ["-m", self.file, *self.test, "-t", threads, "-o", "json"]
        ours, theirs = [], [[] for _ in self.settings]
        for _ in range(rounds):
            ours.append(speeds(run([OURS, "bench", *common, "-b", "cpu"], **self.level)))
            for results, setting in zip(theirs, self.settings):
                results.append(speeds(run([self.bench, *common, *setting])))
        for test in ours[0]:
            median = lambda results: statistics.median(result[test] for result in results)
            best = max(range(len(theirs)), key=lambda i: median(theirs[i]))
            ratios = [a[test] / b[test] for a, b in zip(ours, theirs[best])]
            cells = [
                f"{self.name} {test}",
                " · ".join(f"{result[test]:.4g}" for result in ours),
                " · ".join(f"{result[test]:.4g}" for result in theirs[best]),
                " ".join(self.settings[best]),
                f"{statistics.median(ratios):.2f}",
            ]
            print(f"| {' | '.join(cells)} |", flush=True)


REPACK = [["--repack", "1"], ["--repack", "0"]]
PLAIN = ["-p", "512", "-n", "64", "-r", "1"]


def rows():
    """Names, and what makes the row: files are made for the rows that are wanted."""
    for quant in TYPES:
        yield quant, lambda: Row(quant, model(quant), PLAIN, REPACK)
    deep = [*PLAIN, "-d", "1024"]
    flash = [["-fa", "0"], ["-fa", "1"]]
    yield "depth", lambda: Row("q4_k_m at depth 1024", model("q4_k_m"), deep, flash)
    # A repetition takes some tens of milliseconds.
    classics = ["-p", "512", "-n", "128", "-r", "25"]
    yield "classics", lambda: Row("classics-13m", CLASSICS, classics, REPACK)
    for quant in ["q4_k_m", "q8_0"]:
        name = f"{quant}, AVX2 only"
        yield "avx2", lambda: Row(name, model(quant), PLAIN, REPACK, "avx2", "avx2")


def memory():
    """The peak of resident memory with a prompt of 512 tokens, in MiB."""
    ids = ",".join(str(1 + i % 1000) for i in range(512))
    for quant in TYPES:
        path = model(quant)
        process = subprocess.Popen(
            [OURS, "logits", "-m", path, "--ids", ids, "--last", "-b", "cpu"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        _, status, usage = os.wait4(process.pid, 0)
        if status != 0:
            sys.exit(f"no logits of {path}")
        file = path.stat().st_size / (1 << 20)
        print(f"| {quant} | {usage.ru_maxrss / 1024:.0f} | {1.15 * (file + 44):.0f} |", flush=True)


def main():
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--build", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("-t", "--threads", default="2")
    parser.add_argument("rows", nargs="*")
    args = parser.parse_args()
    if args.build:
        return build()
    wanted = lambda name: not args.rows or name in args.rows
    print("| row | RusTorch tok/s | llama.cpp tok/s | its setting | median ratio |")
    print("| --- | --- | --- | --- | --- |")
    for name, make in rows():
        if wanted(name):
            make().measure(args.rounds, args.threads)
    if wanted("memory"):
        print("\n| file | peak MiB | file + KV cache + 15 % |\n| --- | --- | --- |")
        memory()


if __name__ == "__main__":
    main()
