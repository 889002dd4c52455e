"""Tests of the atlas.

A failure means that a rule is said to reach a norm that it does not reach, and that no
wrong world shows it.
"""

from dataclasses import replace
from types import SimpleNamespace

import cvxpy as cp
import numpy as np
import pytest

from lib import dynamics, svm
from lib.attention import tokens
from papers import falsify, saturation
from papers.atlas import atlas, atlas_figures, atlas_rules, atlas_used, ledger_rows
from papers.wrong_worlds import World, identity_moments, inside
from tests.papers.wrong_laws import caught

DATA = tokens.unit_tokens(range(2), n=3, T=3, d=6)
NAMES = list(atlas.NORMS)


def path(W, status="completed"):
    """Return a path of two records that both hold W (runs, d, d)."""
    W = np.repeat(W[:, None], 2, 1)
    times = np.array([1, 2])
    return SimpleNamespace(iterations=times, W=W, status=np.array([status] * len(W)))


@pytest.fixture(scope="module")
def solved():
    """Return the ratios of the token SVMs' own solutions, as if steepest descents
    reached them.

    The second run selects other tokens than opt.
    """
    best = atlas.BestMargins(DATA)
    chosen = (DATA.opt + [[0], [1]]) % 3
    found = {
        f"steepest, {name}": atlas.ratios(path(svm.token_svm(DATA, chosen, of).W), best)
        for name, of in atlas.NORMS.items()
    }
    assert best.gap <= svm.ACCURACY_OTHER_NORMS and len(best.known) == 2
    assert all(
        (one.selection == chosen).all() and one.steady.all() for one in found.values()
    )
    return found


def test_max_margin_solutions_have_ratio_one_in_their_own_norm(solved):
    for name in NAMES:
        last = solved[f"steepest, {name}"].last
        np.testing.assert_allclose(last[:, atlas.column(name)], 1, atol=1e-6)
        assert last.max() <= 1 + 1e-6
    flat = np.concatenate([one.last for one in solved.values()], 1)
    assert (flat < 0.999).any()


def test_the_map_draws_only_known_rules_and_names_only_their_norms(solved):
    rows = atlas_rules.rows()
    assert set(atlas_figures.DRAWN) <= set(rows)
    trained = {name: rows[name] for name in solved}
    figure = atlas_figures.dumbbells(trained, solved)
    (axis,) = figure.axes
    names = [label.get_text() for label in axis.get_yticklabels()]
    assert "steepest, Frobenius" in names and "steepest, head-wise" not in names
    (legend,) = figure.legends
    drawn = {line.get_marker() for line in axis.lines}
    markers = [line.get_marker() for line in legend.get_lines()]
    assert len(markers) == len(set(markers)) and set(markers) <= drawn


def test_runs_that_select_nothing_have_no_ratio_and_fail():
    best = atlas.BestMargins(DATA)
    for one in (path(np.zeros((2, 6, 6))), path(svm.token_svm(DATA).W, "diverged")):
        found = atlas.ratios(one, best)
        assert np.isnan(found.last).all()
        rows = (atlas_rules.Row(None, norm, "l_1") for norm in ("l_1", None))
        judges = atlas_rules._norm_reached, atlas_rules._none_reached
        judged = [
            claim
            for judge, row in zip(judges, rows, strict=False)
            for claim in judge("x", row, found)
        ]
        assert len(judged) == 4 and not any(claim.holds for claim in judged)
    assert not best.known


def test_claims_notice_wrong_worlds(solved):
    rows = atlas_rules.steepest_rows()
    claims = atlas_rules.predictions(rows, solved)
    own = [claim for claim in claims if ".own." in claim.id]
    assert len(own) == 6 and all(claim.holds for claim in own)
    assert claims[0].id == "atlas.bounded" and claims[0].holds

    def scaled(by):
        return {
            name: replace(one, value=by * one.value) for name, one in solved.items()
        }

    wrong = {
        "best margins 2 % large": scaled(0.98),
        "best margins 2 % small": scaled(1.02),
        "rules exchanged": dict(
            zip(solved, [*solved.values()][1:] + [*solved.values()][:1], strict=True)
        ),
    }
    there = {world: atlas_rules.predictions(rows, of) for world, of in wrong.items()}
    noticed = caught(claims, there)
    assert set(noticed["best margins 2 % large"]) >= {claim.id for claim in own}
    assert noticed["best margins 2 % small"] == ["atlas.bounded"]
    assert set(noticed["rules exchanged"]) & {claim.id for claim in own}


