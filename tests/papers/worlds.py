"""Invented curves of a study, whose truth is known."""

import numpy as np

from lib.training.curves import Curve, Curves


def curve(rule, seed, loss, part="curve", rate=0.1, cap=None, **rest):
    """Return a curve with the given loss (steps,).

    Its steps obey the equation of "SPS" or "SNGD", which needs a `cap`. A curve of
    another rule has no steps. `rest` replaces fields of the curve.
    """
    loss = np.asarray(loss, dtype=np.float32)
    norm = (1 + loss).astype(np.float32)
    if rule == "SNGD":
        taken = np.minimum(rate / norm.astype(float), cap)
    else:
        taken = np.minimum(loss.astype(float) / (2 * norm.astype(float) ** 2), rate)
    kept = rule in ("SPS", "SNGD")
    if kept:
        steps = taken.astype(np.float32)
    else:
        steps = np.zeros(0, np.float32)
    norms = norm if kept else np.zeros(0, np.float32)
    fields = dict(
        part=part, rule=rule, rate=rate, cap=cap, seed=seed, status="finished"
    )
    fields |= dict(seconds=36.0, loss=loss, step_size=steps, gradient_norm=norms)
    fields |= dict(
        evaluated_at=np.array([0, len(loss)]), made={"commit": "c", "code": "h"}
    )
    return Curve(**{**fields, **rest})


def clocked(
    seed, readings, rate=0.1, rule="SGD", every=5, steps=None, part="trial", **rest
):
    """Return a curve whose clock has these `readings` of the loss, one every `every`
    steps.

    The curve has `steps` steps, by default up to the last reading.
    """
    readings = np.asarray(readings, dtype=float)
    clock = {"at": every * np.arange(len(readings)), "loss": readings}
    loss = np.ones(steps or every * (len(readings) - 1))
    return curve(rule, seed, loss, part, rate, clock=clock, **rest)


def answers(hits):
    """Return the end of a run that classifies these test rows correctly."""
    return {"test_correct": np.packbits(hits), "test_rows": np.array(len(hits))}


def tried(rules, share, rates=(0.05, 0.1, 0.2), rows=1000):
    """Return trials of `rules` at `rates`, and a plain classifier.

    The classifier has this share of the rows right; there is none if `share` is None.
    """
    trials = [
        clocked(100, np.ones(3), rate, rule, status="paused", cap=3.0)
        for rule in rules
        for rate in rates
    ]
    if share is None:
        return trials
    end = answers(np.arange(rows) < rows * share)
    return [*trials, curve("bag of words", 0, np.zeros(0), "baseline", end=end)]


def configuration(rules, horizon, **rest):
    """Return a study's configuration."""
    problem = {
        "data": {"name": "invented", "source": "hub"},
        "rows": 100,
        "test_rows": 1000,
        "network": "none",
    }
    values = dict(
        name="invented", rates={rule: [0.1, 0.2] for rule in rules}, horizon=horizon
    )
    values |= dict(batch=10, window=5, targets=[1.0, 0.5], walk=False, stop="never")
    return values | {"problem": problem} | rest


def falling(steps, speed, rng):
    """Return a noisy loss that falls like exp(-speed k)."""
    return 2 * np.exp(-speed * np.arange(steps)) * rng.lognormal(0, 0.02, steps)


def race(
    speeds, seeds=5, horizon=200, network=0.8, plain=0.7, rates=(0.05, 0.1, 0.2), **rest
):
    """Return curves of rules that fall at `speeds`, which vary by up to 5 % between
    seeds.

    The clock reads each step's loss. `network` and `plain` are shares of test rows that
    are classified correctly, by the curves' network and by a plain classifier. `rest`
    goes to `configuration`.
    """
    rng = np.random.default_rng(1)
    runs = tried(speeds, plain, rates)
    norms = dict(
        weight_norms={"w.weight": np.ones(2)}, walked={"w.weight": np.zeros(2)}
    )
    how = dict(
        end=answers(np.arange(1000) < 1000 * network),
        evaluated_at=np.array([0, horizon]),
    )
    how |= norms | dict(metrics={"test_accuracy": np.array([0.1, network])})
    for rule, speed in speeds.items():
        for seed in range(seeds):
            loss = falling(horizon, speed * rng.uniform(0.95, 1.05), rng)
            clock = {"at": np.arange(horizon), "loss": loss}
            cap = 3.0 if rule == "SNGD" else None
            runs.append(curve(rule, seed, loss, cap=cap, clock=clock, **how))
    return Curves(configuration(speeds, horizon, **rest), tuple(runs))
