"""Tests of keys and queries in many digits.

A failure means that factors turn to another norm than stated.
"""

import itertools
from dataclasses import replace

import mpmath
import numpy as np
import pytest
from scipy.optimize import linprog

from lib import dynamics
from lib.attention import coordinates, tokens
from lib.dynamics.in_coordinates import factored
from papers.atlas import atlas, atlas_rules, factored_atlas
from tests import exact
from tests.papers.wrong_laws import caught

DATA = tokens.unit_tokens(range(2), n=4, T=5, d=6)
SEEDS = range(2)
# d = 6, d_z = 8
WIDE = replace(DATA, z=np.concatenate([DATA.z, DATA.z[..., :2] ** 2], -1))


def steepest(norm):
    return lambda: lambda t, parts: exact.steepest(parts.mean(0), norm)


long = dict(decay=0.25, normalised=False)
DIRECTIONS = {  # rule, and what makes its direction of one factor's gradient
    "NGD": (dynamics.SteepestDescent(2, 0.05, decay=0.5), steepest("frobenius")),
    "polar": (
        dynamics.SteepestDescent("spectral", 0.05, decay=0.5),
        steepest("spectral"),
    ),
    "sign": (dynamics.SteepestDescent(np.inf, 0.05, decay=0.5), steepest(np.inf)),
    "Adam": (dynamics.Adam(0.02, memory=0.99), lambda: exact.adaptive(0.9, 0.99)),
    "GD": (
        dynamics.SteepestDescent(2, 0.3, **long),
        lambda: lambda t, parts: parts.mean(0),
    ),
    "polar, long": (
        dynamics.SteepestDescent("spectral", 0.1, **long),
        lambda: (
            lambda t, parts: (
                exact.svd(parts[0])[1].sum() * exact.steepest(parts[0], "spectral")
            )
        ),
    ),
    "Signum": (
        dynamics.Signum(0.02, momentum=0.8),
        lambda: exact.sign_momentum(0.8, 0.8),
    ),
    "Lion": (
        dynamics.Lion(0.02, first_mix=0.7, momentum=0.9),
        lambda: exact.sign_momentum(0.7, 0.9),
    ),
}


@pytest.mark.parametrize("loss", ["exponential", "logistic"])
@pytest.mark.parametrize("name", DIRECTIONS)
def test_short_runs_are_those_of_their_definition(name, loss):
    """Queries are wider than tokens here."""
    (rule, make) = DIRECTIONS[name]
    (K, Q) = factored.small_start(WIDE, SEEDS, 3, size=0.3)
    ours = factored.train(WIDE, {"a": rule}, K, Q, [8], loss)["a"].W[0, 0]
    with mpmath.workdps(30):
        theirs = exact.train_factors(WIDE, K[0], Q[0], make, rule, 8, loss)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-11)
    assert np.abs(ours - K[0] @ Q[0].T).max() > 0.005


def test_one_step_where_every_gradient_underflows_is_that_of_mpmath():
    """With margins of thousands float64 has no gradient left, but its direction is
    still known.
    """
    K, Q = factored.small_start(DATA, SEEDS, 4)
    far = factored.train(DATA, {"a": dynamics.SteepestDescent(2, 0.1)}, K, Q, [800])[
        "a"
    ]
    K = far.path.K[:, 0]
    Q = far.path.Q[:, 0]
    delta = coordinates.differences(DATA, DATA.opt)[0]
    margins = np.einsum("ntd,de,ne->nt", delta, far.W[0, 0], DATA.z[0])
    assert margins.min() > 800
    after = factored.train(DATA, {"a": dynamics.SteepestDescent(2, 1.0)}, K, Q, [1])[
        "a"
    ]
    with mpmath.workdps(int(margins.max())):  # digits enough for 1 - p
        W = exact.digits(K[0]) @ exact.digits(Q[0].T)
        G = exact.gradients(DATA.run(0), W, "exponential").mean(0)
        for move, factor, old in (
            (G @ Q[0], after.path.K, K[0]),
            (G.T @ K[0], after.path.Q, Q[0]),
        ):
            unit = (move / mpmath.sqrt((move * move).sum())).astype(float)
            np.testing.assert_allclose(factor[0, 0] - old, unit, rtol=0, atol=1e-9)


