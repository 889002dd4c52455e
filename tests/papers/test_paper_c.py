"""Every claim of paper C holds on a problem that satisfies it and fails on one that does not."""

import importlib
import inspect
import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from lib import attention, mirror, svm
from lib.attention import coordinates, tokens
from lib.files import ROOT
from lib.mirror import geometry
from papers.c import (
    cone_lemmas,
    cones,
    joint_path,
    ledger_rows,
    rates,
    section5,
    section5_figures,
    step_lemmas,
)
from papers.c.statements import STATEMENTS
from papers.wrong_worlds import World

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
    # as if training with 3 had found something else
    ends = Trained.ends | {3: Trained.ends[3] | {3: Trained.ends[2][2]}}
    own = section5.divergences(Trained.histories, ends, own=True)
    np.testing.assert_array_equal(own[1.75, 3], Trained.found[1.75, 2])
    np.testing.assert_array_equal(own[2, 2], Trained.found[2, 2])
    assert (
        section5.divergences(Trained.histories, ends)[1.75, 3][0, -1]
        == Trained.found[1.75, 3][0, -1]
    )


def test_the_two_rows_of_divergences_say_what_each_shows():
    found, histories = Trained.found, Trained.histories
    figure = section5_figures.divergences(histories, found, found, "")
    first, second = (figure.axes[at].get_ylabel() for at in (0, len(STEPS)))
    assert "same tokens for all SVMs" in first and "each SVM its own tokens" in second


def test_a_quoted_mean_stands_in_the_picture():
    figure = section5_figures.divergences(Trained.histories, Trained.found, {**Trained.found}, "")
    means = section5.table(Trained.found)
    for axis, p in zip(figure.axes[: len(STEPS)], STEPS):
        assert {text.get_text() for text in axis.texts} == {f"{means[p, q]:.4f}" for q in STEPS}


def test_path_claims():
    paths = mirror.train(DATA.run(1), RULES, STEPS)
    ends = section5.end_points(DATA.run(1), paths)
    assert all(holds(section5.path_claims(paths, ends)))
    figure = section5_figures.paths(paths, ends, "")
    for axis, p in zip(figure.axes, STEPS):
        last = (paths[p].divergence(ends[p][q].W)[0, -1] for q in STEPS)
        assert axis.get_title().endswith(", ".join(f"{D:.4f}" for D in last))
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
    figure = section5_figures.joint(data, joint, ends, heads, 30, "")
    for p, lines in zip(STEPS, np.array(figure.axes[3].lines).reshape(-1, 2)):
        ended = [line.get_ydata()[-1] for line in lines]
        assert ended[0] == joint[p].divergence(ends[p][p].W)[0, -1]
        assert ended[1] == joint[p].head_divergence(heads[p].value)[0, -1]
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
    opposite = replace(of, solution=replace(of.solution, _weights=lambda: -of.solution.value))
    for lemma in (
        lambda of: [cone_lemmas.lemma19(of)],
        lambda of: cone_lemmas.lemma20(of, multiples, 3)[:1],
    ):
        assert all(holds(lemma(of))) and not all(holds(lemma(opposite)))
    assert all(
        holds([*cone_lemmas.lemma20(of, multiples, 3), cone_lemmas.lemma21(of, multiples, 3)])
    )
    nowhere = replace(
        of, solution=replace(of.solution, _weights=lambda: np.roll(of.solution.value, 1, 1))
    )
    assert not cone_lemmas.lemma21(nowhere, multiples, 3).holds


def test_lemma_21_measures_pi_beside_log_r_over_r(monkeypatch):
    """With pi = c log R / R the measure is flat: nothing grows. With pi = c / R it falls."""
    of, multiples = FOUND[2], np.geomspace(5, 5e4, 5)

    def growth(power):
        sizes = iter(np.repeat(cone_lemmas._radii(of, multiples), 6, 0))
        monkeypatch.setattr(
            cone_lemmas, "excess", lambda of, W: np.log(r := next(sizes)) ** power / r
        )
        return cone_lemmas.lemma21(of, multiples, 1).measured

    assert abs(growth(1.0)) < 1e-12 and growth(0.0) < -0.01 and growth(2.0) > 0.1


