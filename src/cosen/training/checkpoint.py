"""Save the state of a run after each epoch, and resume from it with identical results."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from cosen.costs import CostStep
from cosen.errors import RunError
from cosen.training.loop import Loop
from cosen.training.model_file import ImageClassifier, save_model
from cosen.training.run_folder import RunFolder
from cosen.training.task import Task

if TYPE_CHECKING:
    from lightning_fabric import Fabric


@dataclass(frozen=True)
class Checkpoint:
    """Writes the state that a stopped run resumes from; only the first process writes."""

    run: RunFolder
    task: Task
    fabric: "Fabric"
    order: torch.Generator  # of images
    noise: torch.Generator  # of augmentation

    def save(self, loop: Loop, step: CostStep | None) -> None:
        """Write costs, model, checkpoint and history; a checkpoint implies that the rest exists."""
        processes = self._states_of_processes()
        if self.fabric.is_global_zero:
            if step is not None:
                self.run.write_cost_step(step)
            if loop.history[-1].best:
                network = getattr(loop.bare_evaluated, "whole", loop.bare_evaluated)
                classifier = ImageClassifier(network, self.task.backbone)
                save_model(self.run.path, classifier, self.task.model)
            state = loop.state() | {
                "order": self.order.get_state(),
                "fingerprint": self.task.fingerprint,
                "processes": processes,
            }
            self.run.write_checkpoint(state)
            self.run.write_history(loop.history)
        self.fabric.barrier()

    def restore(self, loop: Loop) -> None:
        """Resume from the last checkpoint, if there is one."""
        state = self.run.checkpoint()
        self.fabric.barrier()  # all processes have read before the first one writes
        if state is None:
            return
        if state["fingerprint"] != self.task.fingerprint:
            raise RunError(
                f"the data has changed since {self.run.path} was started: images, labels or split "
                "differ; start a new run in another folder"
            )
        try:
            if len(state["processes"]) != self.fabric.world_size:
                raise RunError(
                    f"{self.run.path} was started with {len(state['processes'])} processes: resume "
                    "it with the same number (--devices)"
                )
            loop.load_state(state)
            self._restore_generators(state)
        except RuntimeError as error:
            raise RunError(
                f"{self.run.path} was started with another version of cosen, whose network "
                "differs: start a new run in another folder"
            ) from error
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise RunError(
                f"the checkpoint in {self.run.path} is damaged ({type(error).__name__}: {error}): "
                "start a new run in another folder"
            ) from error
        if self.fabric.is_global_zero:  # the run may have been killed before it wrote this
            self.run.write_history(loop.history)

    def _restore_generators(self, state: dict[str, Any]) -> None:
        self.order.set_state(state["order"])
        own = state["processes"][self.fabric.global_rank]
        self.noise.set_state(own["noise"])
        torch.set_rng_state(own["torch"])
        if "cuda" in own:
            torch.cuda.set_rng_state(own["cuda"], self.fabric.device)

    def _states_of_processes(self) -> list[dict[str, Tensor]]:
        """The states of the random generators that differ between processes."""
        own = {"noise": self.noise.get_state(), "torch": torch.get_rng_state()}
        if self.fabric.device.type == "cuda":
            own["cuda"] = torch.cuda.get_rng_state(self.fabric.device)
        if self.fabric.world_size == 1:
            return [own]
        gathered: Any = self.fabric.all_gather(own)  # each of shape (processes, ...)
        return [
            {name: states[rank].cpu().clone() for name, states in gathered.items()}
            for rank in range(self.fabric.world_size)
        ]