def test_zero_factors_are_a_saddle_and_one_zero_factor_is_not():
    zero = np.zeros((2, 6, 3))
    for rule in (
        dynamics.SteepestDescent(2, 0.1),
        dynamics.SteepestDescent("spectral", 0.1),
        dynamics.Adam(0.1),
    ):
        found = factored.train(DATA, {"a": rule}, zero, zero, [5])["a"]
        assert (found.status == "stalled").all() and (found.ended == 0).all()
        assert "stalled" in repr(found)
        _, Q = factored.small_start(DATA, SEEDS, 3)
        moved = factored.train(DATA, {"a": rule}, zero, Q, [5])["a"]
        assert (moved.status == "completed").all() and (
            np.abs(moved.W[:, 0]).max((1, 2)) > 0
        ).all()


K_0, Q_0 = factored.small_start(DATA, SEEDS, 3)
GD = dynamics.SteepestDescent(2, 0.1)
NO_RULES = [
    dynamics.Muon(0.1),
    dynamics.Shampoo(0.1),
    replace(GD, batch_size=1),
    replace(GD, blocks=2),
]
NO_RULES += [replace(GD, radius=1.0, growth=2.0)]
REFUSED = [  # K, Q, the rule, and what the message must name
    (K_0, Q_0[..., :2], GD, "Q has shape"),
    (K_0[..., :0], Q_0[..., :0], GD, "K has shape"),
    (K_0, np.full_like(Q_0, np.nan), GD, "Q holds NaN"),
    *((K_0, Q_0, rule, "'a': ") for rule in NO_RULES),
]


@pytest.mark.parametrize("K, Q, rule, named", REFUSED)
def test_factors_that_do_not_fit_are_refused(K, Q, rule, named):
    with pytest.raises(ValueError, match=named):
        factored.train(DATA, {"a": rule}, K, Q, [1])
    with pytest.raises(ValueError, match="m = 0"):
        factored.small_start(DATA, SEEDS, 0)
    with pytest.raises(ValueError, match="loss"):
        factored.train(DATA, {"a": GD}, K_0, Q_0, [1], "sigmoid")


def test_a_small_start_has_its_deviation_and_a_run_its_own_seed():
    K, Q = factored.small_start(WIDE, [3, 4], 400, size=0.3)
    assert K.shape == (2, 6, 400) and Q.shape == (2, 8, 400)
    assert np.concatenate([K, Q], 1).std() == pytest.approx(0.3 / 20, rel=0.03)
    alone = factored.small_start(WIDE.run(1), [4], 400, size=0.3)
    np.testing.assert_array_equal(alone[0][0], K[1])
    np.testing.assert_array_equal(alone[1][0], Q[1])


def test_the_sign_norm_of_nothing_and_of_what_has_none():
    assert factored_atlas._sign_norm(np.zeros((3, 2))) == 0
    for W, named in ((np.full((2, 2), np.inf), "NaN"), (np.ones((15, 2)), "15 rows")):
        with pytest.raises(ValueError, match=named):
            factored_atlas._sign_norm(W)


@pytest.mark.parametrize(
    "products, greedy, slack", [(300, 20, 0.4), (2, 0, 0.01), (1, 0, 2.0)]
)
def test_sign_norm_is_the_linear_program_of_all_products(
    monkeypatch, products, greedy, slack
):
    for name, value in (("PRODUCTS", products), ("GREEDY", greedy), ("SLACK", slack)):
        monkeypatch.setattr(factored_atlas, name, value)
    x, y = (np.array(list(itertools.product((1.0, -1.0), repeat=k))) for k in (4, 5))
    every = np.einsum("ri,sj->rsij", x, y).reshape(-1, 20)
    for W in np.random.default_rng(5).standard_normal((4, 4, 5)):
        whole = linprog(np.ones(len(every)), A_eq=every.T, b_eq=W.ravel()).fun
        assert factored_atlas._sign_norm(W) == pytest.approx(whole, rel=1e-8)


