"""Tests of the judge on seeds' files.

A failure means that a file that is not as planned, or half a study, is judged.
"""

import json
import math
import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from lib.training.curves import Curve, Curves, load
from papers.studies import confirm, judge
from papers.studies.confirm import RACE
from papers.studies.family import FAMILY, centred_steps
from papers.studies.intervals import MeanInterval
from papers.verdicts import NOT_REPRODUCED, REPRODUCED, UNDECIDED
from tests.studies.test_family import reviews_of
from tests.studies.worlds import configuration_of, scattered, seed_file, write_study

STUDY = "civil_comments_400"
RATIOS = {"SGD": 1.0, "Adam": 0.4, "SPS": 0.85, "SNGD": 1.0}
FEW = range(30, 34)


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    """Write a full study whose runs scatter less than planned."""
    folder = tmp_path_factory.mktemp("full")
    plan = confirm.plans()[STUDY]
    write_study(STUDY, folder, scattered(plan, RATIOS, 0.05, middle=50))
    return folder


@pytest.fixture
def few(tmp_path):
    """Write four seeds of it."""
    plan = confirm.plans()[STUDY]
    write_study(STUDY, tmp_path, scattered(plan, RATIOS, 0.05, middle=50), seeds=FEW)
    return tmp_path


def refused(folder, capsys, *words):
    """Return the one sentence with which the judge stops."""
    assert judge.main([STUDY, "--folder", str(folder), *words]) == 1
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.count("\n") == 1
    return printed.err


def verdicts_of(folder, hours_ended=False):
    runs = judge.read_runs(confirm.plans()[STUDY], folder, hours_ended)
    return {verdict.claim: verdict for verdict in judge.judge({STUDY: runs})}


def test_a_full_study_is_judged_by_the_ratio_of_its_steps(full):
    found = verdicts_of(full)
    assert list(found) == ["fig4.adam", "fig4.sps", "fig4.sngd"]
    adam, sps, sngd = found.values()
    assert (adam.word, sps.word, sngd.word) == (REPRODUCED, REPRODUCED, NOT_REPRODUCED)
    assert adam.estimate == pytest.approx(0.4, rel=0.05) and adam.notes == ()
    assert sps.notes == ("faster by less than a fifth",)
    assert (adam.seeds, adam.planned) == (24, 24)
    # The claims of other studies count with p = 1: Holm multiplies the smallest p by
    # 21.
    least = min(found.values(), key=lambda each: each.p)
    assert least.holm == pytest.approx(21 * least.p)


def test_beside_a_verdict_stands_what_the_protocol_says(full):
    beside = verdicts_of(full)["fig4.adam"].beside
    assert list(beside["at every target"]) == ["0.6", "0.5", "0.4"]
    tick = 20
    runs = judge.read_runs(confirm.plans()[STUDY], full)
    steps = {
        rule: np.array([run.steps_to(0.4) for run in runs.of(rule)]) for rule in RATIOS
    }
    late = np.exp(np.mean(np.log(steps["Adam"] / steps["SGD"])))
    assert beside["first round's count"][0] == pytest.approx(late)
    fitted = np.exp(
        np.mean(np.log((steps["Adam"] - 2 * tick) / (steps["SGD"] - 2 * tick)))
    )
    assert beside["isotonic fit"][0] == pytest.approx(fitted)
    # In the race every rule needs 20 ticks at its first rate and 30 at its second.
    assert beside["best two rates"] == pytest.approx([2 / 3, 3 / 2])


def test_the_verdict_at_each_rank_is_that_of_holms_level(full):
    runs = judge.read_runs(confirm.plans()[STUDY], full)
    found = {verdict.claim: verdict for verdict in judge.judge({STUDY: runs})}
    order = sorted(found.values(), key=lambda verdict: verdict.p)
    for rank, verdict in enumerate(order):
        by_rank = judge.verdicts_by_rank(FAMILY[verdict.claim], runs)
        assert list(by_rank) == list(range(21, 0, -1))
        assert by_rank[21 - rank] == verdict.word
        assert by_rank[1] == verdict.alone


