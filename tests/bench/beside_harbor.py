#!/usr/bin/env python3
"""Twenty oracle trials, two at a time, by pilothouse and by Harbor, on the same machine and tasks.

    PILOTHOUSE_HARBOR=/path/to/harbor tests/bench/beside_harbor.py [--only pilothouse|harbor] [--rounds N]
                                                                   [--floor PROGRAM]

Wants a Docker engine, Harbor (0.21 or later), Python 3.9, and the shared recordings (`PILOTHOUSE_SHARED`,
else `../shared` or `../../shared` beside the checkout) whose tasks `hello-file`, `count-errors`, `csv-sum`
and `json-merge` are run five times each; their image is made by `data/tools/build-base-image.sh`. The
program is `PILOTHOUSE_BIN`, else the one in `target/release` or `target/quick`.

With `--floor` the benchmark `floor` (a program in `target/release/deps`, built by `cargo bench --bench floor
--no-run`) runs in turn with them: the bare calls to the engine, without any harness and without a file written.
What it costs in this hour is shown beside the limit, which was measured once.

Measured of each: wall clock from start to end; processor time of the harness and of all children that it
waited for (the engine's own is left out: both cause the same); the largest sum of proportional memory
(PSS) over the harness and its descendants, looked at ten times a second, and the largest part of it that
no file stands behind: what was allocated, without the pages of programs and libraries. Printed as figures
and as ratios, beside what is aimed at. Exit code 1 when a job did not end with twenty rewards of 1, or a ratio lies
above its aim.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

TASKS = ["hello-file", "count-errors", "csv-sum", "json-merge"]
TRIALS = 20
# Ratios to Harbor's figures.
AIMS = {"wall": 0.08, "cpu": 0.01, "memory": 0.15}
# What the native way costs at least, measured beforehand without any harness (two at a time, 2 cores, Docker
# 20.10): seconds, seconds of CPU for all trials, MiB allocated; and how far above it a harness may lie.
FLOOR = {"wall": 10.0, "cpu": 0.005 * TRIALS, "allocated": 4.0}
SLACK = 1.5
HERE = Path(__file__).resolve().parents[2]


def shared():
    named = os.environ.get("PILOTHOUSE_SHARED")
    for place in filter(None, [named, HERE / "../shared", HERE / "../../shared"]):
        if (Path(place) / "data/tasks").is_dir():
            return Path(place).resolve()
    sys.exit("no shared recordings: set PILOTHOUSE_SHARED to the folder that holds data/tasks")


def program():
    named = os.environ.get("PILOTHOUSE_BIN")
    for place in filter(None, [named, HERE / "target/release/pilothouse", HERE / "target/quick/pilothouse"]):
        if Path(place).is_file():
            return Path(place).resolve()
    sys.exit("no program: cargo build --release, or set PILOTHOUSE_BIN")


def descendants(pid):
    """A process and all below it."""
    out, todo = [], [pid]
    while todo:
        one = todo.pop()
        out.append(one)
        try:
            for task in os.listdir(f"/proc/{one}/task"):
                todo += [int(child) for child in Path(f"/proc/{one}/task/{task}/children").read_text().split()]
        except OSError:
            # It ended while it was looked at.
            pass
    return out


def memory_of(pid):
    """Proportional memory in KiB, of all pages and of the anonymous ones; 0 for a process that is gone."""
    found = {}
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            name, _, rest = line.partition(":")
            if name in ("Pss", "Pss_Anon"):
                found[name] = int(rest.split()[0])
    except OSError:
        pass
    return found.get("Pss", 0), found.get("Pss_Anon", 0)


def measure(command, cwd):
    """Runs it to its end: wall and processor seconds, peak MiB."""
    peak, over = [0, 0], threading.Event()
    begin = time.monotonic()
    with open(cwd / "said", "wb") as said:
        child = subprocess.Popen(command, cwd=cwd, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT)

    def watch():
        while not over.wait(0.1):
            looks = [memory_of(pid) for pid in descendants(child.pid)]
            peak[:] = [max(peak[at], sum(look[at] for look in looks)) for at in (0, 1)]

    watcher = threading.Thread(target=watch)
    watcher.start()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    wall = time.monotonic() - begin
    over.set()
    watcher.join()
    if child.returncode != 0:
        sys.exit(f"{command[0]} ended with {child.returncode}:\n{(cwd / 'said').read_text(errors='replace')[-2000:]}")
    return {"wall": wall, "cpu": usage.ru_utime + usage.ru_stime, "memory": peak[0] / 1024,
            "allocated": peak[1] / 1024}


def check(job):
    """Twenty trials, each with reward 1."""
    rewards = []
    for result in job.glob("*/result.json"):
        document = json.loads(result.read_text())
        rewards.append(((document.get("verifier_result") or {}).get("rewards") or {}).get("reward"))
    if len(rewards) != TRIALS or any(reward != 1 for reward in rewards):
        sys.exit(f"{job}: not twenty rewards of 1: {rewards}")


def bare(binary, root):
    return shown("bare calls", measure([str(Path(binary).resolve())], Path(tempfile.mkdtemp(dir=root))))


def shown(name, figures):
    print(f"{name:<11} {figures['wall']:8.2f} s wall  {figures['cpu']:8.3f} s CPU  {figures['memory']:8.1f} MiB, "
          f"{figures['allocated']:.1f} of them allocated", flush=True)
    return figures


def run(name, binary, root, tasks, extra):
    cwd = Path(tempfile.mkdtemp(dir=root))
    # Harbor's paths are relative to where it is started.
    (cwd / "tasks").symlink_to(tasks)
    args = ["run", "-p", "tasks", "-a", "oracle", "-k", "5", "-n", "2", "-o", "jobs", "--job-name", name, "-y"]
    for task in TASKS:
        args += ["-i", task]
    figures = measure([str(binary), *args, *extra], cwd)
    check(cwd / "jobs" / name)
    return shown(name, figures)


def main():
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--only", choices=["pilothouse", "harbor"])
    ask.add_argument("--rounds", type=int, default=1, help="the best of so many counts")
    ask.add_argument("--floor", help="the program of the benchmark `floor`")
    asked = ask.parse_args()
    tasks = shared() / "data/tasks"
    os.environ.setdefault("HARBOR_TELEMETRY", "0")
    best = {}
    runs = {}
    if asked.only != "harbor":
        runs["pilothouse"] = (program(), ["--headless"])
    if asked.only != "pilothouse":
        harbor = os.environ.get("PILOTHOUSE_HARBOR") or sys.exit("set PILOTHOUSE_HARBOR to Harbor's program")
        runs["harbor"] = (harbor, [])
    load = os.getloadavg()[0]
    if load > 1:
        print(f"the machine is not quiet: load {load:.1f}")
    # Removed at the end: a file system may make files dearer for minutes after others were removed (ext4 without
    # a journal does).
    with tempfile.TemporaryDirectory(prefix="beside-harbor-") as root:
        for _ in range(asked.rounds):
            for name in (["bare"] if asked.floor else []) + list(runs):
                if name == "bare":
                    found = bare(asked.floor, root)
                else:
                    found = run(name, runs[name][0], root, tasks, runs[name][1])
                best[name] = {key: min(value, best.get(name, found)[key]) for key, value in found.items()}
    over = False
    if "pilothouse" in best and "harbor" in best:
        for key, aim in AIMS.items():
            ratio = best["pilothouse"][key] / best["harbor"][key]
            over |= ratio > aim
            print(f"{key:<9} ratio {ratio:.4f}, aim {aim}: {'reached' if ratio <= aim else 'MISSED'}")
    if "pilothouse" in best:
        for key, floor in FLOOR.items():
            times = best["pilothouse"][key] / floor
            print(f"{key:<9} {times:.2f} times the measured limit ({floor:.3g}), aim {SLACK}: "
                  f"{'reached' if times <= SLACK else 'MISSED'}")
            # What a program allocates does not hang on the hour.
            if "bare" in best and key != "allocated":
                print(f"{'':<9} {best['pilothouse'][key] / best['bare'][key]:.2f} times the bare calls of this hour "
                      f"({best['bare'][key]:.3g})")
    sys.exit(1 if over else 0)


if __name__ == "__main__":
    main()
