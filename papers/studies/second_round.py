"""The pictures of the second round: paper A's Figures 1, 4, 6 and 7 and paper C's
vision study, drawn from fresh seeds.

Page 51 records the verdicts of the judge (see `papers.studies.judge`). Here they are
drawn beside the runs from which they are decided.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from companion import record
from companion.claims import Claim, Table
from companion.record import Number, finite
from lib import files
from lib.training.curves import Curves
from papers.studies import confirm, fresh_seeds, judge, kept_curves, reviews, speed
from papers.studies.family import (
    FAMILY,
    REFERENCE,
    Runs,
    centred_steps,
    ends,
    smallest_log_growth,
    steps_interval,
)
from papers.studies.fresh_seeds import growth_in_per_cent

# The figures whose studies are judged, each with the short name of its picture.
FIGURES = {
    "fig1": "fastrates_fig1",
    "fig4": "fastrates_fig4",
    "fig6": "fastrates_fig6",
    "fig7": "fastrates_fig7",
    "vit": "mirror_vit",
}
# The numbers of a record that are those of a claim, by the claim's name.
VISION_NUMBERS = {"vit.early": "early_steps_ratio", "vit.sparser": "sparser_difference"}


class Study(NamedTuple):
    """The runs of one study with its recorded verdicts.

    Parameters
    ----------
    figure
        The figure, one of `FIGURES`.
    runs
        The runs as the judge reads them.
    curves
        The same runs, with those of the race. If the runs go to the horizon, the plain
        classifiers of the first round are added, which were fitted to the same rows. A
        run that ends at its target is not compared with them.
    claims
        The verdicts that page 51 records, which are corrected for the whole family.
    corrected
        {claim: (low, high)}, the interval of each claim at the level of Holm's
        procedure.
    levels
        {claim: level}, this level.
    """

    figure: str
    runs: Runs
    curves: Curves
    claims: Table
    corrected: Mapping[str, tuple[float, float]]
    levels: Mapping[str, float]


def read(figure: str) -> Study:
    """Read the runs with fresh seeds of one figure, and the verdicts on its claims.

    Parameters
    ----------
    figure
        One of `FIGURES`.

    Returns
    -------
    Study
        The study.

    Raises
    ------
    ValueError
        If seeds are missing, or if a file is not as planned, as for `judge.read_runs`.
    """
    name = kept_curves.STUDIES[figure]
    runs = judge.read_runs(confirm.plans()[name], confirm.FOLDER)
    plain = []
    if not runs.plan.speed:
        first_round = kept_curves.kept(name)
        plain = [curve for curve in first_round.curves if curve.part == "baseline"]
    judged = [run for rule in runs.rates for run in runs.of(rule)]
    curves = Curves(runs.configuration, (*plain, *runs.race.curves, *judged))

    path = files.ROOT / "figures" / "desk" / f"{fresh_seeds.RECORD}.json"
    saved = record.read(path)
    claims = []
    corrected = {}
    levels = {}
    for row in saved["claims"]:
        claim = Claim.of(row)
        if FAMILY[claim.id].study == name:
            claims.append(claim)
            ends = [f"{claim.id}.corrected_{end}" for end in ("low", "high")]
            values = [saved["numbers"][end]["value"] for end in ends]
            # A claim that was not judged has no ends, which a record writes as null.
            low, high = (np.nan if value is None else value for value in values)
            corrected[claim.id] = (low, high)
            levels[claim.id] = saved["numbers"][f"{claim.id}.level"]["value"]
    return Study(figure, runs, curves, Table(claims), corrected, levels)


def rows(study: Study) -> list[speed.Row]:
    """Return the rows of `speed.draw` for a study of paper A, with corrected verdicts.

    Parameters
    ----------
    study
        The study of "fig1", "fig4", "fig6" or "fig7".

    Returns
    -------
    list of Row
        One row per rule but the reference, in the order of `speed.ordered`. A rule
        about which there is no claim has a row without a verdict.
    """
    claimed = {}
    for claim in study.claims:
        if claim.id not in growth_claims(study):
            claimed[FAMILY[claim.id].rules[0]] = claim
    found = []
    for rule in study.runs.rates:
        if rule != REFERENCE:
            found.append(_row(study, rule, claimed.get(rule)))
    return speed.ordered(found)


def _row(study: Study, rule: str, claim: Claim | None) -> speed.Row:
    """Return the row of a rule. If no claim is about the rule, the row has its interval
    at 95 % alone.
    """
    horizon = study.runs.plan.horizon
    steps, reference = _paired_steps(study, rule)
    missed = np.isinf(steps) | np.isinf(reference)
    # A run that missed the target counts with the horizon, and its dot is hollow.
    ratios = np.minimum(steps, horizon) / np.minimum(reference, horizon)
    if claim is None:
        clock = study.runs.configuration["clock"]
        seen = steps_interval(steps, reference, clock, ranked=bool(missed.any()))
        return speed.Row(
            rule=rule,
            ratio=speed.Bar(*ends(seen), ratios),
            missed=missed,
            verdict=f"no claim, {len(ratios)} seeds",
            word=None,
        )
    return speed.Row(
        rule=rule,
        ratio=speed.Bar(claim.measured, *claim.interval, ratios),
        missed=missed,
        verdict=claim.verdict,
        word=FAMILY[claim.id].word,
        corrected=study.corrected[claim.id],
    )


def _paired_steps(study: Study, rule: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the steps of a rule and of the reference to the last target, (seeds,), on
    the seeds that the rule has run. The reference has run all seeds.
    """
    target = study.runs.targets[-1]
    counted = {}
    for run in study.curves.judged():
        counted[run.rule, run.seed] = centred_steps(run, target)
    seeds = [seed for seed in study.runs.seeds if (rule, seed) in counted]
    steps = np.array([counted[rule, seed] for seed in seeds])
    reference = np.array([counted[REFERENCE, seed] for seed in seeds])
    return steps, reference