def test_a_selection_with_a_better_support_token_is_not_locally_optimal():
    worst = (DATA.y[..., None] * np.einsum("rntd,rd->rnt", DATA.X, DATA.u)).argmin(-1)
    assert not cones.locally_optimal(cones.selection(DATA, worst, 2)).any()


@pytest.mark.parametrize("p", EXPONENTS)
def test_lemmas_28_and_29(p):
    of = FOUND[p]
    history = rates.from_cone(of, rates.Edge(0.02, 10), 4000, 0.05)[0]
    divergence = history.divergence(of.solution.W)
    assert all(holds(rates.lemma29(history, divergence)[:1]))
    assert not all(holds(rates.lemma29(history, divergence[:, ::-1])))
    assert cone_lemmas.lemma28(of, divergence, divergence.max(1) * 1.01).holds
    assert not cone_lemmas.lemma28(of, divergence, divergence.max(1) * 0.99).holds
    nothing = np.full(len(divergence), 1e-16)  # a cone in which nothing could be measured
    assert not cone_lemmas.lemma28(of, divergence, nothing).holds


def test_a_run_that_rests_does_not_hold_lemma_28():
    """Else a step a million times too short would pass."""
    of, D = FOUND[2], np.full((len(FOUND[2].direction), 5), 0.1)
    assert not cone_lemmas.lemma28(of, D * np.linspace(1, 0.9999, 5), np.full(len(D), 0.2)).holds
    assert cone_lemmas.lemma28(of, D * np.linspace(1, 1.01, 5), np.full(len(D), 0.2)).holds


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
    each = (step_lemmas.lemma4, step_lemmas.lemma22, step_lemmas.lemma24)
    assert all(holds([*(lemma(steps) for lemma in each), step_lemmas.lemma25(steps, history)]))
    steps.eta = 1e-9
    assert not step_lemmas.lemma4(steps).holds and not step_lemmas.lemma24(steps).holds
    steps.eta = 1.0
    assert not step_lemmas.lemma22(steps).holds
    steps.eta = 0.05
    rises = replace(history, loss_rise=np.array([-1, 3, -1, -1]))
    assert not step_lemmas.lemma25(steps, rises).holds
    steps.eta = 0.05 / 1.05
    assert not step_lemmas.lemma25(steps, history).holds


def test_gradient_lemmas_fail_for_another_head():
    matrices = step_lemmas.random_matrices(DATA, 20)
    assert all(
        holds([*step_lemmas.lemma16(DATA, matrices), step_lemmas.lemma18(DATA, matrices, 1.3)])
    )
    assert not any(holds(step_lemmas.lemma16(DATA, matrices, 0.01)[:1]))
    assert not any(holds(step_lemmas.lemma16(DATA, matrices, -0.01)[1:]))
    start = mirror.gaussian_start(DATA, SEEDS)
    variable = torch.from_numpy(start).requires_grad_()
    X, y, z, u = (torch.from_numpy(a) for a in (DATA.X, DATA.y, DATA.z, DATA.u))
    weights = torch.softmax(torch.einsum("rntd,rde,rne->rnt", X, variable, z), -1)
    f = y * torch.einsum("rnt,rntd,rd->rn", weights, X, u)
    torch.nn.functional.softplus(-f).mean(-1).sum().backward()  # Lemma 17
    gradient = attention.gradients(DATA, start, DATA.u, "logistic")[1]
    np.testing.assert_allclose(gradient, variable.grad.numpy(), atol=1e-13)
    found = step_lemmas.excess_loss(DATA, start)
    W = cones.selection(DATA, DATA.opt, 2).solution.W
    assert (np.abs(found) > 1e-3).all() and (step_lemmas.excess_loss(DATA, 600 * W) < 1e-200).all()
    assert (step_lemmas.excess_loss(DATA, 600 * W) > 0).all()


