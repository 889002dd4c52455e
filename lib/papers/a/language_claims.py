"""What paper A claims about language (Figures 1 and 4), measured on the histories of a comparison of rules."""

from collections.abc import Mapping

import numpy as np

from lib.companion import claims, record
from lib.training import comparison
from lib.training.comparison import Histories, Race
from lib.training.record import running_mean

FEWER = np.nextafter(1.0, 0.0)  # a ratio of steps below 1: as many steps are not fewer


def last_values(histories: Histories, window: int) -> tuple[dict[str, float], dict[str, float]]:
    """Training loss (mean of the last `window` batches) and test accuracy at the end: medians over seeds."""
    loss, accuracy = (comparison.stacked(histories, name) for name in ("loss", "test_accuracy"))
    return (
        {
            rule: float(np.median(running_mean(values, window)[:, -1]))
            for rule, values in loss.items()
        },
        {rule: float(np.median(values[:, -1])) for rule, values in accuracy.items()},
    )


def summary(histories: Histories, race: Race, window: int) -> str:
    """Where every rule ends, one line each, and then how many steps it needs to SGD's last loss."""
    loss, accuracy = last_values(histories, window)
    lines = [
        f"{rule:5} training loss {loss[rule]:.3f}, test accuracy {accuracy[rule]:.3f}; "
        + ", ".join(history.status for history in runs)
        for rule, runs in histories.items()
    ]
    return "\n".join([*lines, race.text()])


def entropy_ratio(histories: Histories, layers: int) -> dict[str, np.ndarray]:
    """Attention entropy, mean over `layers` layers, at the end over that at the start: (seeds,) for every rule."""
    columns = [comparison.stacked(histories, f"entropy.{k}") for k in range(layers)]
    mean = {
        rule: np.mean([column[rule] for column in columns], axis=0) for rule in histories
    }  # (seeds, points)
    return {rule: values[:, -1] / values[:, 0] for rule, values in mean.items()}


def table(
    histories: Histories,
    race: Race,
    rates: Mapping[str, float],
    classes: int,
    layers: int,
    figure: str,
    real: bool,
) -> claims.Table:
    """The claims of `figure` ("Fig. 1"). Those about language stand in it only where the data are
    `real`.

    Speed is claimed of the slowest seed. That attention entropy falls is our reading of Theorem 1,
    for a network with many layers that starts from pretrained attention.
    """
    errors = comparison.step_errors(histories, rates["SNGD"], rates["SPS"])
    best = max(
        float(np.median(v[:, -1])) for v in comparison.stacked(histories, "test_accuracy").values()
    )
    rows = [
        claims.at_most(
            "formula.SNGD", "SNGD: worst error of a step", "paper A, Eq. 2", errors["SNGD"], 1e-5
        ),
        claims.at_most(
            "formula.SPS", "SPS: worst error of a step", "paper A, Eq. 3", errors["SPS"], 1e-5
        ),
        claims.at_least("learns", "best test accuracy over chance", "ours", best * classes, 1.2),
    ]
    if real:
        for rule in ("SNGD", "SPS", "Adam"):
            words = f"{rule}: steps to SGD's last loss over SGD's, slowest seed"
            rows.append(
                claims.at_most(
                    f"faster.{rule}", words, f"paper A, {figure}", race.ratio[rule].max(), FEWER
                )
            )
        for rule, values in entropy_ratio(histories, layers).items():
            words = f"{rule}: attention entropy, last over first, largest seed"
            rows.append(
                claims.at_most(
                    f"entropy.{rule}", words, "paper A, Thm. 1 (our reading)", values.max(), 1
                )
            )
    return claims.Table(rows)


def numbers(
    histories: Histories,
    race: Race,
    grid: Mapping[str, Mapping[float, float]],
    window: int,
    layers: int,
    accuracy_tolerance: float,
) -> dict[str, record.Number]:
    """Test accuracy, training loss, steps ratio (mean and standard deviation) and entropy ratio of
    every rule.

    Also the held-out loss of every rate in the `grid`.
    """
    loss, accuracy = last_values(histories, window)
    turn = entropy_ratio(histories, layers)
    found = {
        f"{rule.lower()}_{rate:g}_held_out_loss": record.finite(held_out_loss, 0.15)
        for rule, trials in grid.items()
        for rate, held_out_loss in trials.items()
    }
    for rule in histories:
        name, ratio = rule.lower(), race.ratio[rule]
        spread = (
            float(np.std(ratio, ddof=1)) if len(ratio) > 1 and np.isfinite(ratio).all() else np.nan
        )
        found |= {
            f"{name}_test_accuracy": record.finite(accuracy[rule], accuracy_tolerance),
            f"{name}_training_loss": record.finite(loss[rule], 0.15),
            f"{name}_steps_ratio": record.finite(float(np.mean(ratio)), 0.3),
            f"{name}_steps_ratio_sd": record.finite(spread, 0.3),
            f"{name}_entropy_ratio": record.finite(float(np.median(turn[rule])), 0.1),
        }
        if "worst_group_accuracy" in histories[rule][0].metrics:
            worst = comparison.stacked({rule: histories[rule]}, "worst_group_accuracy")[rule][:, -1]
            found[f"{name}_worst_group_accuracy"] = record.finite(
                float(np.median(worst)), accuracy_tolerance
            )
    return found