def test_best_sign_margin_is_not_beaten():
    random = np.random.default_rng(4)
    A = random.standard_normal((3, 4, 5))
    best, gap = factored_atlas._best_sign_margin(A)
    assert gap <= 1e-8
    for W in random.standard_normal((20, 4, 5)):
        assert np.einsum("mde,de->m", A, W).min() <= best * factored_atlas._sign_norm(
            W
        ) * (1 + 1e-8)
    alone, _ = factored_atlas._best_sign_margin(A[:1])
    value = factored_atlas._largest_products(A[0], factored_atlas._signs(4), 1)[0][0]
    assert alone == pytest.approx(value, rel=1e-8)


@pytest.fixture(scope="module")
def ran():
    data = tokens.unit_tokens([102, 103], n=6, T=8, d=8)
    table = {k: v for k, v in factored_atlas.rows().items() if not k.startswith("Adam")}
    return table, *factored_atlas.run(data, table, 20_000, [102, 103])


def test_short_runs_turn_to_the_induced_norms_and_wrong_worlds_are_caught(ran):
    table, both, alone, gap = ran
    assert gap < 1e-7
    for name, row in table.items():
        for ends, norm in ((both, row.norm), (alone, row.alone_norm)):
            assert atlas_rules.ranked(ends[name].last, factored_atlas.NORMS, norm) == (
                1,
                norm,
            )
    claims = factored_atlas.predictions(table, both, alone)
    assert "factors.bounded" in [claim.id for claim in claims if claim.holds]
    turned = dict(zip(table, [*both.values()][1:] + [*both.values()][:1], strict=True))
    small = {name: replace(ends, value=1.1 * ends.value) for name, ends in both.items()}
    wrong = {"rules exchanged": (turned, alone), "W in place of (K, Q)": (alone, both)}
    wrong["best margins 10 % small"] = small, alone
    there = {
        world: factored_atlas.predictions(table, *of) for world, of in wrong.items()
    }
    assert all(caught(claims, there).values())


def claims_of(row, last, alone=None):
    """Return the claims on one rule whose runs end at the ratios `last` (runs,
    norms).
    """
    ends = [
        {"a": atlas.Ratios(None, np.array(values)[:, None], None, None)}
        for values in (last, last if alone is None else alone)
    ]
    return {
        c.id.split(".")[1]: c for c in factored_atlas.predictions({"a": row}, *ends)
    }


def test_one_run_decides_what_is_asked_of_every_run():
    """ "Highest" is required in every run or in half of them, "above" for the least of
    all runs.
    """
    rows = factored_atlas.rows()
    norms = factored_atlas.NORMS
    in_sign, in_nuclear, in_l_inf = (
        np.where(np.arange(len(norms)) == norms.index(of), 0.95, 0.5)
        for of in (factored_atlas.SIGN, "nuclear", "l_inf")
    )
    none = np.full(len(norms), np.nan)
    cases = [  # rule, claim, ratios with (K, Q), whether it holds, ratios with W
        ("sign descent", "norm", [in_sign] * 2, True),
        ("sign descent", "norm", [in_sign, in_nuclear], False),
        ("Adam, 0.999", "norm", [in_sign, in_nuclear], True),
        ("Adam, 0.999", "norm", [in_sign, in_nuclear, in_nuclear], False),
        ("Adam, 0.999", "norm", [in_sign, none, none], False),
        ("sign descent", "above", [in_sign, 0.8 * in_sign], True),
        ("sign descent", "above", [in_sign, 0.78 * in_sign], False),
        ("sign descent", "alone", [in_sign], True, [in_l_inf]),
        ("sign descent", "alone", [in_l_inf], False, [in_sign]),
    ]
    for name, claim, last, holds, *alone in cases:
        assert claims_of(rows[name], last, *alone)[claim].holds == holds, (name, claim)