def test_lemma30():
    of = FOUND[2]
    history = mirror.train(
        of.tokens, mirror.MirrorRule(2, 1.0, normalised=False), 20000, of.solution.W
    )
    size, stay = of.solution.norm, np.arange(len(of.direction)) > 0
    assert all(holds(step_lemmas.lemma30(history, size, 2000, stay)))
    assert not any(holds(step_lemmas.lemma30(history, 3 * size, 2000, stay)))
    assert not any(holds(step_lemmas.lemma30(history, size, 2000, ~stay & False)))
    slow = replace(history, norm=history.norm * np.where(stay, 1, 0.5)[:, None])
    assert all(holds(step_lemmas.lemma30(slow, size, 2000, stay)))


@pytest.mark.parametrize("p", EXPONENTS)
def test_no_random_direction_moves_a_margin_more_than_the_worst_edges(p):
    of, mu = FOUND[p], cones.radius(FOUND[p])
    apart = coordinates.constraint_rows(
        coordinates.differences(of.tokens, of.tokens.opt), of.tokens.z
    )

    def moved(V):
        return np.abs(np.einsum("rmD,krD->krm", apart, V - of.direction)).max((0, 2))

    worst, drawn = cones.edge_along(of, mu, cones.worst_edges(of)), cones.on_the_edge(of, mu, 50)
    found = geometry.directional_bregman(worst, of.direction, p)
    np.testing.assert_allclose(found, np.broadcast_to(mu, found.shape), rtol=0.01)
    assert (moved(worst) > moved(drawn)).all()


@pytest.mark.parametrize("p", [1.3, 3])
def test_two_misclassified_tokens_attain_the_bound_on_the_gradient(p):
    found = [step_lemmas.lemma18(DATA, [], p, off) for off in (0.0, 0.01, -0.01)]
    assert holds(found) == [True, True, False]
    assert found[0].measured == pytest.approx(1.0, abs=1e-9)


def test_the_joint_path_turns_to_the_largest_label_margin():
    instance = section5.joint_instance()
    ranked = joint_path.candidates(instance, 2)
    assert (np.diff([one.head.norm[0] for one in ranked]) >= 0).all()
    v, W = joint_path.solve(instance, 2, (10, 100))
    assert all(holds(joint_path.claims(instance, 2, v, W)))
    np.testing.assert_allclose(geometry.norm(v, 2), np.array([10, 100]) * ranked[0].head.norm)
    turned = World("target rotated", 0.05).target
    assert not any(holds(joint_path.claims(instance, 2, v, W, turned)))
    assert not any(holds(joint_path.claims(instance, 2, -v, -W)))


def test_the_ledger_has_a_row_or_a_reason_for_every_statement():
    small = replace(
        ledger_rows.SMALL,
        seeds=2,
        rate_exponents=(2,),
        rate_steps=2000,
        exponents=(2,),
        steps=200,
        draws=20,
        find_steps=2000,
    )
    sections = ("inequalities", "gradients", "steps", "cones", "rates")
    rows = [row for name in sections for row in ledger_rows.SECTIONS[name](small)]
    named = {row.number for row in rows}
    lacking = {name for name, of in STATEMENTS.items() if not of.why} - named
    assert lacking == {"Theorem, path", "Theorem, joint"}
    assert not named & {name for name, of in STATEMENTS.items() if of.why}
    assert all(row.fails_if or row.remark for row in rows)
    restored = {name for name, of in STATEMENTS.items() if "our reading" in of.says}
    assert not [row.id for row in rows if row.number in restored and row.kind == "statement"]


@pytest.mark.parametrize("page", ["30_*", "31_*", "32_*", "39_*"])
def test_a_page_prints_its_statements_and_does_not_write_them_anew(page):
    (path,) = ROOT.glob(f"notebooks/{page}.py")
    text = path.read_text("utf-8")
    assert 'statements.quoted("C", STATEMENTS, ' in text
    assert not re.search(r"\*\*(Statement|Theorem|Lemma \d+)\.\*\*", text)


@pytest.mark.parametrize("paper", "abc")
def test_every_section_of_a_ledger_has_the_true_world_by_default(paper):
    module = importlib.import_module(f"papers.{paper}.ledger_rows")
    for section in module.SECTIONS.values():
        assert inspect.signature(section).parameters["world"].default == World()
