"""Kill runs at random moments and resume them: how many end with the identical model?

Each case is killed with SIGKILL several times and then resumed to its end. Its model and its
metrics must be the same to the last bit as those of a run that was never interrupted. A third of
the cases are killed while they train, a third while they finish, and a third are comparisons.

Usage: ``python benchmarks/kills.py [KILLS]``; 100 kills take about a quarter of an hour.
"""

import hashlib
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

EPOCHS = 40
TRAIN = ["train", "digits", "--imbalance=odd:0.1", f"--epochs={EPOCHS}", "--augment=crop"]
COMPARE = [
    *("compare", "digits", "--imbalance=odd:0.1", "--epochs=15", "--seeds=1", "--workers=2"),
    "--methods=baseline,cosen,crt",
]
KILLS_OF_A_CASE = {"training": 5, "end": 2, "compare": 4}


def start(arguments: list[str]) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "cosen", *arguments, "--device=cpu"]
    if "--resume" in arguments[1]:
        command.pop()
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def finish(arguments: list[str]) -> bool:
    """Run a command to its end; print its messages if it fails."""
    process = start(arguments)
    _, errors = process.communicate()
    if process.returncode:
        print(errors, flush=True)
    return process.returncode == 0


def kill(arguments: list[str], is_ready: Callable[[], bool], delay: float) -> bool:
    """Start a command and kill it this many seconds after it is ready; whether it was running."""
    process = start(arguments)
    while process.poll() is None and not is_ready():
        time.sleep(0.005)
    time.sleep(delay)
    process.kill()
    process.communicate()
    return process.returncode == -9


def epochs_done(folder: Path) -> int:
    history = folder / "history.csv"
    return len(history.read_text().splitlines()) - 1 if history.exists() else 0


def last_checkpoint(folder: Path) -> float:
    """Time of the newest checkpoint in a study."""
    times = [0.0]
    for path in folder.glob("runs/*/*/checkpoint.pt"):
        try:
            times.append(path.stat().st_mtime)
        except FileNotFoundError:
            continue  # it is being replaced
    return max(times)


def next_command(kind: str, folder: Path) -> list[str]:
    """Return the command that starts or resumes a case."""
    if kind == "compare":
        return [*COMPARE, f"--out={folder}"]
    return (
        ["train", f"--resume={folder}"]
        if (folder / "run.json").exists()
        else [
            *TRAIN,
            f"--out={folder}",
        ]
    )


def kill_once(kind: str, folder: Path, chance: random.Random, start_up: float) -> bool:
    """Kill a case at a random moment of its kind."""
    command = next_command(kind, folder)
    if kind == "training":
        wanted = epochs_done(folder) + chance.randint(1, 6)
        return kill(command, lambda: epochs_done(folder) >= wanted, chance.uniform(0, 0.15))
    if kind == "compare":
        before = last_checkpoint(folder)
        return kill(command, lambda: last_checkpoint(folder) > before, chance.uniform(0, 1.5))
    if epochs_done(folder) < EPOCHS:
        return kill(command, lambda: epochs_done(folder) == EPOCHS, chance.uniform(0, 0.1))
    return kill(command, lambda: True, chance.uniform(0.5, 1.0) * start_up)


def digest(folder: Path) -> str:
    """Hash the models and metrics in a run or study folder."""
    found = hashlib.sha256()
    for path in sorted([*folder.rglob("model.safetensors"), *folder.rglob("metrics.json")]):
        found.update(str(path.relative_to(folder)).encode() + path.read_bytes())
    return found.hexdigest()


def main() -> None:
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    chance = random.Random(0)
    with tempfile.TemporaryDirectory() as scratch:
        os.environ |= {"COSEN_CACHE": str(Path(scratch, "cache")), "OMP_NUM_THREADS": "1"}
        expected = {}
        for kind in ("training", "compare"):
            whole = Path(scratch, f"whole-{kind}")
            assert finish(next_command(kind, whole)), "the undisturbed run failed"
            expected[kind] = digest(whole)
        expected["end"] = expected["training"]
        begin = time.perf_counter()
        finish(next_command("end", Path(scratch, "whole-training")))
        start_up = time.perf_counter() - begin
        kills, cases, identical, left = 0, 0, 0, 0
        while kills < wanted:
            kind = ("training", "end", "compare")[cases % 3]
            folder, done = Path(scratch, f"case-{cases}"), 0
            for _ in range(min(KILLS_OF_A_CASE[kind], wanted - kills)):
                done += kill_once(kind, folder, chance, start_up)
            is_same = finish(next_command(kind, folder)) and digest(folder) == expected[kind]
            kills, cases, identical = kills + done, cases + 1, identical + is_same
            left += len(list(folder.rglob("*.part")))
            result = "identical" if is_same else "DIFFERENT"
            print(f"case {cases} ({kind}): {done} kills, {result}; {kills} in all", flush=True)
        print(f"{left} temporary files left behind")
        print(f"{identical} of {cases} runs and comparisons, killed {kills} times, ended identical")
    sys.exit(identical != cases)


if __name__ == "__main__":
    main()
