"""The pictures of the second round: paper A's Figures 1, 4 and 6 and paper C's vision
study, drawn from fresh seeds.

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
from papers.studies.family import FAMILY, REFERENCE, Runs, centred_steps

# The figures whose studies are judged, each with the short name of its picture.
FIGURES = {
    "fig1": "fastrates_fig1",
    "fig4": "fastrates_fig4",
    "fig6": "fastrates_fig6",
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
    """

    figure: str
    runs: Runs
    curves: Curves
    claims: Table
    corrected: Mapping[str, tuple[float, float]]


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
    for row in saved["claims"]:
        claim = Claim.of(row)
        if claim.id.split(".")[0] == figure:
            claims.append(claim)
            ends = [f"{claim.id}.corrected_{end}" for end in ("low", "high")]
            low, high = (saved["numbers"][end]["value"] for end in ends)
            corrected[claim.id] = (low, high)
    return Study(figure, runs, curves, Table(claims), corrected)


def rows(study: Study) -> list[speed.Row]:
    """Return the rows of `speed.draw` for a study of paper A, with corrected verdicts.

    Parameters
    ----------
    study
        The study of "fig1", "fig4" or "fig6".

    Returns
    -------
    list of Row
        One row per claim, in the order of `speed.ordered`.
    """
    target = study.runs.targets[-1]
    horizon = study.runs.plan.horizon
    steps = {}
    for rule in study.runs.rates:
        runs = study.curves.runs(rule)
        steps[rule] = np.array([centred_steps(run, target) for run in runs])
    reference = steps[REFERENCE]

    found = []
    for claim in study.claims:
        rule = FAMILY[claim.id].rules[0]
        # A run that missed the target counts with the horizon, and its dot is hollow.
        ratios = np.minimum(steps[rule], horizon) / np.minimum(reference, horizon)
        row = speed.Row(
            rule=rule,
            ratio=speed.Bar(claim.measured, *claim.interval, ratios),
            missed=np.isinf(steps[rule]) | np.isinf(reference),
            verdict=claim.verdict,
            word=FAMILY[claim.id].word,
            corrected=study.corrected[claim.id],
        )
        found.append(row)
    return speed.ordered(found)


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
    for claim in study.claims:
        rule = FAMILY[claim.id].rules[0]
        name = VISION_NUMBERS.get(claim.id, f"{rule.lower()}_steps_ratio")
        low, high = claim.interval
        corrected_low, corrected_high = study.corrected[claim.id]
        measured[name] = finite(claim.measured, 1e-9)
        measured[f"{name}_low"] = finite(low, 1e-6)
        measured[f"{name}_high"] = finite(high, 1e-6)
        measured[f"{name}_corrected_low"] = finite(corrected_low, 1e-6)
        measured[f"{name}_corrected_high"] = finite(corrected_high, 1e-6)
    return measured


def table(study: Study) -> Table:
    """Return the claims of a record: the checks of the step sizes, for paper A.

    The verdicts themselves are claims of the record of page 51.
    """
    if study.figure == "vit":
        return Table([])
    return Table(speed.formulas(study.curves))