def test_rules_without_a_norm_are_judged_by_all_of_them(solved):
    one = solved["steepest, l_inf"]
    row = {"Adam": atlas_rules.Row(dynamics.Adam(1.0), None, "l_inf")}
    rows = row["Adam"], replace(row["Adam"], highest="l_1")
    judged = [
        [c.holds for c in atlas_rules._none_reached("Adam", each, one)] for each in rows
    ]
    assert judged == [[False, True], [False, False]]
    judged = atlas_rules.predictions(row, {"Adam": replace(one, value=0.9 * one.value)})
    assert len(judged) == 3 and all(claim.holds for claim in judged)


def test_fitted_rate_is_the_exponent():
    t = np.unique(np.geomspace(1, 10_000, 50).round().astype(int))
    value = np.repeat(1 - t[None, :, None] ** -0.5, 6, 2)
    found = atlas.Ratios(t, value, None, None)
    np.testing.assert_allclose(atlas.fitted_rate(found, 0), [-0.5], atol=1e-9)
    # Before the last decade another one
    bent = np.where(t < 1_000, 1e-3 * t**0.5, t**-0.5)
    bent = replace(found, value=np.repeat(1 - bent[None, :, None], 6, 2))
    np.testing.assert_allclose(atlas.fitted_rate(bent, 0), [-0.5], atol=1e-9)


def test_a_run_is_steady_if_it_selects_at_half_time_what_it_selects_at_the_end():
    W = svm.token_svm(DATA).W
    other = svm.token_svm(DATA, (DATA.opt + 1) % 3).W
    for records, steady in (((other, W, W), True), ((W, other, W), False)):
        of = path(W)
        of.W = np.stack(records, 1)
        of.iterations = np.array([1, 50, 100])
        assert (atlas.ratios(of, atlas.BestMargins(DATA)).steady == steady).all()


def test_rows_stop_where_they_say(tmp_path):
    long = atlas_rules.Row(dynamics.SteepestDescent(2, 0.1), None, "l_1")
    rows = {"long": long, "short": replace(long, longest=7)}
    paths = atlas_rules.trained(DATA, rows, 20, np.array([1, 5, 10, 20]), tmp_path)
    assert list(paths) == ["long", "short"]
    assert [path.iterations.tolist() for path in paths.values()] == [
        [1, 5, 10, 20],
        [1, 5, 7],
    ]
    np.testing.assert_array_equal(paths["short"].W[:, :2], paths["long"].W[:, :2])


def known(ratio):
    """Return ratios of three runs at two records, the same in every norm."""
    value = np.full((3, 2, len(NAMES)), ratio)
    return atlas.Ratios(np.array([1, 2]), value, None, None)


def test_a_wrong_memory_is_caught():
    """A short memory runs as a long one, or a long one as a short one, also in the
    map's rows.
    """

    def judged(short, long):
        return atlas_rules.memories({"0.99": known(short), "0.9999": known(long)})

    wrong = {ends: judged(*ends) for ends in ((0.5, 0.95), (0.95, 0.95), (0.5, 0.5))}
    assert caught(judged(0.95, 0.5), wrong) == dict.fromkeys(wrong, ["atlas.memory"])
    assert atlas_rules.rows()["RMSprop, 0.99"].rule.memory == 0.99


def test_a_wrong_schedule_is_caught():
    rows = atlas_rules.growing_rows()
    here = {name: known(0.999 if row.reached else 0.8) for name, row in rows.items()}
    there = {
        at: atlas_rules.growing(rows, dict.fromkeys(rows, known(at)))
        for at in (0.999, 0.8)
    }
    noticed = caught(atlas_rules.growing(rows, here), there)
    assert len(noticed[0.999]) == 5 and noticed[0.8] == [
        "atlas.growing.steepest_Frobenius"
    ]
    assert all(claim.holds != bool(claim.remark) for claim in there[0.999])


