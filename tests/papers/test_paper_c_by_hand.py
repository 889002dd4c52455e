"""What paper C's cones and claims measure, where the numbers are known beforehand."""

from dataclasses import replace

import numpy as np
import pytest

from lib import mirror
from lib.attention import coordinates, tokens
from lib.mirror import geometry
from papers.c import cone_lemmas, cones, predecessor, rates, section5

DATA = tokens.unit_tokens(range(2), n=3, T=4, d=6)
EXPONENTS = [1.3, 2, 3]
OF = {p: cones.selection(DATA, DATA.opt, p) for p in EXPONENTS}


def pairs(data):
    """(x_t - x_s) z^T of all pairs of tokens, flat: (runs, n, T, T, d d_z)."""
    apart = data.X[:, :, :, None] - data.X[:, :, None]
    return np.einsum("rntsd,rne->rntsde", apart, data.z).reshape(*apart.shape[:-1], -1)


@pytest.mark.parametrize("p", EXPONENTS)
def test_worst_edges_make_hoelders_inequality_an_equality(p):
    of = OF[p]
    apart = coordinates.differences(of.tokens, of.tokens.opt)
    A = np.swapaxes(coordinates.constraint_rows(apart, of.tokens.z), 0, 1)
    E = cones.worst_edges(of)[: len(A)]
    sizes = geometry.norm(A, p / (p - 1)) * geometry.norm(E, p)
    np.testing.assert_allclose((A * E).sum(-1), sizes, rtol=1e-12)


def test_nearness_is_half_the_least_excess_and_at_most_one_half():
    of = OF[2]
    margins = np.ones_like(of.solution.margins)
    margins[0, 0, 0], margins[1, 0, 0] = 1.6, 3.0
    seen = replace(of, solution=replace(of.solution, margins=margins))
    np.testing.assert_allclose(cones.delta(seen), [0.3, 1.0])
    np.testing.assert_allclose(cones.nearness(seen), [0.3, 0.5])


@pytest.mark.parametrize("p", EXPONENTS)
def test_the_radius_moves_the_worst_pair_by_the_nearness(p):
    """mu_0 by Lemmas 12 and 13 backwards: the distance that it allows, and what that moves."""
    of = OF[p]
    mu, q, entries = cones.radius(of), p / (p - 1), of.direction.shape[-1]
    if p >= 2:
        distance = 2 * (mu * p) ** (1 / p)  # D >= ||V - W||_p^p / (p 2^p)
    else:
        distance = np.sqrt(2 * mu / (p - 1)) * entries ** (
            1 / p - 0.5
        )  # D >= (p-1)/2 ||V - W||_2^2
    A = pairs(of.tokens).reshape(2, -1, entries)
    E = geometry.to_mirror(A, q)
    with np.errstate(invalid="ignore"):  # 0/0 of a token less itself
        E /= geometry.norm(E, p)[..., None]
    most = np.nanmax((A * E).sum(-1), 1)  # what a step of length 1 moves at most
    np.testing.assert_allclose(distance * most * of.solution.norm, cones.nearness(of), rtol=1e-9)


def test_a_path_that_leaves_its_cone_on_the_way_is_seen():
    D = np.array([[0.1, 0.2, 0.05]])
    stays = cone_lemmas.lemma28(OF[2], D, np.array([0.15]))
    assert not stays.holds and stays.measured == pytest.approx(0.2 / 0.15)
    assert stays.remark.endswith("0.5 to 0.5")


@pytest.mark.parametrize("p, exponent", [(1.3, -0.6), (2, -2.0), (3, -2.0)])
def test_the_divergence_falls_with_the_square_of_the_error(p, exponent):
    history = mirror.train(DATA, mirror.MirrorRule(p), 3)
    r = np.broadcast_to(np.geomspace(10, 1e4, history.norm.shape[1]), history.norm.shape)
    history = replace(history, norm=r)
    for off, holds in ((0.0, True), (0.2, False)):
        assert rates.lemma29(history, r ** (exponent + off))[1].holds == holds


def test_a_run_between_two_svms_is_not_nearest_to_its_own():
    history = mirror.train(DATA, mirror.MirrorRule(2), 3)
    names = (1.5, 2.5, 3.5)  # none of the reference's exponents
    last = {(p, q): np.full((4, 1), 1.0 if p == q else 2.0) for p in names for q in names}
    claims = section5.bregman_claims(last, dict.fromkeys(names, history))
    assert {c.id: c.holds for c in claims}["bregman.runs.1.5"]
    last[1.5, 2.5][0] = 0.5
    claims = section5.bregman_claims(last, dict.fromkeys(names, history))
    runs = {c.id: c for c in claims}["bregman.runs.1.5"]
    assert not runs.holds and runs.measured == 0.75


def test_rank_does_not_depend_on_the_scale():
    W = np.diag([1.0, 0.1, 1e-9, 0.0])[None]
    for scale in (1e-12, 1.0, 1e12):
        assert predecessor.ranks(scale * W).tolist() == [2]


@pytest.mark.parametrize("p", EXPONENTS)
def test_lemma_20_has_no_more_room_than_the_margins_of_its_cone(p):
    """There they lie within 1 +- nearness/2 at ||W_mm||, so that c grows at most by m_1 - m_0."""
    multiples = np.geomspace(5, 5e3, 7)
    _, rate = cone_lemmas.lemma20(OF[p], multiples, 3)
    assert 0 <= rate.measured <= multiples[1] - multiples[0] + 1
