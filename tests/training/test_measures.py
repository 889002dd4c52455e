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
    fits = [
        measures.on_pixels(kind, pictures, seen) for kind in (measures.logistic, measures.nearest)
    ]
    ids = torch.stack([seen.labels + 1, torch.zeros(40, dtype=torch.int64)], 1)
    tokens = measures.on_tokens((ids, seen.labels), (ids[:9], seen.labels[:9]), 3)
    assert tokens.tolist() == [True] * 9
    assert all(hits.tolist() == [True] * 40 for hits in (*fits, measures.on_words(reviews, read)))
