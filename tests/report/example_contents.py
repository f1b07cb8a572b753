"""Example contents of reports, of realistic size and shape."""

import base64
import io
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from cosen import functional as F
from cosen.networks.activation_maps import map_picture
from cosen.report.contents import read_contents
from cosen.report.packing import pack
from cosen.report.page import render
from report.small_runs import cost_step, write_run

HOSTILE = [
    "<script>alert(1)</script>",
    "</script><script>alert(2)</script>",
    "<img src=x onerror=alert(3)>",
    "&lt;b&gt; \" ' & <!-- %{x} ${y} {{ z }}",
    "<a href='javascript:alert(4)'>link</a>",
    "new\nline\u2028and\u2029tab\t",
    "שלום עולם",
    "a very long name of a class " * 8,
    "$\\frac{1}{2}$ <b>bold</b>",
    "x\udc80y",  # a file name that is not UTF-8, as Python reads it
]
"""Names of classes that could break a page."""


def unpack(packed: dict[str, Any]) -> np.ndarray:
    """Unpack numbers as the page does."""
    data = np.frombuffer(base64.b64decode(packed["data"]), "<u2").astype(float)
    values = packed["low"] + (packed["high"] - packed["low"]) * data / 65535
    return (10**values if packed["log"] else values).reshape(packed["shape"])


def picture(rng: np.random.Generator, side: int) -> str:
    """A noisy blob as a JPEG in a data URL; the noise makes it as large as a photo."""
    y, x = np.mgrid[:side, :side] / side - rng.uniform(0.3, 0.7, (2, 1, 1))
    blob = np.exp(-((x**2 + y**2) / rng.uniform(0.02, 0.1)))
    tint = rng.uniform(60, 255, 3)
    pixels = blob[..., None] * tint + rng.normal(40, 22, (side, side, 3))
    stream = io.BytesIO()
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(stream, "JPEG", quality=80)
    return "data:image/jpeg;base64," + base64.b64encode(stream.getvalue()).decode()


def softmax(logits: np.ndarray) -> np.ndarray:
    exponents = np.exp(logits - logits.max(1, keepdims=True))
    return exponents / exponents.sum(1, keepdims=True)


def simulated_logits(
    rng: np.random.Generator, target: np.ndarray, frequencies: np.ndarray, bias: float
) -> np.ndarray:
    """Logits that favour the true class, then its neighbours, and common classes by ``bias``."""
    classes = len(frequencies)
    logits = rng.normal(0, 1.5, (len(target), classes)) + bias * np.log(frequencies)
    logits[np.arange(len(target)), target] += 5.0
    logits[np.arange(len(target)), (target + 1) % classes] += 1.2
    return logits


def confusion_of(target: np.ndarray, decided: np.ndarray, classes: int) -> np.ndarray:
    return np.bincount(target * classes + decided, minlength=classes**2).reshape(classes, classes)


def reliability_of(logits: np.ndarray, target: np.ndarray) -> tuple[list[dict[str, Any]], float]:
    """Ten bins and the calibration error."""
    scores, labels = torch.tensor(softmax(logits)), torch.tensor(target)
    columns = [column.tolist() for column in F.calibration_bins(scores, labels, bins=10)]
    bins = [
        {
            "low": i / 10,
            "high": (i + 1) / 10,
            "confidence": confidence if count else None,
            "accuracy": accuracy if count else None,
            "count": count,
        }
        for i, (count, confidence, accuracy) in enumerate(zip(*columns, strict=True))
    ]
    return bins, float(F.expected_calibration_error(scores, labels, bins=10))


def learned_costs(
    rng: np.random.Generator, frequencies: np.ndarray, *, included: int, steps: int
) -> dict[str, Any]:
    classes = len(frequencies)
    h = np.maximum(frequencies[:, None], frequencies[None, :])
    epochs = np.unique(np.linspace(1, steps, included).round().astype(int))
    noise = rng.uniform(0.5, 1.5, (len(epochs), classes, classes))
    target = (h * noise * 4).clip(1e-3, 1)
    blend = (0.85 ** np.arange(len(epochs)))[:, None, None]
    rates = rng.dirichlet(np.full(classes, 0.05), (len(epochs), classes))
    rates = 0.3 * rates + 0.7 * np.eye(classes)
    error = 0.4 * 0.9 ** np.arange(steps) + 0.05 + rng.normal(0, 0.01, steps)
    best = np.minimum.accumulate(error)
    accepted = error <= best
    rate = 0.3 * 0.9 ** np.cumsum(~accepted)
    return {
        "method": "cosen",
        "seed": 0,
        "epochs": epochs.tolist(),
        "costs": pack(blend + (1 - blend) * target, log=True),
        "target_costs": pack(target, log=True),
        "confusion": pack(rates),
        "separability": pack(rng.uniform(0.3, 1.2, (len(epochs), classes, classes))),
        "frequencies": pack(h[None], log=True),
        "steps": [
            {
                "epoch": step + 1,
                "accepted": bool(accepted[step]),
                "val_error": float(error[step]),
                "best_error": float(best[step]),
                "cost_lr": float(rate[step]),
            }
            for step in range(steps)
        ],
        "strengths": None,
    }


