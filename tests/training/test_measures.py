"""Plain classifiers: they read the rows that they are given, and the labels that go with them."""

import numpy as np
import torch

from lib.data import texts
from lib.data.images import ImageSet
from lib.training import measures


def test_plain_classifiers_read_images_and_texts():
    rng = np.random.default_rng(0)

    def split(rows):
        labels = rng.integers(0, 2, rows)
        pixels = 100 * labels[:, None, None, None] + rng.integers(0, 60, (rows, 1, 4, 4))
        arrays = torch.tensor(pixels, dtype=torch.uint8), torch.tensor(labels)
        words = [("good film", "bad film")[k] + f" number {n % 7}" for n, k in enumerate(labels)]
        place = dict(name="invented", source="demo", revision="", rows=rows)
        return ImageSet(*arrays, 2, **place), texts.TextSet(words, labels, 2, **place)

    (pictures, reviews), (seen, read) = split(100), split(40)
    fits = measures.of_images(pictures, seen) | measures.of_texts(reviews, read)
    ids = torch.stack([seen.labels + 1, torch.zeros(40, dtype=torch.int64)], 1)
    tokens = measures.of_tokens((ids, seen.labels), (ids[:9], seen.labels[:9]), 3)
    assert tokens["bag of words"]().tolist() == [True] * 9
    assert set(fits) == {"logistic regression", "3 nearest neighbours", "bag of words"}
    assert all(fit().shape == (40,) and fit().all() for fit in fits.values())
