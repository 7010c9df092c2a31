#!/usr/bin/env python3
"""Scientific workflows as jobs: from WfFormat (wfcommons.org) to a definition.

  wfcommons.py montage 100 > montage.json                  a mosaic of 100 images: 402 tasks
  wfcommons.py convert montage.json --dir /shared/run1 > montage.yaml
  perdure submit montage.yaml
  wfcommons.py check montage.json --dir /shared/run1       after it is done: has each file the right content?

A task of the definition reads its input files, takes as long as the recorded run (--speed 10: a tenth), and writes its output
files; each holds the SHA-256 of the task's name and of its inputs. So the last file proves that every task has read the right
files. `expected` computes them without running anything. To undo a task is to delete its output files.

Files are in a directory that all hosts share (--dir). Python 3.9 or later; no packages.
"""

import argparse
import hashlib
import json
import os
import re
import signal
import sys

# The program of every task: directory, seconds, input files, output files. A repetition finds its own files, and replaces them;
# it deletes what a run has left that was killed while it wrote.
TASK = """
cd "$1" || exit 75
for f in $3; do [ -s "$f" ] || { echo "$f is missing" >&2; exit 66; }; done
sleep "$2"
for f in $4; do
  rm -f "$f".part.*
  { echo "$5 $f"; cat /dev/null $3; } | sha256sum > "$f.part.$$" && mv "$f.part.$$" "$f" || exit 74
done
"""

# Deletes files, also incomplete ones: directory, files.
UNDO = 'cd "$1" && shift && for f in "$@"; do rm -f "$f" "$f".part.*; done'

STAGE = "stage"  # the step that writes the files that no task writes


def montage(images):
    """The shape of Montage, which makes a mosaic of images of the sky: each is projected, overlapping ones are compared,
    brightness is corrected, and all are added."""
    tasks = []

    def task(name, seconds, reads, writes):
        tasks.append({"name": name, "id": name, "inputFiles": reads, "outputFiles": writes, "runtimeInSeconds": seconds})

    number = range(images)
    for i in number:
        task(f"mProject_{i}", 12, [f"raw_{i}.fits"], [f"proj_{i}.fits"])
    pairs = [(i, i + n) for i in number for n in (1, 2) if i + n < images]
    for i, j in pairs:
        task(f"mDiffFit_{i}_{j}", 4, [f"proj_{i}.fits", f"proj_{j}.fits"], [f"diff_{i}_{j}.txt"])
    task("mConcatFit", 20, [f"diff_{i}_{j}.txt" for i, j in pairs], ["fits.tbl"])
    task("mBgModel", 30, ["fits.tbl"], ["corrections.tbl"])
    for i in number:
        task(f"mBackground_{i}", 4, [f"proj_{i}.fits", "corrections.tbl"], [f"bg_{i}.fits"])
    task("mImgtbl", 10, [f"bg_{i}.fits" for i in number], ["images.tbl"])
    task("mAdd", 40, ["images.tbl"] + [f"bg_{i}.fits" for i in number], ["mosaic.fits"])
    task("mViewer", 10, ["mosaic.fits"], ["mosaic.png"])
    writer = {f: t["id"] for t in tasks for f in t["outputFiles"]}
    for t in tasks:
        t["parents"] = sorted({writer[f] for f in t["inputFiles"] if f in writer})
    times = [{"id": t["id"], "runtimeInSeconds": t.pop("runtimeInSeconds")} for t in tasks]
    return {"name": f"montage-{images}", "schemaVersion": "1.5",
            "workflow": {"specification": {"tasks": tasks}, "execution": {"tasks": times}}}


class Task:
    def __init__(self, spec, seconds):
        self.id = spec["id"]
        self.step = re.sub(r"\W", "_", spec["id"], flags=re.ASCII)
        self.reads = sorted({file_name(f) for f in spec.get("inputFiles", [])})
        self.writes = sorted({file_name(f) for f in spec.get("outputFiles", [])} - set(self.reads))
        self.parents = spec.get("parents", [])
        self.seconds = seconds


def file_name(f):
    return re.sub(r"[^A-Za-z0-9._-]", "_", f)


def read(path):
    """Reads an instance: WfFormat 1.5, of which only what is needed here."""
    try:
        with open(path, encoding="utf-8") if path != "-" else sys.stdin as f:
            workflow = json.load(f)["workflow"]
    except OSError as e:
        sys.exit(f"{path}: {e.strerror}")
    except (ValueError, KeyError, TypeError):
        sys.exit(f"{path}: no instance in WfFormat")
    seconds = {t["id"]: t.get("runtimeInSeconds", 0) for t in workflow.get("execution", {}).get("tasks", [])}
    tasks = [Task(t, seconds.get(t["id"], 0)) for t in workflow["specification"]["tasks"]]
    by_id = {t.id: t for t in tasks}
    if len({t.step for t in tasks} | {STAGE}) != len(tasks) + 1:
        sys.exit("two tasks would have one step name")
    written = {f for t in tasks for f in t.writes}
    for t in tasks:
        t.parents = sorted(by_id[p].step for p in t.parents)
    return tasks, sorted({f for t in tasks for f in t.reads} - written)


