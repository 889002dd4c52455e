"""Paper C's cones and claims where the numbers are known beforehand."""

from dataclasses import replace

import numpy as np
import pytest

from lib import mirror
from lib.attention import tokens
from lib.mirror import geometry
from papers.c import cones, predecessor, rates, section5

DATA = tokens.unit_tokens(range(2), n=3, T=4, d=6)
EXPONENTS = [1.3, 2, 3]
SELECTIONS = {p: cones.select(DATA, DATA.opt, p) for p in EXPONENTS}


def test_nearness_is_half_the_least_excess_and_at_most_one_half():
    selection = SELECTIONS[2]
    margins = np.ones_like(selection.solution.margins)
    margins[0, 0, 0], margins[1, 0, 0] = 1.6, 3.0
    changed = replace(selection, solution=replace(selection.solution, margins=margins))
    np.testing.assert_allclose(cones._delta(changed), [0.3, 1.0])
    np.testing.assert_allclose(cones._nearness(changed), [0.3, 0.5])


@pytest.mark.parametrize("p", EXPONENTS)
def test_the_radius_moves_the_worst_pair_by_the_nearness(p):
    """mu_0 by Lemmas 12 and 13 backwards: the distance that it allows, and what that moves."""
    selection = SELECTIONS[p]
    mu, entries = cones.radius(selection), selection.direction.shape[-1]
    if p >= 2:  # D >= ||V - W||_p^p / (p 2^p)
        distance = 2 * (mu * p) ** (1 / p)
    else:  # D >= (p-1)/2 ||V - W||_2^2
        distance = np.sqrt(2 * mu / (p - 1)) * entries ** (1 / p - 0.5)
    apart = DATA.X[:, :, :, None] - DATA.X[:, :, None]
    A = np.einsum("rntsd,rne->rntsde", apart, DATA.z).reshape(2, -1, entries)
    E = geometry.to_mirror(A, p / (p - 1))
    with np.errstate(invalid="ignore"):  # 0/0 of a token less itself
        E /= geometry.norm(E, p)[..., None]
    moved = np.nanmax((A * E).sum(-1), 1)  # by a step of length 1, at most
    found = distance * moved * selection.solution.norm
    np.testing.assert_allclose(found, cones._nearness(selection), rtol=1e-9)


@pytest.mark.parametrize("p", EXPONENTS)
def test_lemma_20_has_no_more_room_than_the_margins_of_its_cone(p):
    """There they lie within 1 +- nearness/2 at ||W_mm||, so that c grows at most by m_1 - m_0."""
    multiples = np.geomspace(5, 5e3, 7)
    _, rate = cones.lemma20(SELECTIONS[p], multiples, 3)
    assert 0 <= rate.measured <= multiples[1] - multiples[0] + 1


@pytest.mark.parametrize("p, exponent", [(1.3, -0.6), (2, -2.0), (3, -2.0)])
def test_the_divergence_falls_with_the_square_of_the_error(p, exponent):
    history = mirror.train(DATA, mirror.MirrorRule(p), 3)
    r = np.broadcast_to(np.geomspace(10, 1e4, history.norm.shape[1]), history.norm.shape)
    history = replace(history, norm=r)
    for off, holds in ((0.0, True), (0.2, False)):
        assert rates.lemma29(history, r ** (exponent + off))[1].holds == holds


def test_a_run_between_two_svms_is_not_nearest_to_its_own():
    histories = dict.fromkeys((1.5, 2.5, 3.5), mirror.train(DATA, mirror.MirrorRule(2), 3))
    last = {(p, q): np.full((4, 1), 1.0 if p == q else 2.0) for p in histories for q in histories}
    for other, share in ((2.0, 1.0), (0.5, 0.75)):
        last[1.5, 2.5][0] = other
        claims = {claim.id: claim for claim in section5.bregman_claims(last, histories)}
        runs = claims["bregman.runs.1.5"]
        assert runs.measured == share and runs.holds == (share == 1)


def test_rank_does_not_depend_on_the_scale():
    W = np.diag([1.0, 0.1, 1e-9, 0.0])[None]
    assert [predecessor.ranks(scale * W).tolist() for scale in (1e-12, 1.0, 1e12)] == [[2]] * 3