def test_a_claim_of_slower_can_be_refuted_at_a_high_level_and_hold_at_a_low_one():
    """Between 1 and 1.25 the protocol's words depend on the level."""
    ratio = MeanInterval(math.log(1.11), variance=0.2**2, seeds=28, geometric=True)
    claim = replace(FAMILY["fig6.sngd"], measure=lambda runs: [ratio])
    runs = SimpleNamespace(
        of=lambda rule: range(28), plan=confirm.plans()["mnist_60000"]
    )
    by_rank = judge.verdicts_by_rank(claim, runs)
    words = list(dict.fromkeys(by_rank.values()))
    assert words == [UNDECIDED, NOT_REPRODUCED, REPRODUCED]


def test_the_p_against_one_is_that_of_the_t_test(full):
    runs = judge.read_runs(confirm.plans()[STUDY], full)
    verdict = next(v for v in judge.judge({STUDY: runs}) if v.claim == "fig4.sngd")
    logs = np.log(
        [
            centred_steps(mine, 0.4) / centred_steps(theirs, 0.4)
            for mine, theirs in zip(runs.of("SNGD"), runs.of("SGD"), strict=True)
        ]
    )
    p = stats.ttest_1samp(logs, 0).pvalue
    # The error of reading the clock is added to the variance.
    assert p <= verdict.beside["p against 1"] == pytest.approx(p, rel=0.2)


def test_a_study_that_is_not_full_waits_unless_the_hours_have_ended(few, capsys):
    said = refused(few, capsys)
    assert f"{STUDY} is not full: 20 of 24 seeds are missing" in said
    found = verdicts_of(few, hours_ended=True)
    assert all("judged on 4 of 24 seeds" in each.notes for each in found.values())
    assert all(each.seeds == 4 for each in found.values())
    assert judge.main([STUDY, "--folder", str(few), "--hours-ended"]) == 0
    assert capsys.readouterr().out.count("judged on 4 of 24 seeds") == 3


def test_a_study_without_a_seed_is_not_judged(tmp_path, capsys):
    said = refused(tmp_path, capsys)
    assert "24 of 24 seeds are missing" in said
    assert judge.read_runs(confirm.plans()[STUDY], tmp_path, hours_ended=True) is None
    found = judge.judge({STUDY: None})
    assert {each.word for each in found} == {UNDECIDED} and {
        each.p for each in found
    } == {1.0}
    assert found[0].notes == ("no seed has run",)


def test_the_blinded_look_decides_when_a_study_is_full(tmp_path, capsys):
    plan = confirm.plans()[STUDY]
    wide = scattered(plan, RATIOS, 0.5, middle=30)
    write_study(STUDY, tmp_path, wide)
    assert "12 of 36 seeds are missing" in refused(tmp_path, capsys)
    more = confirm.with_seeds(plan, 36)
    for seed in range(54, 66):
        seed_file(more, seed, wide).save(tmp_path / STUDY / f"{seed}.npz")
    assert verdicts_of(tmp_path)["fig4.adam"].seeds == 36


def test_seeds_beyond_the_number_needed_are_refused(full, tmp_path, capsys):
    folder = tmp_path / "more"
    shutil.copytree(full, folder)
    plan = confirm.with_seeds(confirm.plans()[STUDY], 36)
    steps = scattered(plan, RATIOS, 0.05, middle=50)
    seed_file(plan, 54, steps).save(folder / STUDY / "54.npz")
    assert "is judged on 24 seeds, [54] are beyond them" in refused(folder, capsys)


def changed(folder, seed, change):
    """Rewrite a seed's file with every run changed."""
    path = folder / STUDY / f"{seed}.npz"
    curves = load(path)
    replace(curves, curves=tuple(map(change, curves.curves))).save(path)