def test_batch_claims_notice_what_does_not_rise_and_what_arrives():
    cases = {0.5: [], 0.2: ["atlas.rise.sign"], 0.992: ["atlas.batch.sign"]}
    for second, failing in cases.items():
        runs = {"sign": {1: known(0.3), 2: known(second), 6: known(0.995)}}
        claims = atlas_rules.batches(runs, {"sign": "l_inf"})
        assert [claim.id for claim in claims if not claim.holds] == failing


TRAINED = tokens.unit_tokens([0, 3], n=3, T=4, d=4)


def test_growing_steps_lose_the_norm_of_every_rule_but_gradient_descent():
    """The rules are trained here, at small size, with steps that move the margins by
    two.
    """
    best = atlas.BestMargins(TRAINED)
    least = {}
    for norm, name in ((2, "Frobenius"), (np.inf, "l_inf"), ("spectral", "spectral")):
        rule = dynamics.SteepestDescent(norm, atlas_rules.step(name, growth=2.0))
        found = atlas.ratios(dynamics.train(TRAINED, rule, 5_000, record=[5_000]), best)
        least[name] = found.last[:, atlas.column(name)].min()
    assert least.pop("Frobenius") > 0.999 and max(least.values()) < 0.97


ONE = DATA.run(0)
A, SAMPLE = atlas.features(ONE, ONE.opt[0])


def test_the_shortest_vector_is_the_frobenius_svm_and_says_where_there_is_none():
    V, duals = atlas_used._shortest(A.reshape(-1, 36))
    np.testing.assert_allclose(V.reshape(6, 6), svm.token_svm(ONE).W[0], atol=1e-9)
    assert duals.min() >= 0 and duals.sum() == pytest.approx(V @ V)
    with pytest.raises(RuntimeError, match="not separable"):
        atlas_used._shortest(np.array([[1.0, 0.0], [-1.0, 0.0]]))


def test_the_fixed_point_is_one_and_says_how_far_it_is_from_it():
    found, residual, _ = atlas_used._fixed_point(A, SAMPLE)
    assert residual <= atlas_used.CONVERGED
    _, duals = atlas_used._shortest((A / np.sqrt(found)).reshape(-1, 36))
    pulls = np.einsum("im,imjk->ijk", duals.reshape(3, 2), A.reshape(3, 2, 6, 6))
    s = np.sqrt((pulls**2).sum(0))
    np.testing.assert_allclose(found / found.max(), s / s.max(), atol=1e-6)
    _, early, steps = atlas_used._fixed_point(A, SAMPLE, most=2)
    assert steps == 2 and early > atlas_used.CONVERGED


def test_a_max_margin_matrix_has_ratio_one_in_its_own_norm_alone():
    rng = np.random.default_rng(0)
    s = rng.uniform(0.1, 2, (6, 6))
    V, _ = atlas_used._shortest((A / np.sqrt(s)).reshape(-1, 36))
    W = V.reshape(6, 6) / np.sqrt(s)
    assert atlas_used._entrywise(A, W, s) == pytest.approx(1, abs=1e-9)
    assert atlas_used._entrywise(A, W, np.ones((6, 6))) < 0.99
    left, right = (M @ M.T for M in rng.standard_normal((2, 6, 6)))
    assert (
        atlas_used._own("Shampoo, sums", ONE, ONE.opt[0], W, None, left, right)[0]
        < 0.99
    )
    Q = [np.linalg.qr(M)[0] for M in rng.standard_normal((2, 6, 6))]
    there = replace(ONE, X=ONE.X @ Q[0], u=ONE.u @ Q[0], z=ONE.z @ Q[1])
    W = Q[0] @ svm.token_svm(there, norm=np.inf).W[0] @ Q[1].T
    assert atlas_used._in_turned(ONE, ONE.opt[0], W, *Q) == pytest.approx(1, abs=1e-6)
    assert atlas_used._in_turned(ONE, ONE.opt[0], W, *np.stack([np.eye(6)] * 2)) < 0.99


