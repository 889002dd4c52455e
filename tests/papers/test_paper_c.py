"""Every claim of paper C holds on a problem that satisfies it and fails on one that does not."""

from dataclasses import replace

import numpy as np
import pytest

from lib import mirror, svm
from lib.attention import tokens
from lib.companion import ledger
from lib.mirror import geometry
from lib.papers.c import cones, ledger_rows, rates, section5, step_lemmas

SEEDS = range(4)
DATA = tokens.unit_tokens(SEEDS)
STEPS = {1.75: 1500, 2: 2000, 3: 20000}
RULES = {p: mirror.MirrorRule(p) for p in STEPS}
EXPONENTS = [1.3, 2, 3]


class Trained:
    histories = mirror.train(DATA, RULES, STEPS, mirror.gaussian_start(DATA, SEEDS))
    ends = section5.end_points(DATA, histories)
    found = section5.divergences(histories, ends)


FOUND = {p: rates.found_selections(DATA, SEEDS, p, 4000) for p in EXPONENTS}


def holds(found):
    return [claim.holds for claim in found]


def test_bregman_claims():
    found = {c.id: c.holds for c in section5.bregman_claims(Trained.found, Trained.histories)}
    assert (
        all(found[f"bregman.{kind}.{p:g}"] for kind in ("row", "runs") for p in STEPS)
        and found["bregman.completed"]
    )
    swapped = {(p, q): 3 * Trained.found[p, {1.75: 3, 3: 1.75, 2: 2}[q]] for p, q in Trained.found}
    stopped = {
        p: replace(h, status=np.array(["diverged"] * 4)) for p, h in Trained.histories.items()
    }
    wrong = {c.id: c.holds for c in section5.bregman_claims(swapped, stopped)}
    assert not any(
        wrong[f"bregman.{kind}.{p}"]
        for kind in ("row", "runs", "table", "range")
        for p in ("1.75", "3")
    )
    assert not wrong["bregman.completed"]


def test_own_selection_takes_the_svm_of_the_other_training():
    ends = Trained.ends | {
        3: Trained.ends[3] | {3: Trained.ends[2][2]}
    }  # as if training with 3 had found something else
    own = section5.divergences(Trained.histories, ends, own=True)
    np.testing.assert_array_equal(own[1.75, 3], Trained.found[1.75, 2])
    np.testing.assert_array_equal(own[2, 2], Trained.found[2, 2])
    assert (
        section5.divergences(Trained.histories, ends)[1.75, 3][0, -1]
        == Trained.found[1.75, 3][0, -1]
    )


def test_path_claims():
    paths = mirror.train(DATA.run(1), RULES, STEPS)
    ends = section5.end_points(DATA.run(1), paths)
    assert all(holds(section5.path_claims(paths, ends)))
    early = {p: replace(h, W=h.W[:, :20]) for p, h in paths.items()}
    assert not any(holds(section5.path_claims(early, ends))[1::2])


def test_joint_claims():
    data = section5.joint_instance()
    joint = mirror.train(
        data, RULES, STEPS, head="joint", record=[0, 15, 30, 1000, 1500, 2000, 20000]
    )
    ends = section5.end_points(data, joint)
    heads = {
        p: svm.head_svm(data, mirror.selected_tokens(data, h.W[:, -1]), p) for p, h in joint.items()
    }
    assert all(holds(section5.joint_claims(data, joint, ends, heads)))
    exchanged = {1.75: joint[3], 2: joint[3], 3: joint[2]}
    failed = {c.id for c in section5.joint_claims(data, exchanged, ends, heads) if not c.holds}
    assert {f"joint.{kind}.{p:g}" for kind in ("tokens", "directions") for p in STEPS} <= failed


@pytest.mark.parametrize("p", EXPONENTS)
def test_edge_of_a_cone(p):
    of, mu = FOUND[p], cones.radius(FOUND[p])
    for width in (mu, np.full_like(mu, 0.1)):
        edge = cones.on_the_edge(of, width, 3)
        np.testing.assert_allclose(geometry.norm(edge, p), 1)
        np.testing.assert_allclose(
            geometry.directional_bregman(edge, of.direction, p) / width, 1, atol=0.01
        )


@pytest.mark.parametrize("p", EXPONENTS)
def test_cone_lemmas_hold_and_fail_for_the_opposite_direction(p):
    of, multiples = FOUND[p], np.geomspace(5, 5e6, 13)
    assert cones.locally_optimal(of).all()
    opposite = replace(of, solution=replace(of.solution, _factors=(-of.solution.value,)))
    for lemma in (lambda of: cones.lemma19(of, 3), lambda of: cones.lemma20(of, multiples, 3)[:1]):
        assert all(holds(lemma(of))) and not all(holds(lemma(opposite)))
    assert all(holds(cones.lemma20(of, multiples, 3) + cones.lemma21(of, multiples, 3)))
    nowhere = replace(
        of, solution=replace(of.solution, _factors=(np.roll(of.solution.value, 1, 1),))
    )
    assert not all(holds(cones.lemma21(nowhere, multiples, 3)))