def build(names: list[str], *, samples: int, pictures: int, epochs: int, side: int) -> dict:
    """Contents of a study of three seeds, with a baseline and learned costs."""
    rng = np.random.default_rng(len(names))
    classes = len(names)
    train = np.round(500 * 0.02 ** (rng.permutation(classes) / (classes - 1)))
    frequencies = train / train.sum()
    target = np.arange(samples) % classes
    logits = {
        "baseline": simulated_logits(rng, target, frequencies, bias=1.4),
        "chosen": simulated_logits(rng, target, frequencies, bias=0.5),
    }
    scores = {role: softmax(values) for role, values in logits.items()}
    decided = {role: values.argmax(1) for role, values in logits.items()}
    confusion = {role: confusion_of(target, values, classes) for role, values in decided.items()}
    recall = {role: np.diag(table) / table.sum(1) for role, table in confusion.items()}
    by_rarity = np.argsort(train, kind="stable")
    rare = by_rarity[: max(1, classes // 3)]

    def pictures_of(which: np.ndarray) -> list[dict[str, Any]]:
        rank = np.argsort(by_rarity)
        chosen = sorted(np.flatnonzero(which).tolist(), key=lambda i: rank[target[i]])[:pictures]
        return [
            {
                "image": picture(rng, side),
                "width": side,
                "height": side,
                "map": map_picture(torch.rand(5, 5)) if i % 2 else "",
                "name": f"test/{names[target[i]]}/{i:05d}.png",
                "seed": 0,
                "label": int(target[i]),
                **{
                    role: {
                        "label": int(decided[role][i]),
                        "score": float(scores[role][i, decided[role][i]]),
                    }
                    for role in ("baseline", "chosen")
                },
            }
            for i in chosen
        ]

    right = {role: values == target for role, values in decided.items()}

    def percent(value: float) -> str:
        return f"{100 * value:.1f}"

    summaries = {
        role: (right[role].mean(), recall[role].mean(), recall[role][rare].mean())
        for role in ("baseline", "chosen")
    }
    curves = []
    for role, name, level in (("baseline", "baseline", 0.12), ("chosen", "cosen", 0.08)):
        for seed in range(3):
            falling = np.exp(-np.arange(epochs) / (epochs / 6))
            curves.append(
                {
                    "name": name,
                    "role": role,
                    "seed": seed,
                    "epochs": list(range(1, epochs + 1)),
                    "train_error": (0.5 * falling + rng.uniform(0, 0.01, epochs)).tolist(),
                    "val_error": (0.5 * falling + level + rng.normal(0, 0.008, epochs)).tolist(),
                }
            )
    before, error_before = reliability_of(logits["chosen"] * 4, target)
    after, error_after = reliability_of(logits["chosen"] * 2, target)
    return {
        "kind": "study",
        "title": f"{classes} kinds of things, longtail:50",
        "verdict": (
            "For mean class recall the choice is cosen: "
            f"{percent(summaries['chosen'][1])} % on test against "
            f"{percent(summaries['baseline'][1])} % for the baseline "
            "(+3.1, 95 % interval +0.9 to +6.3); smote-rsb is within noise of it."
        ),
        "caveats": [
            "Only 3 seeds were run: intervals from so few are wide.",
            "Two classes have fewer than 10 test images, so their recall moves in large steps.",
        ],
        "leaderboard": {
            "headings": [
                *("method", "accuracy", "mean recall", "G-mean", "macro F1"),
                *("rarest third", "change", "seconds"),
            ],
            "rows": [
                {
                    "method": method,
                    "cells": [
                        *(f"{percent(value)} ± 1.2" for value in (a, m, m - 0.01, m - 0.004, r)),
                        "-" if role == "baseline" else "+2.2 (+0.4 to +4.5)",
                        "17",
                    ],
                    "role": role,
                }
                for method, role, (a, m, r) in (
                    ("cosen", "chosen", summaries["chosen"]),
                    ("balanced-softmax", None, (0.95, 0.95, 0.901)),
                    ("class-weights", None, (0.937, 0.937, 0.84)),
                    ("baseline", "baseline", summaries["baseline"]),
                )
            ],
            "notes": [
                "On test, in per cent, mean ± standard deviation over 3 seeds. Change in mean "
                "class recall against baseline, with 95 % interval."
            ],
        },
        "figures": [
            {
                "name": name,
                "chosen": f"{percent(summaries['chosen'][i])} %",
                "baseline": f"{percent(summaries['baseline'][i])} %",
            }
            for i, name in enumerate(("overall accuracy", "mean recall", "rarest third"))
        ],
        "methods": {"baseline": "baseline", "chosen": "cosen"},
        "seeds": [0, 1, 2],
        "classes": [
            {
                "name": name,
                "train": float(train[label]),
                "test": float(confusion["chosen"][label].sum()) / 3,  # mean over seeds
                "recall": {role: float(recall[role][label]) for role in ("baseline", "chosen")},
                "spread": {"baseline": 0.03, "chosen": 0.02},
            }
            for label, name in enumerate(names)
        ],
        "groups": None,
        "by_rarity": by_rarity.tolist(),
        "confusion": {role: table.tolist() for role, table in confusion.items()},
        "costs": learned_costs(
            rng, frequencies, included=min(epochs, 40 if classes <= 20 else 20), steps=epochs
        ),
        "curves": curves,
        "gallery": {
            "gained": pictures_of(right["chosen"] & ~right["baseline"]),
            "lost": pictures_of(~right["chosen"] & right["baseline"]),
            "wrong": [],
            "examples": pictures_of(right["chosen"] & right["baseline"])[:2],
            "note": "Test images of seed 0, rare classes first.",
        },
        "labels": {
            "problems": [
                {
                    "name": f"test/{names[label]}/{label}.png",
                    "label": names[label],
                    "suggested": names[(label + 1) % classes],
                    "probability": 0.9,
                    "picture": {"image": picture(rng, side), "width": side, "height": side}
                    if label
                    else None,
                }
                for label in range(min(classes, 20))
            ],
            "note": "Labels that the predictions of cosen contradict.",
        },
        "tradeoff": {
            "samples": samples,
            "target": pack(target.astype(float)),
            "logits": pack(logits["chosen"]),
            "offsets": (0.6 * np.log(frequencies) + rng.normal(size=classes) / 10).tolist(),
            "log_shares": np.log(frequencies).tolist(),
            "trained": 0.6,
            "note": "All test images of seed 0.",
        },
        "reliability": {
            "method": "cosen",
            "before": before,
            "after": after,
            "error_before": error_before,
            "error_after": error_after,
            "temperature": 2.0,
        },
        "provenance": [
            {"name": "data", "value": "things"},
            {"name": "fingerprint", "value": "sha256:" + "0123456789abcdef" * 4},
            {"name": "split", "value": "60 % train, 20 % validation, 20 % test"},
            {"name": "imbalance", "value": "longtail:50"},
            {"name": "seeds", "value": "0, 1, 2"},
            {"name": "configuration", "value": "network small-cnn, epochs 30, lr 0.05"},
            {"name": "versions", "value": "cosen 0.6.0, torch 2.4.0, Python 3.11.4"},
        ],
        "command": "cosen compare things --imbalance longtail:50 --methods baseline,cosen,"
        "balanced-softmax,class-weights --seeds 3 --out studies/things",
    }


@cache
def ten_classes() -> dict:
    """As large as a study of 10 classes gets."""
    names = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship"]
    return build([*names, "truck"], samples=10_000, pictures=60, epochs=100, side=64)


@cache
def many_classes() -> dict:
    """As large as a study of 102 classes gets."""
    animals = ["ant", "barracuda", "crocodile_head", "dalmatian", "electric_guitar", "faces_easy"]
    names = [f"{animals[i % 6]}_{i:03d}" for i in range(102)]
    return build(names, samples=6_000, pictures=200, epochs=60, side=64)


@cache
def hostile() -> dict:
    """All texts are ones that could break the page."""
    contents = build(HOSTILE, samples=400, pictures=12, epochs=6, side=16)
    contents |= {
        "title": HOSTILE[0],
        "verdict": f"{HOSTILE[1]} is better than {HOSTILE[2]}.",
        "caveats": [HOSTILE[3], HOSTILE[0]],
        "methods": {"baseline": HOSTILE[4], "chosen": HOSTILE[0]},
        "provenance": [{"name": name, "value": name} for name in HOSTILE],
        "command": f"cosen train '{HOSTILE[0]}' {HOSTILE[3]}",
    }
    contents["leaderboard"]["notes"] = HOSTILE[:4]
    contents["leaderboard"]["headings"][1] = HOSTILE[0]
    for row, name in zip(contents["leaderboard"]["rows"], HOSTILE, strict=False):
        row["method"], row["cells"][0] = name, name
    for figure, name in zip(contents["figures"], HOSTILE, strict=False):
        figure |= {"name": name, "chosen": name, "baseline": name}
    for curve in contents["curves"]:
        curve["name"] = HOSTILE[0]
    for part in ("gallery", "labels", "tradeoff"):
        contents[part]["note"] = HOSTILE[2]
    contents["costs"]["method"] = contents["reliability"]["method"] = HOSTILE[1]
    return contents


@cache
def two_strengths() -> dict:
    """Costs whose strengths are learned: there is no T, no H and no S."""
    epochs = 8
    contents = build(["cat", "dog", "emu"], samples=90, pictures=8, epochs=epochs, side=8)
    contents["costs"] |= {
        "target_costs": None,
        "frequencies": None,
        "separability": None,
        "strengths": {
            "tau": [round(1 + 0.031 * epoch, 3) for epoch in range(epochs)],
            "margin": [0.0, None, *(round(0.567 * epoch, 3) for epoch in range(2, epochs))],
        },
    }
    return contents


@cache
def lone_run() -> dict:
    """A run without a comparison and without optional parts."""
    contents = build(["cat", "dog", "emu"], samples=90, pictures=8, epochs=8, side=8)
    contents |= {
        "kind": "run",
        "verdict": "The run recognises 93.0 % of the test images.",
        "caveats": [],
        "leaderboard": None,
        "figures": [figure | {"baseline": None} for figure in contents["figures"]],
        "methods": {"baseline": None, "chosen": "focal"},
        "seeds": [0],
        "costs": None,
        "curves": [curve for curve in contents["curves"] if curve["role"] == "chosen"][:1],
        "gallery": {
            "gained": [],
            "lost": [],
            "examples": [],
            "wrong": [one | {"baseline": None} for one in contents["gallery"]["lost"]],
            "note": "",
        },
        "tradeoff": None,
        "reliability": None,
    }
    contents["confusion"]["baseline"] = None
    for one in contents["classes"]:
        one["recall"]["baseline"] = one["spread"]["baseline"] = None
        one["spread"]["chosen"] = None
        one["test"] *= 3  # of one seed
    contents["classes"][1]["recall"]["chosen"] = None  # a class without test images
    contents["classes"][1]["test"] = 0.0
    contents["confusion"]["chosen"][1] = [0, 0, 0]
    return contents


@cache
def thousands() -> dict:
    """Two runs on 1,100 classes, read from their folders; the rarest class is the first."""
    classes = 1100
    rng = np.random.default_rng(0)
    train = np.linspace(5, 300, classes).astype(int)
    target = np.repeat(np.arange(classes), 2)
    with tempfile.TemporaryDirectory() as scratch:
        for name, bias in (("baseline", 1.4), ("cosen", 0.5)):
            logits = simulated_logits(rng, target, train / train.sum(), bias).astype(np.float32)
            strengths = {"tau": 1.2, "margin": 2.0}
            write_run(
                Path(scratch, name),
                logits.argmax(1).tolist(),
                target=target.tolist(),
                logits=torch.from_numpy(logits),
                names=tuple(f"species {label:04d}" for label in range(classes)),
                train=tuple(train.tolist()),
                method=name,
                steps=[cost_step(n, classes, strengths=strengths) for n in (1, 2)]
                if name == "cosen"
                else (),
            )
        return dict(read_contents(Path(scratch, "cosen"), against=Path(scratch, "baseline")))


EXAMPLES = {
    function.__name__: function
    for function in (ten_classes, many_classes, hostile, lone_run, two_strengths, thousands)
}


def contents_of(name: str) -> dict:
    return EXAMPLES[name]()


@cache
def page_of(name: str) -> str:
    """The page of an example."""
    return render(contents_of(name))
