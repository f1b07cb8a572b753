"""What a run ends with: predictions, pictures, metrics, and how long it took."""

from dataclasses import dataclass

from cosen.data.stores import printable
from cosen.networks.output import Outputs
from cosen.training.evaluation import summarise
from cosen.training.run_folder import RunFolder
from cosen.training.task import Task
from cosen.training.thumbnails import write_thumbnails


@dataclass(frozen=True, eq=False)
class Results:
    """What a trained classifier gives.

    Attributes:
        val: For the validation split.
        test: For the test split.
        seconds: Of training, with those of the network that it started from.
    """

    val: Outputs
    test: Outputs
    seconds: float


def write_results(run: RunFolder, task: Task, results: Results, *, temperature: float) -> None:
    """Write all that is said of the test set; the metrics last, which say that a run is finished.

    Args:
        run: The run folder.
        task: What was trained.
        results: What came out.
        temperature: Divides the logits for calibrated probabilities.
    """
    outputs = {"val": results.val, "test": results.test}
    parts = {"val": task.splits.val, "test": task.splits.test}
    tensors, names = {}, {}
    for name, part in parts.items():
        tensors[f"{name}_logits"] = outputs[name].logits
        tensors[f"{name}_target"] = outputs[name].target
        names[name] = [printable(image) for image in part.names]
    run.write_predictions(tensors, names)
    write_thumbnails(
        run,
        task.decoded.pixels,
        task.splits.test,
        predicted=results.test.logits.argmax(1).numpy(),
        class_counts=task.facts.class_counts,
    )
    run.write_about(
        run.about() | {"seconds": round(results.seconds, 3), "temperature": temperature}
    )
    run.write_metrics(
        {
            name: summarise(
                outputs[name],
                class_counts=task.facts.class_counts,
                objective=task.objective,
                temperature=temperature,
            )
            for name in parts
        }
    )