@pytest.mark.parametrize("name", ["Adam, 0.999, per sample", "AdaGrad"])
def test_own_norms_are_noticed_when_the_metric_is_the_identity(name):
    rows = atlas_rules.rows()
    path = dynamics.train(DATA, rows[name].rule, 200_000, record=[100_000, 200_000])
    found = atlas.ratios(path, atlas.BestMargins(DATA))
    own, residual = atlas_used.own_ratios(DATA, name, path, found)
    in_identity = identity_moments(World("identity for the metric", 1.0), path)
    plain, _ = atlas_used.own_ratios(DATA, name, in_identity, found)
    np.testing.assert_allclose(
        plain, found.last[:, atlas.column("Frobenius")], atol=1e-6
    )
    assert (own > plain).all() and (own <= 1 + 1e-9).all() and residual.max() <= 1e-9


def test_a_fixed_point_that_has_not_converged_is_said():
    name = "Adam, 0.999, per sample"
    own = {name: np.array([0.99, 0.985, np.nan])}
    found = {name: known(0.5)}
    converged = {name: np.array([1e-10, 1e-9, np.nan])}
    assert atlas_used.unconverged(converged[name]) == ""
    (claim,) = atlas_used.own_claims(own, found, converged)
    assert "fixed point" not in claim.remark
    short = {name: np.array([0.012, 1e-9, np.nan])}
    words = "has not converged in 1 of 3 runs"
    # The run without a selection makes the claim fail; without it the claim holds.
    (claim,) = atlas_used.own_claims(own, found, short)
    assert not claim.holds and words in claim.remark and "1.2e-02" in claim.remark
    (claim,) = atlas_used.own_claims({name: own[name][:2]}, found, short)
    assert claim.holds and words in claim.remark


@pytest.mark.parametrize("name", ["decay", "gauge"])
def test_rows_as_used_fail_with_the_identity_as_their_metric(monkeypatch, name):
    """Rows whose metric is the identity fail with another decay or another size of
    R.
    """
    monkeypatch.setattr(atlas_used, "ALLOWED", (1, 100))
    power = falsify._power(falsify._sections("atlas")[name], "atlas")
    assert [
        id for id, row in power.items() if not (row["holds"] and row["catches"])
    ] == []


def test_rows_of_variance_reduction_and_of_olion_move_in_their_worlds(monkeypatch):
    """Short runs: else the world of a row is another than the row says."""
    monkeypatch.setattr(ledger_rows, "STEPS", 200)

    def measured():
        rows = ledger_rows.SECTIONS["others"]((3, 3))
        return {row.id: row.measured for row in rows}

    true = measured()
    with inside(World("variance reduction left out", 1.0), "atlas"):
        plain = measured()
    with inside(World("identity for the metric", 1.0), "atlas"):
        identity = measured()
    reduced = {id for id in true if "variance_reduced" in id}
    olion = {id for id in true if "OLion" in id}
    assert {id for id in true if plain[id] != true[id]} == reduced
    assert any(identity[id] != true[id] for id in olion)
    # The Frobenius norm's own row is right with the identity as its metric.
    own = {id for id in reduced if ".own.NGD_" in id}
    assert {id for id in reduced if identity[id] == true[id]} == own


@pytest.mark.parametrize(
    "name, size",
    [
        ("GD", lambda W: cp.norm(W, "fro")),
        ("Muon", cp.sigma_max),
        ("sign", lambda W: cp.max(cp.abs(W))),
    ],
)
def test_the_least_loss_in_a_ball_lacks_what_the_law_says_to_first_order(name, size):
    """cvxpy solves for it without training, with allowed margins of 3 and of 3,000."""
    kappa = saturation.saturated_slopes(ONE)[0].ravel()
    off = []
    for allowed in (3, 3_000):
        row = atlas_used.DECAYED[name].row(allowed)
        W = cp.Variable((6, 6))
        loss = cp.log_sum_exp(
            kappa - A.reshape(-1, 36) @ cp.vec(W, "C") / row.rule.weight_decay
        )
        cp.Problem(cp.Minimize(loss), [size(W) <= 1]).solve(cp.CLARABEL)
        W = W.value[None, None] / row.rule.weight_decay
        path = SimpleNamespace(W=W, status=np.array(["completed"]))
        end = atlas_used.at_rest(row, path, atlas.BestMargins(ONE))
        assert end.size == pytest.approx(1, abs=1e-6)
        off.append(abs(end.missing[0] / end.law[0] - 1))
    assert off[0] > 0.005 and off[1] < 0.002