def growth_claims(study: Study) -> dict[str, Claim]:
    """Return the claims of a study that norms grow, by id. Only Figure 7 has some."""
    return {claim.id: claim for claim in study.claims if ".growth." in claim.id}


def grown(study: Study) -> Curves:
    """Return the runs in which the growth of norms is measured, with their norms up to
    the step at which it is measured.

    Parameters
    ----------
    study
        The study of "fig7".

    Returns
    -------
    Curves
        The runs of the first seeds, in which every rule goes on up to this step. They
        may end later, so their later norms are left out.
    """
    plan = study.runs.plan
    kept = []
    for run in study.curves.judged():
        if plan.grows(run.seed):
            early = run.evaluated_at <= plan.stop_from
            norms = {name: each[early] for name, each in run.weight_norms.items()}
            walked = {name: each[early] for name, each in run.walked.items()}
            at = run.evaluated_at[early]
            cut = replace(run, weight_norms=norms, walked=walked, evaluated_at=at)
            kept.append(cut)
    return Curves(study.curves.configuration, tuple(kept))


def smallest(study: Study) -> list[speed.Row]:
    """Return a row for each claim that norms grow, for `layers.at_the_end`.

    Parameters
    ----------
    study
        The study of "fig7".

    Returns
    -------
    list of Row
        In a row, "ratio" is the growth of the matrix that grows least in a seed, in per
        cent of its norm at the start. The claims are about its logarithm.
    """
    step = study.runs.plan.stop_from
    rows = []
    for name, claim in growth_claims(study).items():
        rule = FAMILY[name].rules[0]
        of_seeds = []
        for run in study.runs.of(rule):
            if study.runs.plan.grows(run.seed):
                of_seeds.append(smallest_log_growth(run, step))
        bar = map(growth_in_per_cent, (claim.measured, *claim.interval))
        values = np.array([*map(growth_in_per_cent, of_seeds)])
        row = speed.Row(
            rule=rule,
            ratio=speed.Bar(*bar, values),
            missed=np.zeros(len(of_seeds), bool),
            verdict=claim.verdict,
            word=FAMILY[name].word,
            corrected=tuple(map(growth_in_per_cent, study.corrected[name])),
        )
        rows.append(row)
    return rows


def draw(study: Study) -> Figure:
    """Draw the first picture of a study.

    Parameters
    ----------
    study
        The study.

    Returns
    -------
    Figure
        For a study of paper A the steps to the last target, divided by SGD's, and below
        them the training loss. For paper C's vision study the test accuracy over steps.
    """
    if study.figure == "vit":
        early, _ = study.claims
        return reviews.vision_figure(study.curves, early)
    return speed.draw(study.curves, rows(study), centred=True)


