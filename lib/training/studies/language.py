"""Paper A's Figures 1 and 4 as studies: the lower layers of a pretrained BERT under four rules."""

from dataclasses import replace
from functools import partial

import torch
from torch import nn

from lib.data import texts
from lib.networks import bert, pretrained
from lib.seeds import stream
from lib.training import bert_evaluation
from lib.training.studies.measures import correctness
from lib.training.study import Study, StudyProblem, until_loss

SHOWN = 200  # test rows at the points of a run; its end takes them all


def classify(
    name: str, length: int, batch: int, layers: int | None, rows: int | None = None
) -> StudyProblem:
    """A BERT classifier trained on `rows` texts of `name` that have at most `length` tokens.

    Test texts are cut to 4 `length` tokens. The classifier has the lowest `layers` layers of the
    pretrained one; None makes a small one from a random start.
    """
    demo = layers is None
    weights = pretrained.weights(demo=demo)
    sets = {split: texts.load(name, split, demo=demo) for split in ("train", "test")}
    if demo:  # a smoke test, also where the real set is at hand
        sets = {
            split: part.sample(1500 if split == "train" else 200) for split, part in sets.items()
        }
    train = bert.tokenise(weights, sets["train"], length, whole=True)
    if rows is not None:
        train = train.take(
            torch.from_numpy(stream(0, "subset").permutation(len(train.labels))[:rows])
        )
    test = bert.tokenise(weights, sets["test"], 4 * length)  # every row; the longest are cut
    shown = bert_evaluation.judge(
        test.take(torch.arange(0, len(test.labels), max(1, len(test.labels) // SHOWN)))
    )

    def build() -> nn.Module:
        classes = sets["train"].classes
        if demo:
            return bert.small_classifier(weights, classes)
        return bert.lower(bert.classifier(weights, classes), layers)

    @torch.no_grad()
    def end(model: nn.Module) -> dict:
        order = test.lengths.argsort(stable=True)  # so that little is padding
        batches = [bert_evaluation.trim(test.inputs[rows]) for rows in order.split(64)]
        classes = torch.cat([model(batch).argmax(1) for batch in batches])
        return correctness((classes == test.labels[order])[order.argsort()])

    return StudyProblem(
        build=build,
        batches=lambda seed, tuning: bert_evaluation.batches(train, batch, seed),
        evaluate=lambda seed, tuning: shown,
        finish=lambda seed: end,
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
    problem=partial(classify, "multi_nli", 32, 16, 3, rows=2_560),
    rates=RATES,
    horizon=320,  # two epochs
    batch=16,
    window=50,
    targets=(1.08, 1.05, 1.0),
    seeds=3,
    evaluations=4,
    **until_loss(0.93),
)
# Three seeds decided nothing: six fresh ones, three epochs, at the rates that MULTI_NLI chose.
MULTI_NLI_AGAIN = replace(
    MULTI_NLI,
    name="multi_nli_again",
    rates={"SGD": (0.03,), "Adam": (1e-4,), "SPS": (0.1,), "SNGD": (0.1,)},
    cap=0.1,
    horizon=480,
    seeds=6,
    first_seed=10,
    evaluations=6,
)
CIVIL_COMMENTS = replace(
    MULTI_NLI,
    name="civil_comments",
    problem=partial(classify, "civil_comments", 48, 16, 3),
    horizon=426,  # two epochs
    targets=(0.6, 0.5, 0.45),
    seeds=5,
    **until_loss(0.38),
)