def test_a_decay_that_forbids_the_margin_is_said():
    nothing = np.full(2, np.nan)
    end = atlas_used.AtRest(np.ones(2), nothing, nothing, DATA.opt, nothing)
    low = replace(end, allowed=np.array([0.7, 4.0]))
    assert atlas_used.forbidden({"sign, 1": low, "sign, 3": end}) == {
        "sign, 1": 1,
        "sign, 3": 2,
    }


def test_the_claims_of_decay_measure_the_run_that_is_furthest_off():
    lacks = np.array([0.1, 0.2])
    rest = atlas_used.AtRest(
        np.array([0.8, 0.8]), lacks, lacks, np.zeros((2, 6)), np.ones(2)
    )
    ends = dict.fromkeys(atlas_used.decay_rows(), replace(rest, size=np.ones(2)))
    ends |= {atlas_used.SLOW: rest}
    assert all(claim.holds for claim in atlas_used.decay_claims(ends))
    ends["GD, 3"] = replace(rest, size=np.array([1.0, 1.2]))
    ends["sign, 100"] = replace(ends["sign, 100"], missing=np.array([0.1, 0.22]))
    failed = [claim for claim in atlas_used.decay_claims(ends) if not claim.holds]
    assert [claim.measured for claim in failed] == pytest.approx([0.2, 0.1])


@pytest.mark.parametrize("name", [f"GD, {m}" for m in atlas_used.ALLOWED])
def test_a_run_under_decay_without_a_size_fails_the_claim_at_every_decay(name):
    lacks = np.array([0.1, 0.2])
    rest = atlas_used.AtRest(
        np.array([1.0, 1.0]), lacks, lacks, np.zeros((2, 6)), np.ones(2)
    )
    ends = dict.fromkeys(atlas_used.decay_rows(), rest)
    ends[name] = replace(rest, size=np.array([1.0, np.nan]))
    of_norm = {claim.id: claim.holds for claim in atlas_used.decay_claims(ends)}
    assert not of_norm["atlas.decay.norm.GD"] and of_norm["atlas.decay.norm.sign"]


@pytest.mark.parametrize("without", [1, 3])
def test_the_picture_of_decay_counts_the_runs_that_the_law_leaves_out(without):
    lacks = np.array([0.1, 0.1, 0.11])
    rest = atlas_used.AtRest(
        np.ones(3), lacks, np.full(3, 0.1), np.zeros((3, 6)), np.ones(3)
    )
    ends = dict.fromkeys(atlas_used.decay_rows(), rest)
    law = np.array([np.nan] * without + [0.1] * (3 - without))
    ends["Lion, 100"] = replace(rest, law=law)
    (axis,) = atlas_figures.shortfalls(ends).axes
    words = [text.get_text() for text in axis.texts]
    assert {1: "10 %; 1 without", 3: "no prediction"}[without] in words
    # A run without a prediction counts as infinitely far off.
    medians = atlas_figures.decay_medians(ends)
    assert medians["GD"] == pytest.approx(0)
    assert medians["Lion"] == pytest.approx({1: 0.1, 3: np.inf}[without])


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_run_without_a_selection_fails_the_claim_at_every_batch_size(size):
    by_size = {1: known(0.3), 2: known(0.4), 3: known(0.5), 6: known(0.995)}
    by_size[size] = known(np.nan)
    batch, rise = atlas_rules.batches({"sign": by_size}, {"sign": "l_inf"})
    assert not batch.holds and not rise.holds


def test_a_failing_claim_is_blamed_on_runs_that_are_too_short_by_their_last_record():
    for last, said in ((atlas_rules.TENTH, "refuted"), (1000, "protocol judges after")):
        ratios = SimpleNamespace(iterations=np.array([0, 10, last]))
        assert said in atlas_rules._why(ratios)