def test_a_selection_with_a_better_support_token_is_not_locally_optimal():
    worst = (DATA.y[..., None] * np.einsum("rntd,rd->rnt", DATA.X, DATA.u)).argmin(-1)
    assert not cones.locally_optimal(cones.selection(DATA, worst, 2)).any()


@pytest.mark.parametrize("p", EXPONENTS)
def test_lemmas_28_and_29(p):
    of = FOUND[p]
    history = rates.from_cone(of, 0.02, 10, 4000, 0.05)[0]
    divergence = history.divergence(of.solution.W)
    assert all(holds(rates.lemma29(history, divergence)[:1]))
    assert not all(holds(rates.lemma29(history, divergence[:, ::-1])))
    assert cones.lemma28(of, history, divergence.max(1) * 1.01).holds
    assert not cones.lemma28(of, history, divergence.max(1) * 0.99).holds
    assert not cones.lemma28(
        of, history, np.full(len(divergence), 1e-16)
    ).holds  # nothing that could be measured


def test_captured_near_and_far():
    found = {2: rates.captured(FOUND[2], [0.001, 1.9], 10, 1000, 2)}
    assert all(holds(rates.local_claims(found, [0.001, 1.9], 10)))
    assert not any(holds(rates.local_claims({2: 1 - found[2]}, [0.001, 1.9], 10))[:1])


@pytest.mark.parametrize("p", [1.3, 3])
def test_step_lemmas_hold_and_fail_for_another_step_size(p):
    history = mirror.train(
        DATA,
        mirror.MirrorRule(p, 0.05, normalised=False),
        50,
        mirror.gaussian_start(DATA, SEEDS),
        record=np.arange(51),
    )
    steps = step_lemmas.Steps(DATA, history)
    V = steps.W[:, -1]
    checks = [
        step_lemmas.lemma4(steps, history, DATA)[0],
        step_lemmas.lemma22(steps),
        step_lemmas.lemma23(steps, V),
    ]
    assert all(holds([*checks, step_lemmas.lemma24(steps), step_lemmas.lemma25(history)]))
    steps.eta = 0.0
    assert (
        not step_lemmas.lemma4(steps, history, DATA)[0].holds
        and not step_lemmas.lemma24(steps).holds
    )
    steps.eta = 1.0
    assert not step_lemmas.lemma22(steps).holds and not step_lemmas.lemma23(steps, V).holds
    assert not step_lemmas.lemma25(replace(history, loss_rise=np.array([-1, 3, -1, -1]))).holds


def test_gradient_lemmas_fail_for_another_head():
    matrices = step_lemmas.random_matrices(DATA, 20)
    assert all(
        holds([*step_lemmas.lemma16(DATA, matrices), step_lemmas.lemma18(DATA, matrices, 1.3)])
    )
    start = mirror.gaussian_start(DATA, SEEDS)
    assert step_lemmas.lemma17(DATA, start).holds
    found = step_lemmas.excess_loss(DATA, start)
    W = cones.selection(DATA, DATA.opt, 2).solution.W
    assert (np.abs(found) > 1e-3).all() and (step_lemmas.excess_loss(DATA, 600 * W) < 1e-200).all()
    assert (step_lemmas.excess_loss(DATA, 600 * W) > 0).all()


def test_lemma30():
    of = FOUND[2]
    history = mirror.train(
        of.tokens, mirror.MirrorRule(2, 1.0, normalised=False), 20000, of.solution.W
    )
    assert all(holds(step_lemmas.lemma30(history, of.solution.norm, 2000)))
    assert not any(holds(step_lemmas.lemma30(history, 3 * of.solution.norm, 2000)))


def test_ledger_lists_every_lemma():
    assert list(ledger_rows.STATEMENTS) == [f"Lemma {k}" for k in (4, *range(12, 31))]
    rows = ledger_rows.deterministic(50) + ledger_rows.on_gradients(DATA, SEEDS, [2], 5)
    rows += ledger_rows.on_steps(DATA, SEEDS, 2, 0.01, 100)
    rows += ledger_rows.in_cones(FOUND[2], np.geomspace(5, 5e6, 13), 2, 500)
    assert {row.statement for row in rows} == set(ledger_rows.STATEMENTS) - {"Lemma 29"}
    table = ledger.in_order(rows)
    assert [row.statement for row in table][0] == "Lemma 4" and table[-1].statement == "Lemma 30"
    assert "**Lemma 12** p ≥ 2" in ledger.markdown(table, "Paper C")
    with pytest.raises(ValueError, match="not a statement"):
        ledger.rows("Theorem 1", "", 1, rows[0].claim, paper=ledger_rows.STATEMENTS)
    (axis,) = ledger.draw(table).axes
    assert len(axis.get_yticks()) == 19
