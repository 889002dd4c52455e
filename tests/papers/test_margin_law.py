"""The law of the margins on runs: it holds, every claim can fail, every refusal says why."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from lib import attention, dynamics, svm
from lib.attention import coordinates, tokens
from papers.beyond import margin_law
from papers.beyond import margin_law_claims as law_claims
from papers.beyond import margin_law_figures as figures
from papers.beyond import margin_law_networks as networks
from papers.beyond import margin_law_runs as runs
from papers.beyond import margin_law_steps as law_steps
from papers.beyond import margin_law_worlds as worlds

STEPS = 200_000


@pytest.fixture(scope="module")
def compared():
    """Partial support, two selections that are not the opt tokens; a Gaussian start; Polyak."""
    unit = tokens.unit_tokens([0, 1, 3, 4], n=6, T=8, d=10)
    pairs = tokens.gaussian_tokens([0, 1], n=4, T=2, d=40)
    start = dynamics.gaussian_start(coordinates.minimal(pairs), 0.1, [10, 11])
    settings = [
        runs.LawSetting("unit", unit, dynamics.ngd(0.5)),
        runs.LawSetting("pairs", pairs, dynamics.ngd(0.1, momentum=0.5), "logistic", start),
        runs.LawSetting("polyak", pairs, dynamics.polyak()),
    ]
    return [one for setting in settings for one in runs.compare(setting, STEPS)]


def test_every_claim_holds_on_every_run(compared):
    assert [one.refusal for one in compared] == [""] * 8
    elsewhere = [(one.selected != one.tokens.opt).any() for one in compared]
    assert sum(elsewhere) == 2 and elsewhere[0] and elsewhere[3]
    for claim in law_claims.all_claims(compared):
        assert claim.holds, claim


def test_every_world_is_caught_and_every_claim_catches_one(compared):
    found = worlds.caught(compared, law_claims.all_claims)
    assert all(found.values()), found
    catching = {id for ids in found.values() for id in ids}
    assert catching == {claim.id for claim in law_claims.all_claims(compared)}


def test_constant_is_measured_without_what_lies_outside(compared):
    assert [one.duals_alone for one in compared] == [False] * 6 + [True] * 2
    one = max(compared, key=lambda one: one.measured.outside / one.law.constant[0])
    assert one.measured.outside > one.law.constant[0]
    assert law_claims.residual([worlds.nothing_outside(one)]).holds
    bigger = replace(one, law=replace(one.law, constant=one.law.constant * (1 + 2e-6)))
    assert not law_claims.residual([bigger]).holds


def test_the_diagonal_shows_the_constant_and_how_far_off_it_is(compared):
    line, _ = figures.diagonal(compared).axes
    marks = [one for one in line.lines[:-1] if len(one.get_xdata())]
    found = sorted(tuple(p) for one in marks for p in zip(*one.get_data(), strict=True))
    wanted = sorted((c.law.constant[0], c.measured.residual) for c in compared)
    np.testing.assert_array_equal(found, wanted)
    wrong = [worlds.dual_off(one) for one in compared]  # no longer below what is drawn as rounding
    off = figures.diagonal(wrong).axes[1]
    worst = max(max(one.get_xdata(), default=0) for one in off.lines[:-1])
    np.testing.assert_allclose(worst, abs(law_claims.residual(wrong).measured))


@pytest.mark.parametrize("by", [0.01, -0.01])
def test_a_dual_off_by_one_percent_is_caught_in_every_single_run(compared, by):
    for one in compared:
        wrong = worlds.dual_off(one, by)
        assert not law_claims.offsets([wrong]).holds
        assert not law_claims.duals([wrong]).holds


def test_a_wrong_offset_shifts_the_constant_by_its_derivative(compared):
    one = compared[0]
    moved = worlds.offset_off(one, 1e-3).law.constant[0] - one.law.constant[0]
    least = np.abs(one.law.coefficients[one.law.support]).min() / one.law.constant[0]
    assert abs(abs(moved) / 1e-3 - least) < 0.01 * least + 1e-4


UNIT = tokens.unit_tokens(1, n=6, T=8, d=10)
PAIRS = tokens.gaussian_tokens(0, n=4, T=2, d=40)


@pytest.mark.parametrize(
    "data, rule, steps, premise, said",
    [
        (PAIRS, dynamics.gd(1.0), 20_000, "long enough", "decayed to .*times as large"),
        (PAIRS, dynamics.ngd(0.1), 100, "long enough", "times as large"),
        (UNIT, dynamics.ngd(0.01), 20, "selection made", "has not decided"),
        (UNIT, dynamics.ngd(0.5), 200, "score gaps", "1 of 15 tokens"),  # passing through
        (UNIT, dynamics.ngd(4.0), 20_000, "short steps", "less than 2.04"),
    ],
)
def test_runs_that_do_not_qualify_are_refused_by_name(data, rule, steps, premise, said):
    (one,) = runs.compare(runs.LawSetting("one run", data, rule), steps)
    assert one.law is None
    assert f"premise {premise!r} fails" in one.refusal and one.premise == premise
    assert np.isfinite(one.amount)
    assert re.search(said, one.refusal), one.refusal


def test_proof_asks_for_shorter_steps_than_the_threshold(compared):
    """By hand: sigma_t < 8/D^2, where sigma_t tends to eta ||V|| for NGD, ||V||^2/2 for Polyak."""

    def square(one):  # D^2
        delta = coordinates.differences(one.tokens, one.selected)
        A = np.einsum("rntd,rne->rntde", delta, one.tokens.z)[one.law.support]
        return max(np.sum((a - b) ** 2) for a in A for b in A)

    for one in compared:
        V = np.linalg.norm(one.solution.W)
        rule = one.setting.rule
        sigma = V**2 / 2 if one.setting.name == "polyak" else rule.step_size * V
        proof = one.proof(everywhere=True)
        assert proof.holds == (sigma < 8 / square(one) and rule.momentum == 0), proof
        assert one.proof().holds  # by the curvature near rho_perp, with momentum too
    one = compared[0]
    of_step = lambda eta: replace(one, setting=replace(one.setting, rule=dynamics.ngd(eta)))
    assert of_step(0.01).proof(everywhere=True).holds and one.proof(early=True).holds
    assert of_step(0.01).proof(early=True).level < of_step(0.01).proof().level
    assert "too long" in of_step(4.0).proof().why
    assert "another loss" in replace(compared[0], setting=compared[-1].setting).proof().why


LONGEST = margin_law.margin_law(UNIT, svm.token_svm(UNIT)).longest_step()[0]


def test_a_step_at_the_edge_needs_a_longer_run():
    """Below the threshold by 1e-4 the fastest mode has died to 0.9998^steps only."""
    near = runs.LawSetting("near", UNIT, dynamics.ngd(0.9999 * LONGEST))
    (one,) = runs.compare(near, 30_000)
    assert "premise 'long enough' fails" in one.refusal and "decayed to 2.5e-03" in one.refusal
    (one,) = runs.compare(runs.LawSetting("", UNIT, dynamics.ngd(0.99 * LONGEST)), 30_000)
    assert not one.refusal and np.abs(law_claims.offset_errors(one)).max() < law_claims.OFFSET


def test_a_cycle_below_the_threshold_is_not_at_rest():
    data = tokens.unit_tokens(3, n=6, T=8, d=10)
    longest = margin_law.margin_law(data, svm.token_svm(data)).longest_step(0.9)[0]
    for multiple, refused in ((0.8, True), (0.3, False)):
        rule = dynamics.ngd(multiple * longest, momentum=0.9)
        (one,) = runs.compare(runs.LawSetting("momentum", data, rule), 20_000)
        assert ("premise 'offsets at rest' fails" in one.refusal) == refused, one.refusal


def test_the_last_record_but_one_weighs_in_no_fit(compared):
    one = compared[0]
    assert STEPS - 1 in runs.late_records(STEPS)
    assert STEPS - 1 not in one.measured.iterations and one.measured.iterations[-1] == STEPS
    k = len(one.measured.iterations)
    assert {len(one.measured.error), len(one.measured.norm), len(one.measured.level)} == {k}


def test_refusals_name_the_run_of_their_setting():
    data = tokens.unit_tokens([3, 1], n=6, T=8, d=10)
    # longest 2.98, 2.04
    found = runs.compare(runs.LawSetting("unit", data, dynamics.ngd(2.2)), 20_000)
    assert [bool(one.refusal) for one in found] == [False, True]
    assert found[1].refusal.startswith("run 1, premise 'short steps' fails")
    assert runs.kept(found) == found[:1]


def test_duality_gap_vanishes_at_the_solution_alone():
    data = coordinates.minimal(tokens.unit_tokens([1, 3], n=6, T=8, d=10)).tokens
    solution = svm.token_svm(data)
    assert np.abs(runs.duality_gap(data, data.opt, solution.W, solution.duals)).max() < 1e-9
    draw = np.random.default_rng(0)
    for _ in range(50):  # weak duality: no W and no duals close the gap beyond zero
        W = solution.W + 0.1 * draw.standard_normal(solution.W.shape)
        duals = solution.duals * draw.uniform(0.5, 2.0, solution.duals.shape)
        assert runs.duality_gap(data, data.opt, W, duals).min() > 1e-6


@pytest.fixture(scope="module")
def small():
    problem = coordinates.minimal(tokens.gaussian_tokens([0], n=4, T=2, d=400))
    solution = svm.token_svm(problem.tokens)
    return problem, solution, margin_law.margin_law(problem.tokens, solution)


def in_time(small, rule, steps, record=None):
    problem, solution, _ = small
    return dynamics.train(problem, rule, steps, record, targets={"W_mm": solution.W})


def test_growing_steps_fall_onto_the_line(small):
    law = small[2]
    histories = {
        "GD": in_time(small, law_steps.growing_gd(1.0, 0.3), 2000),
        "Polyak": in_time(small, law_steps.growing_polyak(5.0, 0.3), 2000),
        "NGD": in_time(small, dynamics.ngd(0.1), 20_000),
    }
    assert law_steps.collapse(histories, "W_mm", law).holds
    wrong = replace(law, constant=1.0001 * law.constant)
    assert not law_steps.collapse(histories, "W_mm", wrong).holds
    near = law_steps.within_from(histories, "W_mm", law)
    for history in histories.values():
        ratio = law_steps.ratio_to_law(history, "W_mm", law)[0]
        assert (np.abs(ratio[history.norm[0] > near] - 1) <= 0.01).all()
    longest = max(history.norm.max() for history in histories.values())
    assert near < longest
    far = replace(law, constant=2 * law.constant)
    assert law_steps.within_from(histories, "W_mm", far) == longest


def test_constant_gd_steps_leave_the_law_unseen():
    problem = coordinates.minimal(tokens.unit_tokens(3, n=6, T=8, d=10))
    solution = svm.token_svm(problem.tokens)
    law = margin_law.margin_law(problem.tokens, solution)
    history = dynamics.train(problem, dynamics.gd(1.0), 5000, targets={"W_mm": solution.W})
    assert law_steps.not_yet(history, "W_mm", law, "GD").holds


def test_offsets_settle_at_the_rate_of_the_slowest_mode():
    problem = coordinates.minimal(tokens.class_mean_tokens(1, n=4, T=4, d=40))
    solution = svm.token_svm(problem.tokens)
    law = margin_law.margin_law(problem.tokens, solution)
    level = 30 / law.slowest[0]
    steps = int(level * law.norm[0] / 0.05)
    record = np.linspace(0, steps, 200).astype(int)
    history = dynamics.train(
        problem, dynamics.ngd(0.05), steps, record, targets={"W_mm": solution.W}
    )
    rates = law_steps.settling_rate(history, law)
    assert law_steps.settles_at(rates).holds
    assert not law_steps.settles_at(1.1 * rates).holds


@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_threshold_lies_between_two_steps(momentum):
    data = tokens.unit_tokens([1, 3], n=6, T=8, d=10)
    found = [law_steps.cycles(data, [0.96, 0.98, 1.02, 1.04], momentum, 10_000)]
    assert all(claim.holds for claim in law_steps.threshold(found, 0.98, 1.02))
    assert law_steps.short_step(found, 0.96).holds
    loud = law_steps.short_step(found, 1.04)
    assert not loud.holds and "large cycle" in loud.remark and loud.id == "law.short.1.04"
    short, long = law_steps.threshold(found, 1.02, 0.98)  # as if the threshold were 4 % off
    assert not short.holds and not long.holds


@pytest.mark.parametrize("seed, settles", [(0, False), (1, True)])
def test_polyak_settles_where_its_step_is_short_enough(seed, settles):
    problem = coordinates.minimal(tokens.unit_tokens(seed, n=6, T=8, d=10))
    solution = svm.token_svm(problem.tokens)
    law = margin_law.margin_law(problem.tokens, solution)
    assert (law.fastest[0] < 4) == settles and abs(law.fastest[0] - 4) > 0.5
    start = law_steps.settled_start(problem.tokens, solution.W, law)
    record = np.arange(4900, 5001)
    history = dynamics.train(problem, dynamics.polyak(), 5000, record, start=start)
    offsets = history.margins[0][:, law.support[0]]
    moved = np.ptp(offsets - offsets.mean(1, keepdims=True), axis=0).max()
    assert moved < law_steps.QUIET if settles else moved > law_steps.LOUD


def test_differences_of_gd_iterates_have_their_own_order(small):
    _, solution, law = small
    doubled = 2 ** np.arange(2, 19)
    history = in_time(small, dynamics.gd(0.5), doubled[-1], doubled)
    errors = law_steps.difference_errors(history, solution.W)
    assert law_steps.gd_order(history, errors, law).holds
    bent = errors * history.iterations[1:] ** 0.1
    assert not law_steps.gd_order(history, bent, law).holds
    assert not law_steps.gd_order(history, history.direction_error["W_mm"][:, 1:], law).holds


def test_gain_and_long_run_can_fail(small):
    _, solution, law = small
    doubled = 2 ** np.arange(2, 19)
    history = in_time(small, dynamics.ngd(0.1), doubled[-1], doubled)
    errors = law_steps.difference_errors(history, solution.W)
    assert law_steps.gain(history, "W_mm", errors).holds
    assert not law_steps.gain(history, "W_mm", errors + 1e-4 * errors[:, :1]).holds
    assert law_steps.long_run(history, "W_mm", law).holds
    wrong = replace(law, constant=1.01 * law.constant)
    assert not law_steps.long_run(history, "W_mm", wrong).holds


@pytest.fixture(scope="module")
def together():
    data = tokens.gaussian_tokens([0, 1], n=4, T=3, d=100)
    return networks.joint(data, dynamics.ngd(0.1), [25_000, 50_000, 100_000])


def test_a_trained_head_brings_its_own_duals(together):
    assert together.law.slowest.min() > 0.01  # settled long since: what is left is the head's
    for claim in networks.joint_claims(together):
        assert claim.holds, claim
    assert (together.difference < 1e-3 * together.plain).all()


def test_claims_of_the_trained_head_can_fail(together):
    swapped = replace(together, errors=together.fixed, fixed=together.errors)
    assert not any(claim.holds for claim in networks.joint_claims(swapped))


def test_a_tight_pair_without_a_dual_bends_the_rate():
    """w_1 and w_1 + w_2, W_mm = (1, 0): w_2 grows like log(kappa_2 w_1 / kappa_1)."""
    X = [[[0.0, 0.0], [-1.0, 0.0], [-1.0, -1.0]]]
    corner = attention.token_set(X, [1.0], z=[[1.0]], u=[1.0, 0.5])  # kappa 1 and 1.5
    history = dynamics.train(corner, dynamics.ngd(0.1), 300_000, [3_000, 30_000, 300_000])
    w_1, both = history.margins[0, :, 0].T
    np.testing.assert_allclose(both - w_1, np.log(1.5 * w_1), atol=0.03)
    assert abs((both - w_1 - np.log(1.5 * w_1))[-1]) < 1e-3


def test_a_network_is_read_as_its_own_forward_pass_says():
    (network, pictures, labels), *_ = networks.trained_networks([2], rows=6)
    x, W, logits, loss, slope = networks.attended(network, pictures, labels)
    assert abs(loss - torch.nn.functional.cross_entropy(network(pictures), labels).item()) < 1e-5
    np.testing.assert_allclose(logits, np.einsum("ntd,de,ne->nt", x, W, x[:, 0]), atol=1e-5)
    np.testing.assert_allclose(slope.sum(1), 0.0, atol=1e-7)  # logits count up to a constant
    reading, again = networks.read(network, pictures, labels)
    assert (again == W).all() and reading.refusal
    assert 0 <= reading.toward <= 1 and abs(reading.rest) <= 1
    assert abs(networks.turned(W, 0 * W, 3 * W) - 1) < 1e-12
