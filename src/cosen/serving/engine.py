"""Predict images for many requests at once.

Threads decode images. One thread collects the images of all requests in batches and runs the
network, so many small requests are almost as fast as one large one.
"""

import io
import logging
import os
import queue
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cosen.data.decoding import decode_image, opened_image
from cosen.errors import BrokenImageError, RunError
from cosen.inference.predict import Models, batch_logits, network_errors, place
from cosen.networks.activation_maps import find_map_layer, logits_and_maps, map_picture

_log = logging.getLogger("cosen")

BATCH = 32
"""Most images in a batch."""

PATIENCE = 0.005
"""Seconds to wait for images that are still being decoded, before a batch starts."""


@dataclass(frozen=True)
class ActivationMap:
    """Where the network looked.

    Attributes:
        picture: A data URL of a transparent PNG.
        box: The part of the image that it covers, as shares of the sides: left, top, right, bottom.
    """

    picture: str
    box: tuple[float, float, float, float]


@dataclass(frozen=True, eq=False)
class Answer:
    """The outputs for one image: the logits of each model ``(M, C)``, and a map if wanted."""

    logits: Tensor
    map: ActivationMap | None


@dataclass(frozen=True, eq=False)
class _Job:
    """A decoded image that waits for the network; pixels are those for each model."""

    pixels: list[np.ndarray]
    box: tuple[float, float, float, float] | None  # of the map; None if no map is wanted
    answer: "Future[Answer]"


class Engine:
    """Runs models for images in memory. Its threads start with the first image; close it to end
    them. It can then start again.

    Args:
        models: The models.
        device: Where they run: ``auto``, ``cpu``, ``cuda`` or ``mps``.
        max_pixels: Larger images are refused.
    """

    def __init__(self, models: Models, *, device: str, max_pixels: int) -> None:
        self.models, self.max_pixels = models, max_pixels
        for classifier in models.classifiers:
            self._device = place(classifier.requires_grad_(False), device)
        shape = models.infos[0].preprocess.shape
        with network_errors():
            sample = torch.zeros(1, shape[2], *shape[:2], device=self._device)
            self._map_layer = find_map_layer(models.classifiers[0], sample)
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._decoders: ThreadPoolExecutor | None = None

    @property
    def has_maps(self) -> bool:
        """Whether the network has maps that are large enough to show."""
        return self._map_layer is not None

    def close(self) -> None:
        if self._decoders is not None:
            self._decoders.shutdown(cancel_futures=True)
            self._jobs.put(None)
            self._worker.join()
            self._decoders = None

    def submit(self, content: bytes, *, with_map: bool = False) -> "Future[Answer]":
        """Predict an encoded image. The result is an :class:`Answer`, or a BrokenImageError."""
        answer: Future[Answer] = Future()
        with self._lock:
            if self._decoders is None:
                self._decoding, self._decoders = 0, ThreadPoolExecutor(os.cpu_count())
                self._worker = threading.Thread(target=self._run, daemon=True)
                self._worker.start()
            self._decoding += 1
            self._decoders.submit(self._decode, content, with_map and self.has_maps, answer)
        return answer

    def _decode(self, content: bytes, with_map: bool, answer: "Future[Answer]") -> None:
        try:
            if not answer.cancelled():
                self._jobs.put(self._decoded(content, with_map, answer))
        except Exception as error:  # of this image only
            _fail(answer, error)
        finally:
            with self._lock:
                self._decoding -= 1

    def _decoded(self, content: bytes, with_map: bool, answer: "Future[Answer]") -> _Job:
        with opened_image(io.BytesIO(content)) as image:
            pixels = image.width * image.height
        if pixels > self.max_pixels:
            raise BrokenImageError(
                f"it has {pixels / 1e6:.0f} million pixels, and the limit is "
                f"{self.max_pixels / 1e6:.0f} million"
            )
        steps = [info.preprocess for info in self.models.infos]
        least = max(step.least_size[0] for step in steps), max(step.least_size[1] for step in steps)
        decoded = decode_image(io.BytesIO(content), least_size=least)
        box = None
        if with_map:
            (width, height), used = decoded.size, steps[0].box(decoded.size)
            box = (used[0] / width, used[1] / height, used[2] / width, used[3] / height)
        return _Job([step(decoded) for step in steps], box, answer)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            batch, is_last = [job], False
            while len(batch) < BATCH and not is_last:
                try:
                    found = self._jobs.get(timeout=PATIENCE if self._decoding else 0)
                except queue.Empty:
                    break
                is_last = found is None
                batch += [] if found is None else [found]
            batch = [one for one in batch if one.answer.set_running_or_notify_cancel()]
            try:
                if batch:
                    self._answer(batch)
            except Exception as error:
                for one in batch:
                    _fail(one.answer, error)
            if is_last:
                return

    def _answer(self, batch: list[_Job]) -> None:
        """Run the models on a batch, and give each image its answer."""
        with torch.no_grad():
            outputs = [
                batch_logits(classifier, self._inputs(batch, number), flip=self.models.flip)
                for number, classifier in enumerate(self.models.classifiers)
            ]
        logits = torch.stack(outputs, 1)  # (B, M, C)
        maps = self._maps([job for job in batch if job.box is not None])
        for job, own in zip(batch, logits, strict=True):
            drawn = None if job.box is None else next(maps)
            if bool(own.isfinite().all()):
                job.answer.set_result(Answer(own.clone(), drawn))
            else:
                _fail(job.answer, RunError("the model gives outputs that are not finite"))

    def _inputs(self, batch: list[_Job], model: int) -> Tensor:
        pixels = np.stack([job.pixels[model] for job in batch])
        normalise = self.models.infos[model].normalise
        return normalise.from_bytes(torch.from_numpy(pixels).to(self._device))

    def _maps(self, batch: list[_Job]) -> Iterator[ActivationMap | None]:
        """Yield the maps of the first model, for its own decisions."""
        if not batch:
            return
        assert self._map_layer is not None
        try:
            first = self.models.classifiers[0]
            found = logits_and_maps(first, self._map_layer, self._inputs(batch, 0))[1].cpu()
        except Exception as error:  # a custom network may do anything; predictions do not need maps
            _log.warning("there are no activation maps: %s", error)
            yield from [None] * len(batch)
            return
        for job, own in zip(batch, found, strict=True):
            assert job.box is not None
            yield ActivationMap(map_picture(own), job.box)


def _fail(answer: "Future[Any]", error: Exception) -> None:
    if not answer.done() and (answer.running() or answer.set_running_or_notify_cancel()):
        answer.set_exception(error)