def made_by(name, value):
    return lambda run: replace(run, made=run.made | {name: value})


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (made_by("code", "another"), "30.npz: SGD was run with code 'another'"),
        (made_by("torch", "2.12"), "30.npz: SGD was run with torch '2.12'"),
        (made_by("threads", 2), "30.npz: SGD was run with threads 2"),
        (
            lambda run: replace(run, rate=0.7),
            "30.npz: SGD was run at rate 0.7, the race chose",
        ),
        (
            lambda run: replace(run, cap=9.0),
            "30.npz: SGD was run with cap 9.0, the plan has None",
        ),
        (
            lambda run: replace(run, status="paused after step 3"),
            "the seed is not whole",
        ),
        (
            lambda run: replace(run, seed=31),
            "30.npz holds seed [31], not the one of its name",
        ),
        (
            lambda run: replace(run, rule="SGD", rate=0.025, cap=None),
            "has runs of ['SGD', 'SGD'",
        ),
    ],
)
def test_a_file_that_is_not_as_planned_is_refused(few, change, sentence, capsys):
    changed(few, 30, change)
    assert sentence in refused(few, capsys, "--hours-ended")


def test_a_half_seed_is_refused(few, capsys):
    path = few / STUDY / "31.npz"
    curves = load(path)
    replace(curves, curves=curves.curves[:2]).save(path)
    assert "31.npz has runs of ['SGD', 'Adam'], the plan has" in refused(
        few, capsys, "--hours-ended"
    )


def test_a_seed_that_is_there_twice_is_refused(few, capsys):
    shutil.copy(few / STUDY / "30.npz", few / STUDY / "030.npz")
    assert "seed 30 is there twice" in refused(few, capsys, "--hours-ended")
    (few / STUDY / "030.npz").rename(few / STUDY / "30 copy.npz")
    assert "30 copy.npz is named after no seed" in refused(few, capsys, "--hours-ended")


def test_a_file_that_cannot_be_read_is_refused(few, capsys):
    path = few / STUDY / "32.npz"
    path.write_bytes(path.read_bytes()[:-100])
    assert "32.npz is not a curve file that can be read" in refused(
        few, capsys, "--hours-ended"
    )


def test_another_study_or_other_data_are_refused(few, capsys):
    path = few / STUDY / "32.npz"
    curves = load(path)
    other = curves.configuration | {"horizon": 720}
    Curves(other, curves.curves).save(path)
    assert "32.npz is of a study with horizon 720, the plan has 1440" in refused(
        few, capsys
    )
    problem = curves.configuration["problem"] | {"data": {"name": "other"}}
    Curves(curves.configuration | {"problem": problem}, curves.curves).save(path)
    assert "32.npz has other data or another network than" in refused(few, capsys)


def test_a_race_of_other_code_or_a_missing_one_is_refused(few, capsys):
    path = few / STUDY / f"{RACE}.npz"
    race = load(path)
    runs = tuple(replace(run, made=run.made | {"code": "x"}) for run in race.curves)
    Curves(race.configuration, runs).save(path)
    assert f"{RACE}.npz: SGD was run with code 'x'" in refused(few, capsys)
    path.unlink()
    assert f"{RACE}.npz is missing, by which the rates were chosen" in refused(
        few, capsys
    )


def test_an_unknown_study_is_refused(tmp_path, capsys):
    assert judge.main(["mnits", "--folder", str(tmp_path)]) == 1
    assert (
        "there is no plan for 'mnits', only for multi_nli_200"
        in capsys.readouterr().err
    )


def test_a_missed_target_is_judged_by_the_signed_rank_and_says_so(tmp_path):
    plan = confirm.plans()[STUDY]
    base = scattered(plan, RATIOS, 0.05, middle=50)

    def steps(rule, seed):
        if (rule, seed) == ("SNGD", 40):
            return math.inf
        return base(rule, seed)

    write_study(STUDY, tmp_path, steps)
    found = verdicts_of(tmp_path)
    for each in found.values():
        assert "by the signed rank, since a run missed its target" in each.notes
    assert found["fig4.adam"].word == REPRODUCED
    assert found["fig4.adam"].beside["isotonic fit"][0] == pytest.approx(0.4, rel=0.05)


def test_the_records_can_be_read_back(full, tmp_path, capsys):
    path = tmp_path / "verdicts.json"
    assert judge.main([STUDY, "--folder", str(full), "--json", str(path)]) == 0
    said = capsys.readouterr().out
    saved = json.loads(path.read_text("utf-8"))
    assert saved["family"] == 21 and len(saved["verdicts"]) == 3
    assert saved["verdicts"][0]["word"] == REPRODUCED
    assert said.startswith("fig4.adam: reproduced (0.4")
    assert judge.plain({"a": (math.inf, 1.0), "b": math.nan}) == {
        "a": ["inf", 1.0],
        "b": "nan",
    }