def caption(study: Study) -> str:
    """Write the caption of `draw`: what the marks mean, the setting, the rates and the
    verdicts.
    """
    said = []
    for claim in study.claims:
        said.append(replace(claim, statement=fresh_seeds.sentence(FAMILY[claim.id])))
    raced = "each the better of two in a race on three other seeds"
    seeds = "none of the judged seeds had been run before"
    if study.figure == "vit":
        marks = "thin lines: runs"
        chosen = f" ({raced}, by held-out accuracy; {seeds})."
        number = "Paper C, vision experiment"
        return kept_curves.caption(number, study.curves, marks, Table(said), chosen)
    marks = (
        f"bars: 95 % (thin: corrected for {len(FAMILY)} claims), dots: seeds; below:"
        " a line for each run, and geometric means"
    )
    stop = study.curves.configuration["stop"]
    if study.runs.plan.grown:
        stop += f" in the first {study.runs.plan.grown} seeds"
    given = [rule for rule, rates in study.runs.plan.rates.items() if len(rates) == 1]
    if given:
        raced += f", but for {kept_curves.listed(given)}, which was given"
    chosen = (
        f" ({raced}; stop: {stop}; {seeds}). Hollow dots: the run missed the target."
    )
    number = f"Paper A, Figure {study.figure.removeprefix('fig')}"
    return kept_curves.caption(number, study.curves, marks, Table(said), chosen)


def numbers(study: Study) -> dict[str, Number]:
    """Return the numbers of a record: those of `kept_curves`, and for each claim its
    estimate with both intervals.

    For the vision study they include what `reviews` measures of the same runs, and with
    "first_" before their names the indices of the first round, whose l1.1 had another
    learning rate.
    """
    measured = kept_curves.numbers(study.curves)
    if study.figure == "vit":
        of_rule = {rule: study.runs.of(rule) for rule in reviews.VISION}
        measured |= reviews.vision_numbers(study.curves)
        measured |= reviews.weight_numbers(of_rule)
        earlier = kept_curves.kept("vit")
        for name, number in reviews.vision_numbers(earlier).items():
            if name.endswith("_hoyer"):
                measured[f"first_{name}"] = number
        _, sparser = reviews.vision_table(earlier)
        measured["first_sparser_difference"] = finite(sparser.measured, 1e-9)
    for row in rows(study) if study.runs.plan.speed else []:
        if row.word is None:
            name = f"{row.rule.lower()}_steps_ratio"
            measured[name] = finite(row.ratio.estimate, 1e-9)
            measured[f"{name}_low"] = finite(row.ratio.low, 1e-6)
            measured[f"{name}_high"] = finite(row.ratio.high, 1e-6)
    if growth_claims(study):
        measured |= _growth_numbers(study)
    for claim in study.claims:
        rule = FAMILY[claim.id].rules[0].lower()
        if claim.id in growth_claims(study):
            name = f"{rule}_smallest_log_growth"
        else:
            name = VISION_NUMBERS.get(claim.id, f"{rule}_steps_ratio")
        measured |= claim_numbers(study, claim, name)
    return measured


def claim_numbers(study: Study, claim: Claim, name: str) -> dict[str, Number]:
    """Return the estimate of a claim as `name`, and the ends of its two intervals.

    A claim that was not judged has no numbers.
    """
    if claim.interval is None:
        return {}
    low, high = claim.interval
    corrected_low, corrected_high = study.corrected[claim.id]
    return {
        name: finite(claim.measured, 1e-9),
        f"{name}_low": finite(low, 1e-6),
        f"{name}_high": finite(high, 1e-6),
        f"{name}_corrected_low": finite(corrected_low, 1e-6),
        f"{name}_corrected_high": finite(corrected_high, 1e-6),
    }


def _growth_numbers(study: Study) -> dict[str, Number]:
    """Return the growth of matrices under each rule: the smallest one and the median,
    in the mean over seeds, and how many matrices grow, and how many less than a random
    walk with steps of the same lengths.
    """
    curves = grown(study)
    measured = {}
    for rule in study.runs.rates:
        grows, walks = (each.mean(1) for each in speed.growth(curves, rule))
        name = rule.lower()
        measured[f"{name}_least_growth"] = finite(grows.min(), 1e-9)
        measured[f"{name}_median_growth"] = finite(np.median(grows), 1e-9)
        measured[f"{name}_matrices_grow"] = finite((grows > 0).sum(), 0.0)
        measured[f"{name}_below_walk"] = finite((grows <= walks).sum(), 0.0)
    measured["matrices"] = finite(len(grows), 0.0)
    return measured


def table(study: Study) -> Table:
    """Return the claims of a record: the checks of the step sizes, for paper A.

    The verdicts themselves are claims of the record of page 51.
    """
    if study.figure == "vit":
        return Table([])
    return Table(speed.formulas(study.curves))
