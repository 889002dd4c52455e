"""Invented seeds' files of the confirmation, whose truth is known."""

import numpy as np

from lib.training.curves import Curve, Curves
from papers.studies.confirm import RACE, TABLE, plans

MADE = {name: TABLE[name] for name in ("code", "torch", "threads")}


def readings_to(plan, steps):
    """Return a clock that ends with its first three low readings, with `steps` in their
    middle.
    """
    tick = plan.first_round.clock
    target = plan.first_round.targets[-1]
    if np.isinf(steps):
        last = plan.horizon
    else:
        last = int(steps) + tick
    at = np.arange(0, last + 1, tick)
    losses = np.full(len(at), 10.0 * target)
    if np.isfinite(steps):
        losses[-3:] = 0.9 * target
    return {"at": at.astype(np.float32), "loss": losses.astype(np.float32)}


def run_to(plan, rule, seed, steps, *, rate=None, cap=None, part="curve"):
    """Return a run that needs so many steps, infinite if it misses its target."""
    return Curve(
        status="finished" if np.isinf(steps) else f"stopped after step {steps:g}",
        part=part,
        rule=rule,
        rate=plan.rates[rule][0] if rate is None else rate,
        cap=cap,
        seed=seed,
        made=MADE,
        clock=readings_to(plan, steps),
    )


def cap_of(plan, rule):
    """Return the cap of `rule` if every race is won by the first rate."""
    if rule != "SNGD":
        return None
    if plan.cap is not None:
        return plan.cap
    return plan.rates["SPS"][0]


def configuration_of(plan):
    study = plan.first_round
    return {
        "name": plan.name,
        "horizon": plan.horizon,
        "batch": study.batch,
        "clock": study.clock,
        "targets": list(study.targets),
        "problem": {"data": {"name": "invented"}, "rows": 25_000},
    }


def write_race(plan, folder, slower=1.5):
    """Write a race that the first rate of every rule wins by the factor `slower`."""
    runs = []
    tick = plan.first_round.clock
    for rule, rates in plan.rates.items():
        if len(rates) == 1:
            continue
        for seed in TABLE["race_seeds"]:
            for k, rate in enumerate(rates):
                steps = 20 * tick * (slower if k else 1)
                cap = cap_of(plan, rule)
                runs.append(
                    run_to(plan, rule, seed, steps, rate=rate, cap=cap, part="trial")
                )
    Curves(configuration_of(plan), tuple(runs)).save(folder / plan.name / f"{RACE}.npz")


def seed_file(plan, seed, steps):
    """Return the runs of one seed; steps(rule, seed) says how many steps each needs."""
    runs = []
    for rule in plan.rules(seed):
        runs.append(run_to(plan, rule, seed, steps(rule, seed), cap=cap_of(plan, rule)))
    return Curves(configuration_of(plan), tuple(runs))


def write_study(name, folder, steps, seeds=None):
    """Write the race and the seeds of a study below `folder`, by default all seeds.

    steps(rule, seed) says how many steps each run needs. Returns the plan.
    """
    plan = plans()[name]
    write_race(plan, folder)
    for seed in plan.numbers if seeds is None else seeds:
        seed_file(plan, seed, steps).save(folder / name / f"{seed}.npz")
    return plan


def scattered(plan, ratios, deviation, middle=40):
    """Return steps(rule, seed): `middle` ticks times the rule's ratio, with noise.

    Steps are on the ticks of the clock.
    """
    tick = plan.first_round.clock

    def steps(rule, seed):
        place = sorted(plan.rates).index(rule)
        generator = np.random.default_rng([seed, place])
        exact = middle * ratios.get(rule, 1.0) * np.exp(deviation * generator.normal())
        return tick * max(1, round(exact))

    return steps
