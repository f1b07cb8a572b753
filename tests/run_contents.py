"""Read what tests compare in run folders."""

from dataclasses import replace

from safetensors.torch import load_file

from cosen.costs.step_files import step_matrices


def weights(run):
    """The weights of the model, by name."""
    return load_file(run.path / "model.safetensors")


def history_without_times(run):
    """The records of the epochs, without durations."""
    return [replace(record, seconds=0, images_per_second=0) for record in run.history()]


def cost_steps(run):
    """The matrices of each step of learned costs."""
    files = sorted((run.path / "costs").glob("*.safetensors"))
    return [step_matrices(load_file(path)) for path in files]


def logits_of_test(run):
    """The logits of the test images."""
    return run.predictions()["test"].logits
