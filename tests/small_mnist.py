"""MNIST in its official layout, with few images: the position of a bright square is the class."""

import gzip

import numpy as np

from data.named_layouts import idx_bytes


def make_mnist(root, *, train=20, test=4):
    """Writes it below a root, with this number of images per digit."""
    folder = root / "mnist"
    folder.mkdir(parents=True)
    generator = np.random.default_rng(0)
    for part, count in (("train", train), ("t10k", test)):
        labels = np.tile(np.arange(10), count)
        images = generator.integers(0, 100, (len(labels), 28, 28))
        for image, label in zip(images, labels, strict=True):
            row, column = divmod(int(label), 4)
            image[4 + 7 * row : 11 + 7 * row, 7 * column : 7 * column + 7] += 120
        for kind, values in (("images-idx3", images), ("labels-idx1", labels)):
            content = gzip.compress(idx_bytes(values))
            (folder / f"{part}-{kind}-ubyte.gz").write_bytes(content)
    return root
