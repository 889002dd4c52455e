"""Paper A's Figures 1 and 4 as studies: the lower layers of a pretrained BERT under four rules."""

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import nn

from lib.data import texts
from lib.networks import bert, pretrained
from lib.training import bert_evaluation
from lib.training.study import Problem, Study

SHOWN = 500  # test rows at the points of a run; its end takes them all


def classify(name: str, length: int, batch: int, layers: int | None) -> Problem:
    """A BERT classifier on the texts of `name` with at most `length` tokens; `layers` None is a
    small fresh one.
    """
    weights = pretrained.weights(demo=layers is None)
    demo = layers is None
    sets = {split: texts.load(name, split, demo=demo) for split in ("train", "test")}
    if demo:  # a smoke test, also where the real set is at hand
        sets = {
            split: part.sample(1500 if split == "train" else 200) for split, part in sets.items()
        }
    train = bert.tokenise(weights, sets["train"], length, whole=True)
    test = bert.tokenise(weights, sets["test"], 4 * length)  # every row; the longest are cut
    shown = bert_evaluation.judge(
        test.take(torch.arange(0, len(test.labels), max(1, len(test.labels) // SHOWN)))
    )

    def build() -> nn.Module:
        classes = sets["train"].classes
        if demo:
            return bert.small_classifier(weights, classes)
        return bert.lower(bert.classifier(weights, classes), layers)

    def finish(seed: int) -> Callable:
        def end(model: nn.Module) -> dict:
            order = test.lengths.argsort(stable=True)
            with torch.no_grad():
                parts = [
                    model(bert_evaluation.trim(test.inputs[rows])).argmax(1)
                    for rows in order.split(64)
                ]
            hits = (torch.cat(parts) == test.labels[order])[order.argsort()]
            return {"test_correct": np.packbits(hits.numpy()), "test_rows": np.array(len(hits))}

        return end

    return Problem(
        build=build,
        batches=lambda seed, tuning: bert_evaluation.batches(train, batch, seed),
        evaluate=lambda seed, tuning: shown,
        finish=finish,
        about={
            "data": texts.identity(name, demo=demo),
            "weights": weights.as_row(),
            "rows": len(train.labels),
            "test_rows": len(test.labels),
            "network": build().describe(),
            "tokens": length,
        },
    )


RATES = {
    "SGD": (0.03, 0.1, 0.3, 1.0),
    "Adam": (3e-5, 1e-4, 3e-4, 1e-3),
    "SPS": (0.1, 0.3, 1.0, 3.0),
    "SNGD": (0.05, 0.1, 0.2, 0.4),
}
MULTI_NLI = Study(
    name="multi_nli",
    problem=partial(classify, "multi_nli", 32, 16, 3),
    rates=RATES,
    horizon=600,
    batch=16,
    window=50,
    targets=(1.05, 1.0, 0.95),
    stop=lambda found: found["recent_loss"] <= 0.85,
    stop_words="mean loss of 100 steps at most 0.85",
    seeds=3,
    evaluations=6,
)
CIVIL_COMMENTS = Study(
    name="civil_comments",
    problem=partial(classify, "civil_comments", 48, 16, 3),
    rates=RATES,
    horizon=400,
    batch=16,
    window=50,
    targets=(0.6, 0.5, 0.45),
    stop=lambda found: found["recent_loss"] <= 0.38,
    stop_words="mean loss of 100 steps at most 0.38",
    seeds=3,
    evaluations=5,
)
