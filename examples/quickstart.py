"""The main functions on scikit-learn's digits, with 10 % of the odd digits in the training set.

Inspects the data, trains a network, uses it, and compares two methods. Everything is written to a
temporary folder. The settings are small, so it takes seconds. The ONNX file needs ``pip install
cosen[export]``.
"""

import tempfile
from pathlib import Path

from PIL import Image
from sklearn.datasets import load_digits

import cosen

with tempfile.TemporaryDirectory() as name:
    folder = Path(name)
    cosen.inspect("digits")

    run = cosen.train("digits", method="cosen", imbalance="odd:0.1", epochs=5, out=folder / "run")
    print(f"\n{run.metrics.mean_recall:.3f} mean recall on the test images")

    pixels = (load_digits().images[3] * 255 / 16).astype("uint8")
    Image.fromarray(pixels).save(folder / "three.png")
    (prediction,) = run.predict([folder / "three.png"])
    print(f"three.png is a {prediction.decision} with probability {prediction.probability:.2f}")
    print(f"ONNX and PyTorch differ by {run.export(folder / 'model.onnx').largest_difference:.0e}")
    print(f"{run.report(folder / 'report.html').stat().st_size // 1000} kB report")

    study = cosen.compare(
        "digits",
        methods=["cosen", "balanced-softmax"],
        seeds=1,
        imbalance="odd:0.1",
        epochs=5,
        out=folder / "study",
    )
    print(f"\n{study.leaderboard.markdown()}")
    print(study.choice.sentence)
    print(f"best run: {study.best.path.relative_to(folder)}")
    print(f"loaded again: {cosen.load(folder / 'run').metrics.mean_recall:.3f} mean recall")
