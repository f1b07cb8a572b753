"""Time to fit ``CosenClassifier``, relative to scikit-learn's ``MLPClassifier``.

10,000 x 512 features of 10 classes, one hidden layer of 100, batches of 200, 20 epochs, learned
costs. Both are timed alternately. MLPClassifier is timed with BLAS on all cores and on one core,
since either can be faster, and the ratio uses its better median. ``CosenClassifier`` uses one core.
"""

import time
import warnings
from collections.abc import Callable
from statistics import median

from sklearn.datasets import make_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier
from threadpoolctl import threadpool_limits

from cosen.sklearn import CosenClassifier

EPOCHS, BATCH, HIDDEN, ROUNDS = 20, 200, 100, 5


def seconds(fit: Callable[[], object], *, threads: int | None = None) -> float:
    with threadpool_limits(threads):
        start = time.perf_counter()
        fit()
        return time.perf_counter() - start


def main() -> None:
    warnings.simplefilter("ignore", ConvergenceWarning)  # the epochs are few on purpose
    X, y = make_classification(10_000, 512, n_informative=50, n_classes=10, random_state=0)
    ours = CosenClassifier(epochs=EPOCHS, batch_size=BATCH, hidden=HIDDEN, random_state=0)
    theirs = MLPClassifier(HIDDEN, max_iter=EPOCHS, batch_size=BATCH, random_state=0)
    CosenClassifier(epochs=1).fit(X[:500], y[:500])  # triggers imports on first use
    times: dict[str, list[float]] = {"cosen": [], "all cores": [], "one core": []}
    for _ in range(ROUNDS):
        times["cosen"].append(seconds(lambda: ours.fit(X, y)))
        times["all cores"].append(seconds(lambda: theirs.fit(X, y)))
        times["one core"].append(seconds(lambda: theirs.fit(X, y), threads=1))
    print(f"CosenClassifier, learned costs  {median(times['cosen']):6.2f} s")
    print(f"MLPClassifier on all cores      {median(times['all cores']):6.2f} s")
    print(f"MLPClassifier on one core       {median(times['one core']):6.2f} s")
    ratio = median(times["cosen"]) / min(median(times["all cores"]), median(times["one core"]))
    print(f"{ratio:.2f}x the time of MLPClassifier (bound: at most 1)")


if __name__ == "__main__":
    main()