def definition(args):
    tasks, staged = read(args.file)
    run = ["sh", "-c", "${input.task}", "task", "${input.dir}"]

    def step(seconds, reads, writes, name):
        s = {"agent": args.agent, "with": {"command": run + [f"{seconds:g}", " ".join(reads), " ".join(writes), name]}}
        if writes:
            s["undo"] = {"with": {"command": ["sh", "-c", UNDO, "rm", "${input.dir}", *writes]}}
        if args.requires:
            s["requires"] = args.requires
        return s

    if not os.path.isdir(args.dir):
        print(f"{args.dir} is no directory of this machine: make it before the job is submitted", file=sys.stderr)
    steps = {STAGE: step(0, [], staged, STAGE)}
    for t in tasks:
        s = steps[t.step] = step(t.seconds / args.speed, t.reads, t.writes, t.step)
        s["after"] = t.parents or [STAGE]
    return {"type": "wfcommons", "input": {"dir": args.dir, "task": TASK}, "steps": steps}


def expected(args):
    """The content of every file, computed without running anything."""
    tasks, staged = read(args.file)
    content = {}

    def write(step, reads, writes):
        for f in writes:
            text = f"{step} {f}\n".encode() + b"".join(content[r] for r in reads)
            content[f] = hashlib.sha256(text).hexdigest().encode() + b"  -\n"

    write(STAGE, [], staged)
    left = {t.step: t for t in tasks}
    while left:
        ready = [t for t in left.values() if not any(p in left for p in t.parents)]
        if not ready:
            sys.exit("the tasks form a cycle")
        for t in ready:
            write(t.step, t.reads, t.writes)
            del left[t.step]
    return {f: c.decode().split()[0] for f, c in sorted(content.items())}


def check(args):
    """Compares the files of a directory with what they must hold."""
    if not os.path.isdir(args.dir):
        sys.exit(f"{args.dir} is no directory")
    want = expected(args)
    wrong = []
    for f, sha in want.items():
        try:
            with open(os.path.join(args.dir, f)) as opened:
                found = opened.read().split()[:1]
            if found != [sha]:
                wrong.append(f + ": wrong content")
        except OSError as e:
            wrong.append(f"{f}: {e.strerror}")
    wrong += [f + ": no file of the workflow" for f in sorted(set(os.listdir(args.dir)) - set(want))]
    if wrong:
        sys.exit("\n".join(wrong))
    print(f"{len(want)} files, each with the content that it must have")


def checked(read, valid, requirement):
    """Returns the function that reads an argument, and refuses what is not valid."""
    def value(text):
        try:
            result = read(text)
        except ValueError:
            result = None
        if result is None or not valid(result):
            raise argparse.ArgumentTypeError(requirement)
        return result
    return value


def main():
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # of "| head"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    images = checked(int, lambda n: n >= 3, "must be a number from 3 on")
    directory = checked(str, os.path.isabs, "must begin with /, because commands run in directories of their own")
    speed = checked(float, lambda n: 0 < n < float("inf"), "must be a number above 0")
    requires = checked(json.loads, lambda v: isinstance(v, dict), "must be an object in JSON")
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    p = verbs.add_parser("montage", help="prints an instance in the shape of Montage")
    p.add_argument("images", type=images, help="number of images, from 3 on")
    p.set_defaults(run=lambda args: montage(args.images))
    p = verbs.add_parser("convert", help="prints the definition of an instance")
    p.add_argument("file", help="instance in WfFormat; -: standard input")
    p.add_argument("--dir", required=True, type=directory, help="directory that all hosts share; it must exist")
    p.add_argument("--speed", type=speed, default=1, help="how many times as fast as the recorded run (default 1)")
    p.add_argument("--agent", default="exec", help="agent of all steps (default exec)")
    p.add_argument("--requires", type=requires, metavar="JSON", help='what each step requires of its host, e.g. \'{"cpu": 1}\'')
    p.set_defaults(run=definition)
    p = verbs.add_parser("expected", help="prints the SHA-256 that each file will hold")
    p.add_argument("file")
    p.set_defaults(run=expected)
    p = verbs.add_parser("check", help="compares the files of a directory with what they must hold")
    p.add_argument("file")
    p.add_argument("--dir", required=True)
    p.set_defaults(run=check)
    args = parser.parse_args()
    result = args.run(args)
    if result is not None:
        json.dump(result, sys.stdout, indent=1)
        print()


if __name__ == "__main__":
    main()
