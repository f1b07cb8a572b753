"""Run the benchmarks of speed one after another, and print a table of their last lines."""

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent

LONG = (
    *("classes", "defaults", "files", "kills", "labels", "networks", "objectives"),
    *("probabilities", "serve", "time_to_recall", "tradeoff"),
)
"""These are slow, or have options: run each alone."""


def main() -> None:
    load = os.getloadavg()[0]
    if load > 0.5:
        print(f"The machine is busy (load {load:.1f}): expect noisy ratios.", flush=True)
    rows, failed = [], False
    programs = [path for path in sorted(HERE.glob("[a-z]*.py")) if path.stem not in LONG]
    for program in programs:
        print(f"==> {program.name}", flush=True)
        run = subprocess.Popen(
            [sys.executable, str(program), *sys.argv[1:]], stdout=subprocess.PIPE, text=True
        )
        last = ""
        for line in run.stdout:
            print(f"    {line}", end="", flush=True)
            last = line.strip() or last
        failed = failed or run.wait() != 0
        rows.append((program.stem, last if run.returncode == 0 else f"failed: {run.returncode}"))
    width = max(len(name) for name, _ in rows)
    print()
    for name, last in rows:
        print(f"{name:{width}}  {last}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
