"""Tests of the laws on samples of different lengths: a masked token must change
nothing.

There are two references. One is the same problem without the token, if every sample
loses one. The other are runs on samples of different lengths, which obey the law of
their tokens.
"""

from dataclasses import replace

import numpy as np
import pytest

from lib import attention, dynamics, svm
from lib.attention import coordinates, tokens
from lib.attention.token_sets import token_set
from lib.dynamics import NGD
from papers import joint_loss
from papers.atlas import atlas, atlas_used
from papers.law import (
    head_law,
    joint_law,
    lp_law,
    margin_law_runs,
    margin_law_steps,
    margin_theorem,
    zero_duals,
)
from papers.law import margin_law as law
from tests.masked import aligned, shown, with_a_token_more

DENSE = attention.gaussian_tokens([4, 9], n=3, T=4, d=40)
MASKED = with_a_token_more(DENSE)


def hidden_in(data, seed=0):
    """Draw a place for one masked token in each sample."""
    runs, n, T, _ = data.shape
    return np.random.default_rng(seed).integers(0, T + 1, (runs, n))


def masked(data):
    """Return the same problem with a masked token of junk in every sample."""
    return with_a_token_more(data, hidden_in(data))


def ragged(data, lengths, **changes):
    """Build one run of samples (T_i, d): the first tokens of each, with the opt
    token.
    """
    samples = []
    opt = []
    for i, length in enumerate(lengths):
        best = data.opt[0, i]
        rest = [t for t in range(data.shape[2]) if t != best]
        samples.append(data.X[0, i, [best, *rest[: length - 1]]])
        opt.append(0)
    return token_set(
        samples, data.y[0], data.z[0], changes.get("u", data.u[0]), opt=opt
    )


def test_the_law_is_that_without_the_token():
    ours = law.margin_law(MASKED, svm.token_svm(MASKED))
    wanted = law.margin_law(DENSE, svm.token_svm(DENSE))
    for field in ("constant", "norm", "slowest", "fastest", "excess"):
        np.testing.assert_allclose(
            getattr(ours, field), getattr(wanted, field), rtol=1e-8, err_msg=field
        )
    for field in ("offsets", "duals", "coefficients"):
        np.testing.assert_allclose(
            shown(getattr(ours, field), MASKED),
            aligned(getattr(wanted, field)),
            atol=1e-8,
            err_msg=field,
        )
    hidden = coordinates.hidden_pairs(MASKED, MASKED.opt)
    assert not ours.support[hidden].any()


def test_a_run_is_held_against_its_law_as_without_the_token():
    rule = NGD(0.5)
    ours, wanted = (
        margin_law_runs.compare(margin_law_runs.LawSetting("", data, rule), 10_000)
        for data in (MASKED, DENSE)
    )
    for a, b in zip(ours, wanted, strict=True):
        assert not a.refusal and not b.refusal
        np.testing.assert_allclose(a.predicted, b.predicted, rtol=1e-8)
        np.testing.assert_allclose(a.measured.error, b.measured.error, rtol=1e-8)
        np.testing.assert_allclose(a.measured.difference_gap, 0.0, atol=1e-6)


# What each law predicts for a data set, as arrays without masked pairs.


def joint(data):
    of = joint_law.predict(data)
    trained = joint_law.train(of, {"": NGD(0.3)}, 20_000)[""]
    at_level = of.at_level(trained.level)
    return {
        "constant": of.W_law.constant,
        "head's constant": of.head_law.constant,
        "constant at the head's level": at_level.constant,
        "limit of the curvature": of.curvature,
        "first step off the opt tokens": np.linalg.norm(of.frozen, axis=1),
        "head": np.linalg.norm(trained.first, axis=1),
        "outside": trained.outside,
        "error": trained.error,
        "curvature": trained.curvature,
    }


def heads(sets):
    of = head_law.predict(sets)
    values = {"constant": of.constant, "norm": of.norm, "mean": of.mean}
    for common in (True, False):
        trained = head_law.train(of, 0.1, 200, common)
        for name in ("norm", "error", "level", "whole"):
            values[f"{name}, {common}"] = getattr(trained, name)
        values[f"refusals, {common}"] = np.array(list(trained.refusals))
    return values


def lp(data):
    of = lp_law._LpLaw(data, 1.75)
    ran = lp_law._run(of, 3000, 20_000)
    by_steps = lp_law._train(of, [lambda t: 0.1], 50, [0, 20, 50])
    return {
        "constant": of.constant,
        "fastest": of.fastest,
        "share": of.share,
        "offsets": of.offsets(by_steps[0]),
        "error": ran.error,
        "W": by_steps,
    }


def idle_pair(data):
    of = zero_duals._ZeroDuals(zero_duals._tightened(data))
    ran = zero_duals._run(of, 50_000)
    return {
        "constants": of.constants,
        "slopes": of.slopes,
        "rate": of.rate,
        "step": of.step,
        "predicted residual": of.residual(np.array([3.0, 50.0])),
        "offsets": ran.offsets,
        "residual": ran.residual,
    }


