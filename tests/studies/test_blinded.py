"""Tests of the blinded look.

A failure means that it shows what it must hide, or requires other numbers of seeds.
"""

import math

import numpy as np
import pytest

from lib.training.curves import Curve, load
from papers.studies import blinded, confirm
from tests.studies.worlds import scattered, write_study

STUDY = "civil_comments_400"
RATIOS = {"SGD": 1.0, "Adam": 0.37, "SPS": 0.61, "SNGD": 0.83}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Write six seeds of a study that scatter by a third."""
    folder = tmp_path_factory.mktemp("six")
    plan = confirm.plans()[STUDY]
    write_study(STUDY, folder, scattered(plan, RATIOS, 0.33), seeds=range(30, 36))
    return folder


def by_hand(folder, rules):
    logs = {rule: [] for rule in rules}
    for seed in range(30, 36):
        for run in load(folder / STUDY / f"{seed}.npz").curves:
            logs[run.rule].append(math.log(run.clock["at"][-2]))
    return math.sqrt(np.mean([np.var(each, ddof=1) for each in logs.values()]))


def test_it_pools_the_deviation_within_rules(written):
    look = blinded.blinded_look(STUDY, written)
    assert look.deviation == pytest.approx(by_hand(written, RATIOS))
    assert look.planned == 0.163 and look.factor == pytest.approx(
        look.deviation / 0.163
    )


def test_it_prints_no_ratio_and_no_mean(written, capsys):
    assert blinded.main([STUDY, "--folder", str(written)]) == 0
    said = capsys.readouterr().out
    look = blinded.blinded_look(STUDY, written)
    numbers = f"{look.deviation:.4f} {look.planned:.4f} {look.factor:.4f} {look.seeds}".split()
    found = [word for word in said.split() if any(letter.isdigit() for letter in word)]
    assert found == numbers
    assert [line.split()[0] for line in said.splitlines()] == [
        "deviation",
        "planned",
        "factor",
        "seeds",
        "a",
    ]
    # The output does not depend on the ratios.
    assert not any(rule in said for rule in RATIOS)


def test_ratios_change_nothing_of_what_it_prints(tmp_path, capsys):
    plan = confirm.plans()[STUDY]
    said = []
    for k, ratios in enumerate(({}, dict.fromkeys(("Adam", "SPS", "SNGD"), 2.0))):
        base = scattered(plan, {}, 0.33, middle=12)

        def steps(rule, seed, base=base, ratios=ratios):
            return base(rule, seed) * ratios.get(rule, 1.0)

        write_study(STUDY, tmp_path / str(k), steps, seeds=range(30, 36))
        assert blinded.main([STUDY, "--folder", str(tmp_path / str(k))]) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]


@pytest.mark.parametrize(
    ("deviation", "seeds"),
    [(0.1, 24), (0.163, 24), (0.17, 27), (0.1630001, 25), (0.19, 33), (0.5, 36)],
)
def test_the_formula_by_hand(deviation, seeds):
    # 24 f^2 is 26.1 at 0.17, and 32.6 at 0.19; 1.5 times 24 is 36.
    assert blinded.seeds_needed(confirm.plans()[STUDY], deviation) == seeds


def test_a_run_that_missed_counts_with_the_horizon(tmp_path):
    plan = confirm.plans()[STUDY]
    base = scattered(plan, RATIOS, 0.2)
    write_study(
        STUDY,
        tmp_path,
        lambda rule, seed: np.inf if (rule, seed) == ("SGD", 31) else base(rule, seed),
        seeds=range(30, 36),
    )
    variances = []
    for rule in RATIOS:
        steps = [base(rule, seed) for seed in range(30, 36)]
        if rule == "SGD":
            steps[1] = plan.horizon
        variances.append(np.var(np.log(steps), ddof=1))
    look = blinded.blinded_look(STUDY, tmp_path)
    assert look.deviation == pytest.approx(math.sqrt(np.mean(variances)))


def test_rules_that_no_claim_names_do_not_count():
    assert blinded.named_rules("cifar10_50000") == ["SGD", "SNGD"]
    assert blinded.named_rules("mnist_60000") == ["SGD", "SNGD", "Adam"]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("mnits", "there is no plan for 'mnits', only for multi_nli_200"),
        ("vit_48000", "vit_48000 is not about speed, so its number of seeds is fixed"),
        ("mnist_60000", "mnist_60000 has 0 of the first 6 seeds, and needs them all"),
        (STUDY, f"{STUDY} has 5 of the first 6 seeds, and needs them all"),
    ],
)
def test_what_it_refuses(name, sentence, tmp_path, capsys):
    plan = confirm.plans()[STUDY]
    # Seven seeds do not help if one of the first is missing
    seeds = (
        30,
        31,
        32,
        33,
        34,
        36,
    )
    write_study(STUDY, tmp_path, scattered(plan, RATIOS, 0.2), seeds=seeds)
    assert blinded.main([name, "--folder", str(tmp_path)]) == 1
    printed = capsys.readouterr()
    assert (
        printed.out == "" and printed.err.count("\n") == 1 and sentence in printed.err
    )


def test_steps_are_counted_to_the_last_target():
    """Every run needs as many steps to the targets before it."""
    plan = confirm.plans()[STUDY]
    tick = plan.first_round.clock
    targets = plan.first_round.targets
    curves = {rule: {} for rule in RATIOS}
    for rule in RATIOS:
        for k, seed in enumerate(range(30, 36)):
            losses = np.full(20 + k, 0.99 * targets[-2])
            losses[:5] = 10.0
            losses[-3:] = 0.99 * targets[-1]
            at = tick * np.arange(len(losses))
            curves[rule][seed] = Curve("finished", clock={"at": at, "loss": losses})
    steps = [18 + k for k in range(6)]  # the middle one of the last three readings
    expected = np.std(np.log(steps), ddof=1)
    assert blinded.look_at(plan, curves).deviation == pytest.approx(expected)