# Paper C.


def judged_reviews(accuracies):
    runs = reviews_of(accuracies)
    return {verdict.claim: verdict for verdict in judge.judge({"imdb_256": runs})}


def test_a_rule_below_the_papers_level_leaves_its_claims_undecided_and_says_why():
    found = judged_reviews({"l1.1": 0.86, "l2": 0.84, "l3": 0.78})
    assert found["imdb.l1.1>l2"].word == REPRODUCED
    assert "after 19 epochs" in found["imdb.l1.1>l2"].notes
    for name in ("imdb.l1.1>l3", "imdb.l3>l2"):
        assert found[name].word == UNDECIDED and found[name].p == 1.0
        assert (
            found[name].notes[0].startswith("the gate is not passed: l3 ends at 0.78")
        )
    assert found["attention.sharper"].word == REPRODUCED


def test_of_other_studies_the_first_rounds_gate_holds(monkeypatch, full):
    claim = FAMILY["fig4.adam"]
    runs = judge.read_runs(confirm.plans()[STUDY], full)
    assert judge.gate(claim, runs) == ""
    kept = confirm.first_round(confirm.plans()[STUDY])
    hits = [run for run in kept.curves if run.part == "baseline"]
    perfect = [
        replace(run, end=run.packed(np.ones(len(run.hits), bool))) for run in hits
    ]
    rest = [run for run in kept.curves if run.part != "baseline"]
    monkeypatch.setattr(
        confirm,
        "first_round",
        lambda plan: Curves(kept.configuration, (*rest, *perfect)),
    )
    assert "does not beat every plain classifier" in judge.gate(claim, runs)
    assert {each.word for each in judge.judge({STUDY: runs})} == {UNDECIDED}


def test_a_claim_that_cannot_be_measured_counts_with_p_1():
    runs = reviews_of({"l1.1": 0.86, "l2": 0.84, "l3": 0.83})
    broken = dict(runs.curves["l1.1"])
    lost = broken[30].metrics | {"every_test_accuracy": np.full(5, np.nan)}
    broken[30] = replace(broken[30], metrics=lost)
    curves = dict(runs.curves) | {"l1.1": broken}
    found = {
        each.claim: each
        for each in judge.judge({"imdb_256": replace(runs, curves=curves)})
    }
    assert found["imdb.l1.1>l2"].p == 1.0
    assert found["imdb.l1.1>l2"].notes[0].startswith("cannot be measured: ")
    assert found["imdb.l3>l2"].p < 1.0


def test_a_fault_of_the_code_is_no_verdict():
    """Only NotMeasurable means that a claim cannot be measured."""
    runs = reviews_of({"l1.1": 0.86, "l2": 0.84, "l3": 0.83})
    fewer = dict(runs.curves["l2"])
    fewer[99] = replace(fewer.pop(30), seed=99)
    seeds = [*runs.seeds, 99]
    other = replace(runs, curves=dict(runs.curves) | {"l2": fewer}, seeds=seeds)
    with pytest.raises(ValueError, match="have run different seeds"):
        judge.judge({"imdb_256": other})


def test_growth_has_the_seeds_that_measure_it():
    plan = confirm.plans()["cifar10_50000"]
    claims = {
        name: judge._seeds(FAMILY[name], None) for name in FAMILY if "fig7" in name
    }
    assert claims["fig7.sngd"] == (14, 0) and claims["fig7.growth.adam"] == (6, 0)
    assert configuration_of(plan)["targets"] == [1.7, 1.5, 1.4]


def test_a_verdict_shows_its_estimate_between_the_ends_of_its_interval(full):
    for verdict in verdicts_of(full).values():
        runs = judge.read_runs(confirm.plans()[STUDY], full)
        (interval,) = FAMILY[verdict.claim].measure(runs)
        shown = verdict.estimate, verdict.low, verdict.high
        assert shown == (interval.estimate, interval.low, interval.high)
        assert verdict.low < verdict.estimate < verdict.high


