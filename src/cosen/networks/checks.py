"""Checks of what goes into a network, with messages that say what to do."""

from numbers import Integral

from torch import Tensor

from cosen.errors import InputError


def check_images(images: Tensor, *, channels: int, least_size: int = 1) -> None:
    """Refuse anything but ``(B, channels, H, W)`` with sides of at least ``least_size`` pixels."""
    if images.dim() != 4 or images.shape[1] != channels:
        raise InputError(
            f"the network takes images of shape (batch, {channels}, height, width), "
            f"but was given {tuple(images.shape)}"
        )
    if min(images.shape[2:]) < least_size:
        raise InputError(
            f"the network takes images from {least_size} x {least_size} pixels on, but was given "
            f"{images.shape[2]} x {images.shape[3]}: enlarge them first"
        )


def check_counts(**counts: int) -> None:
    """Refuse sizes that are not positive: ``check_counts(num_classes=num_classes)``."""
    for name, count in counts.items():
        if not isinstance(count, Integral):  # NumPy's whole numbers too
            raise InputError(f"{name} must be a whole number, but is {count!r}")
        if count < 1:
            raise InputError(f"{name} must be at least 1, but is {count}")