def outside(data):
    of = zero_duals._Pulls(data)
    margins = 2 * of.margins
    return {
        "pull": of.pull(margins),
        "flow": of.flow(3.0),
        "first order": of.first_order(),
        "bound": zero_duals._bound(
            of.K, of.on_support, of.beta, of.margins, of.log_kappa
        ),
        "measured": zero_duals._left(of, 500).measured,
    }


def theorem(data):
    at = margin_law_runs.compare(
        margin_law_runs.LawSetting("", data, NGD(0.5, momentum=0.5)), 2000
    )[0]
    of = margin_theorem.Local(at.tokens, at.law, at.selected, "exponential")
    rules = {"NGD": NGD(0.5), "GD": dynamics.GD(1.0), "Polyak": dynamics.Polyak()}
    proofs = {
        name: margin_theorem.prove(of, r, at.margins[2]) for name, r in rules.items()
    }
    proofs["momentum"] = at.proof()
    values = {
        "B": of.B,
        "D": of.D,
        "M": of.M,
        "r": of.r,
        "norm": of.norm,
        "lowest": of.lowest,
        "across": of.across,
        "log kappa": of.log_kappa,
        "log nu": of.log_nu,
        "best": of.best,
        "delta": of.log_small(np.zeros(of.A.shape[1]), 1.0, 0.1),
        "curvature": of.curvature(0.5),
    }
    for name, proof in proofs.items():
        values[f"proof of {name}"] = proof.level, proof.A, proof.K, proof.q, proof.tau
        values[f"silence on {name}"] = bool(proof.why)
    return values


def largest_margins(data):
    rules = {"sign": dynamics.SteepestDescent(np.inf, 0.02)}
    path = dynamics.train(data, rules, 400, record=[200, 400])["sign"]
    found = atlas.ratios(path, atlas.BestMargins(data))
    one = data.run(0)
    A, sample = atlas.features(one, one.opt[0])
    return {
        "ratios": found.value,
        "steady": found.steady,
        "A": A,
        "sample": sample,
        "Adam's metric": atlas_used._fixed_point(A, sample, 5)[0],
    }


def longest_step(data):
    moved = margin_law_steps.cycles(data, [0.9, 1.1], steps=500).moved
    return {"moved": moved}


LAWS = {
    "joint": (joint, tokens.two_token_gaussian([100, 101], n=6, T=2, d=200)),
    "l_p": (lp, lp_law._problem(100)),
    "zero duals": (idle_pair, tokens.unit_tokens(101, n=6, T=8, d=10)),
    "outside": (outside, zero_duals.PROBLEMS["Gaussian"](100)),
    "theorem": (theorem, DENSE.run(0)),
    "atlas": (largest_margins, tokens.unit_tokens([3, 4], n=3, T=3, d=6)),
    "steps": (longest_step, DENSE),
}


def assert_equal(ours, wanted):
    for name, expected in wanted.items():
        np.testing.assert_allclose(
            ours[name], expected, rtol=1e-7, atol=1e-9, err_msg=name
        )


@pytest.mark.parametrize("name", LAWS)
def test_every_law_says_and_measures_what_it_does_without_the_token(name):
    values_of, data = LAWS[name]
    assert_equal(values_of(masked(data)), values_of(data))


def test_several_heads_say_and_measure_what_they_do_without_the_token():
    sets = head_law.three_heads([100, 101], n=4, T=3, d=100)
    hidden = hidden_in(sets[0])
    assert_equal(heads([with_a_token_more(head, hidden) for head in sets]), heads(sets))


def test_heads_with_other_masks_see_other_tokens():
    first, second, _ = head_law.three_heads([100], n=4, T=3, d=100)
    hidden = hidden_in(first)
    with pytest.raises(ValueError, match="head 1 has other tokens.* or another mask"):
        head_law.predict(
            [with_a_token_more(first, hidden), with_a_token_more(second, 0 * hidden)]
        )


# a sample of one token has no margin, but a score for the head
LENGTHS = (2, 3, 1, 4, 2, 4)


def test_joint_runs_on_texts_of_different_lengths_obey_their_law():
    dense = tokens.gaussian_tokens(100, n=6, T=4, d=300, signal=2.0)
    of = joint_law.predict(ragged(dense, LENGTHS, u=np.zeros(300)))
    ran = joint_law.train(of, {"": NGD(0.3, decay=0.5)}, 400_000)[""]
    np.testing.assert_allclose(joint_law.level_errors(ran), 0.0, atol=0.01)
    np.testing.assert_allclose(ran.curvature[:, -1] / of.curvature, 1.0, atol=0.01)
    # The first step has even weights over the tokens of each text.
    first = joint_law._off_span(joint_law._opt_tokens(of.problem.tokens), ran.first)
    np.testing.assert_allclose(first, 0.3 * of.frozen, atol=1e-12)


