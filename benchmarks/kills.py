"""Kill runs at random moments and resume them: how many end with the identical model?

Each case is killed with SIGKILL, up to five times, and then resumed to its end. Its model and its
metrics must be the same to the last bit as those of a run that was never interrupted. A third of
the cases are killed while they train, a third around their end, a third are comparisons. Usage:
``python benchmarks/kills.py [KILLS]``; 100 kills take about a quarter of an hour.
"""

import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TRAIN = ["train", "digits", "--imbalance=odd:0.1", "--epochs=40", "--augment=crop", "--device=cpu"]
COMPARE = [
    *("compare", "digits", "--imbalance=odd:0.1", "--epochs=15", "--device=cpu", "--seeds=1"),
    *("--methods=baseline,cosen,crt", "--workers=2"),
]
MOST_KILLS = 5
"""Kills of one case."""


def command(arguments: list[str]) -> list[str]:
    return [sys.executable, "-m", "cosen", *arguments]


def run(arguments: list[str], kill_after: float | None = None) -> tuple[int, float]:
    """Run a command, killed after some seconds; return its exit code and its duration."""
    start = time.perf_counter()
    process = subprocess.Popen(
        command(arguments), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        _, errors = process.communicate(timeout=kill_after)
    except subprocess.TimeoutExpired:
        process.kill()
        _, errors = process.communicate()
    if process.returncode not in (0, -9):
        print(errors)
    return process.returncode, time.perf_counter() - start


def digest(folder: Path) -> str:
    """Hash the models and metrics in a run or study folder."""
    found = hashlib.sha256()
    for path in sorted(folder.rglob("model.safetensors")) + sorted(folder.rglob("metrics.json")):
        found.update(str(path.relative_to(folder)).encode())
        found.update(path.read_bytes())
    return found.hexdigest()


def next_command(start: list[str], folder: Path) -> list[str]:
    """Return the command that starts or resumes a case."""
    if start[0] == "train" and (folder / "run.json").exists():
        return ["train", f"--resume={folder}"]
    return [*start, f"--out={folder}"]


def one_case(start: list[str], folder: Path, moments: list[float]) -> tuple[int, bool]:
    """Kill a case at these moments, in seconds after each start; finish it.

    Returns:
        How many of the kills hit a running process, and whether it could be finished.
    """
    kills = 0
    for moment in moments:
        code, _ = run(next_command(start, folder), kill_after=moment)
        if code == 0:
            return kills, True
        kills += code == -9
        if code not in (0, -9):
            return kills, False
    return kills, run(next_command(start, folder))[0] == 0


def main() -> None:
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    chance = random.Random(0)
    with tempfile.TemporaryDirectory() as scratch:
        os.environ |= {"COSEN_CACHE": str(Path(scratch, "cache")), "OMP_NUM_THREADS": "1"}
        expected, whole, start_up = {}, {}, {}  # by command; the last two in seconds
        for name, start in (("train", TRAIN), ("compare", COMPARE)):
            folder = Path(scratch, f"whole-{name}")
            code, whole[name] = run([*start, f"--out={folder}"])
            assert code == 0, "the undisturbed run failed"
            expected[name] = digest(folder)
            trained = [json.loads(path.read_text()) for path in folder.rglob("run.json")]
            start_up[name] = whole[name] - sum(record["seconds"] for record in trained)
        start_up["compare"] = 2 * start_up["train"]  # its workers start too
        kills, cases, identical, left = 0, 0, 0, 0
        while kills < wanted:
            moment = ("training", "end", "compare")[cases % 3]
            name = "compare" if moment == "compare" else "train"
            first, last = start_up[name], whole[name]
            count = min(MOST_KILLS, wanted - kills)
            moments = [chance.uniform(first, last) for _ in range(count)]
            if moment == "end":  # a run killed at its end has little left to do
                moments = [chance.uniform(0.8 * first, 1.2 * first) for _ in range(count)]
                moments[0] = chance.uniform(0.9 * last, 1.02 * last)
            folder = Path(scratch, f"case-{cases}")
            done, is_finished = one_case(TRAIN if name == "train" else COMPARE, folder, moments)
            is_same = is_finished and digest(folder) == expected[name]
            kills, cases, identical = kills + done, cases + 1, identical + is_same
            left += len(list(folder.rglob("*.part")))
            print(f"case {cases} ({moment}): {done} kills, {'same' if is_same else 'DIFFERENT'}")
        print(f"{left} temporary files left behind")
        print(f"{identical} of {cases} runs and comparisons, killed {kills} times, ended identical")
    sys.exit(identical != cases)


if __name__ == "__main__":
    main()