def test_a_single_seed_is_read_and_gives_no_interval(tmp_path):
    plan = confirm.plans()[STUDY]
    write_study(STUDY, tmp_path, scattered(plan, RATIOS, 0.05), seeds=[30])
    runs = judge.read_runs(plan, tmp_path, hours_ended=True)
    assert runs.seeds == [30] and runs.configuration["name"] == STUDY
    found = judge._measured(FAMILY["fig4.adam"], runs)
    assert found == ([], "1 seeds give no interval")


def test_a_claim_has_as_many_seeds_as_its_rarer_rule():
    runs = reviews_of({"l1.1": 0.86, "l2": 0.84})
    one = {30: runs.curves["l2"][30]}
    found = judge._measured(
        FAMILY["sparsity.K"], replace(runs, curves=dict(runs.curves) | {"l2": one})
    )
    assert found == ([], "1 seeds give no interval")


def noted(low, high, word=REPRODUCED):
    """Return the notes on a ratio with these ends, whose claim is decided."""
    middle = (math.log(low) + math.log(high)) / 2
    half = (math.log(high) - math.log(low)) / 2
    z = 1.959963984540054
    interval = MeanInterval(middle, 0.0, 9, (half / z) ** 2, geometric=True)
    decision = SimpleNamespace(word=word, level=0.95)
    case = SimpleNamespace(intervals=[interval])
    return judge._notes(FAMILY["fig4.adam"], None, case, decision)


@pytest.mark.parametrize(
    ("low", "high", "notes"),
    [
        (0.85, 0.95, ["faster by less than a fifth"]),
        (1.05, 1.2, ["slower by less than a fifth"]),
        (0.9, 1.1, []),  # neither faster nor slower
        (0.7, 0.78, []),  # faster by more
        (1.3, 1.5, []),  # slower by more
        (0.72, 0.98, ["faster by less than a fifth"]),  # the estimate is 0.84
        (1.02, 1.5, ["slower by less than a fifth"]),  # the estimate is 1.237
    ],
)
def test_a_small_difference_is_noted_by_its_estimate_and_its_side(low, high, notes):
    assert noted(low, high) == notes
    assert noted(low, high, UNDECIDED) == []


def test_epochs_are_steps_times_the_batch_over_the_rows():
    runs = reviews_of({"l1.1": 0.86, "l2": 0.84})
    configuration = dict(runs.configuration) | {"batch": 100, "problem": {"rows": 1000}}
    runs = replace(
        runs, configuration=configuration, plan=replace(runs.plan, horizon=50)
    )
    case = SimpleNamespace(intervals=FAMILY["sparsity.K"].measure(runs))
    decision = SimpleNamespace(word=UNDECIDED, level=0.95)
    notes = judge._notes(FAMILY["sparsity.K"], runs, case, decision)
    assert notes == ["after 5 epochs"]


def first_round_of(accuracies, plain):
    """Return a first round of two rules and plain classifiers with these accuracies on
    100 rows.
    """

    def run(name, share, part):
        hits = np.arange(100) < round(100 * share)
        return Curve("finished", part=part, rule=name, end=Curve.packed(hits))

    curves = [run(name, share, "curve") for name, share in accuracies.items()]
    curves += [run(name, share, "baseline") for name, share in plain.items()]
    return Curves({"rates": dict.fromkeys(accuracies)}, tuple(curves))


@pytest.mark.parametrize(
    ("accuracies", "plain", "passes"),
    [
        ({"SGD": 0.6, "Adam": 0.8}, {"words": 0.7, "nearest": 0.5}, True),
        ({"SGD": 0.6, "Adam": 0.8}, {"words": 0.7, "nearest": 0.9}, False),
        ({"SGD": 0.6, "Adam": 0.8}, {"words": 0.8}, False),  # it must be ahead
        ({"SGD": 0.6, "Adam": 0.81}, {"words": 0.8}, True),
    ],
)
def test_the_best_rule_must_beat_the_best_plain_classifier(
    monkeypatch, accuracies, plain, passes
):
    made = first_round_of(accuracies, plain)
    monkeypatch.setattr(confirm, "first_round", lambda plan: made)
    runs = SimpleNamespace(plan=None)
    assert (judge.gate(FAMILY["fig4.adam"], runs) == "") == passes