def test_the_curvature_on_texts_of_different_lengths_is_that_of_the_loss():
    drawn = ragged(tokens.unit_tokens(3, n=4, T=3, d=3), (3, 1, 2, 3))
    problem = coordinates.minimal(drawn)
    data = problem.tokens
    history = dynamics.train(problem, NGD(0.3), 30, [30], head="joint")
    d = data.X.shape[-1]
    d_z = data.z.shape[-1]

    def gradient(point):
        W = point[: d * d_z].reshape(1, d, d_z)
        _, of_W, of_u = attention.gradients(data, W, point[None, d * d_z :])
        return np.concatenate([of_W.ravel(), of_u.ravel()])

    point = np.concatenate([history.weights(0).ravel(), history.head(0).ravel()])
    step = 1e-5
    hessian = [
        (gradient(point + e) - gradient(point - e)) / (2 * step)
        for e in step * np.eye(point.size)
    ]
    loss = attention.gradients(data, history.weights(0), history.head(0))[0]
    wanted = np.abs(np.linalg.eigvalsh(np.array(hessian))).max() / loss
    found = joint_loss.curvature(history, data)[:, 0]
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    others = replace(data, X=data.X[..., ::-1])  # the same shape, other coordinates
    with pytest.raises(ValueError, match="in its coordinates"):
        joint_loss.curvature(history, others)


def test_heads_on_texts_of_different_lengths_obey_their_law():
    sets = head_law.three_heads([100], n=6, T=4, d=400)
    mask = np.arange(4) < np.array(LENGTHS)[:, None]
    rows = np.arange(6)
    for head in sets:  # every head's opt token is shown
        mask[rows, head.opt[0]] = True
    assert 0 < (~mask).sum() < mask.size / 2
    of = head_law.predict([replace(head, mask=mask[None]) for head in sets])
    common, each = (head_law.train(of, 0.1, 15_000, together) for together in (1, 0))
    assert common.refusals == each.refusals == {}
    np.testing.assert_allclose(common.norm * common.error, of.constant, rtol=1e-3)
    np.testing.assert_allclose(common.level - common.whole, of.mean, atol=1e-6)
    np.testing.assert_allclose(each.norm[1:], each.norm[:-1], rtol=1e-2)


@pytest.mark.parametrize(("p", "size"), [(1.75, 30_000), (2.0, 3000)])
def test_mirror_descent_on_texts_of_different_lengths_obeys_its_law(p, size):
    of = lp_law._LpLaw(
        ragged(tokens.gaussian_tokens(2, n=4, T=3, d=14), (3, 2, 1, 2)), p
    )
    assert of.rows.shape == (4, 14 * 14)
    ran = lp_law._run(of, size, 20_000)
    np.testing.assert_allclose(ran.norm[-1] * ran.error[-1], of.constant, rtol=0.01)


def test_an_idle_pair_among_texts_of_different_lengths_obeys_its_law():
    data = ragged(tokens.unit_tokens(101, n=6, T=8, d=10), (8, 5, 7, 1, 8, 6))
    of = zero_duals._ZeroDuals(zero_duals._tightened(data))
    ran = zero_duals._run(of, 200_000, decades=2)
    off = ran.offsets[-1] - np.log(ran.level[-1]) - of.constants
    np.testing.assert_allclose(off, 0.0, atol=0.05)


def test_what_texts_of_different_lengths_leave_outside_is_the_flows():
    data = ragged(tokens.gaussian_tokens(100, n=6, T=6, d=36), (6, 3, 5, 1, 6, 4))
    left = zero_duals._left(zero_duals._Pulls(data), 20_000)
    np.testing.assert_allclose(left.measured[-1], left.predicted[-1], rtol=0.05)
    assert left.measured[-1] < left.bound


def test_a_run_on_texts_of_different_lengths_is_proved():
    data = ragged(tokens.gaussian_tokens(100, n=6, T=4, d=300, signal=2.0), LENGTHS)
    at = margin_law_runs.compare(margin_law_runs.LawSetting("", data, NGD(0.5)), 20_000)
    assert at[0].refusal == ""
    assert at[0].proof().why == ""


def test_a_difference_to_a_masked_token_is_refused_or_zero():
    with pytest.raises(ValueError, match="`differences` has no value for masked"):
        coordinates.differences(MASKED, MASKED.opt)
    delta = coordinates.differences(MASKED, MASKED.opt, masked_as_zero=True)
    pairs = coordinates.shown_pairs(MASKED, MASKED.opt)
    assert not delta[~pairs].any()
    wanted = coordinates.differences(DENSE, DENSE.opt)
    np.testing.assert_array_equal(delta[pairs].ravel(), wanted.ravel())
    assert coordinates.shown_pairs(DENSE, DENSE.opt).all()
