"""Import timm where torchvision's compiled operators do not fit torch.

timm imports torchvision for its data transforms, which cosen does not use. PyPI's torchvision is
built for CUDA. With a CPU build of torch its operators do not load, and the import fails with
"operator torchvision::nms does not exist", although nothing here calls them. Declaring the schemas
of the two operators that torchvision registers fake kernels for is enough. This is done only if
the plain import fails.
"""

import sys
from functools import cache
from types import ModuleType

import torch

SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)

_kept: list[torch.library.Library] = []  # a library is removed when it is garbage


@cache
def import_timm() -> ModuleType:
    """Import timm; about two seconds, so only when a network of timm is used."""
    try:
        import torchvision  # noqa: F401
    except RuntimeError as error:
        if "torchvision::nms" not in str(error):
            raise
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        library = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
        for schema in SCHEMAS:
            library.define(schema)  # type: ignore[no-untyped-call]
        _kept.append(library)
    import timm

    return timm
