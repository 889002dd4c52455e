"""Tests of the margins of a network's attention.

A failure means that a rule wins in another rule's norm or selection.
"""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from lib import attention, svm
from lib.attention import tokens
from lib.data.images import ImageSet
from lib.networks import VisionTransformer
from lib.training.study import TUNING_SEED
from papers.atlas import atlas, atlas_rules
from papers.atlas import network_margins as network
from papers.atlas.factored_atlas import NORMS, SIGN, _sign_norm
from tests.papers.wrong_laws import caught

DATA = tokens.unit_tokens(range(2), n=3, T=4, d=6)
SMALL = {"width": 8, "depth": 2, "heads": 2, "hidden": 12}


def small(seed=0):
    torch.manual_seed(seed)
    return VisionTransformer(8, 4, 3, 3, **SMALL, **network.PLAIN)


def test_settings_near_ties_move_the_second_best_token_and_wrong_starts_lead_by_5():
    ways = network.settings(range(2))
    assert [start is None for _, start in ways.values()] == [True, True, False]
    data, W = ways["wrong start"]
    chosen = atlas.selected(data, W)
    assert (chosen != data.opt).all()
    margins = atlas.least_margins(data, chosen, W[:, None])[:, 0]
    np.testing.assert_allclose(margins, 5, rtol=1e-6)
    tied = network._near_ties(DATA)
    before, after = (np.sort(attention.scores(of, of.u), -1) for of in (DATA, tied))
    np.testing.assert_allclose(after[..., -1] - after[..., -2], 0.01, atol=1e-12)
    np.testing.assert_allclose(
        np.delete(after, -2, -1), np.delete(before, -2, -1), atol=1e-12
    )
    np.testing.assert_array_equal(attention.scores(tied, tied.u).argmax(-1), DATA.opt)
    assert ((tied.X != DATA.X).any(-1).sum(-1) == 1).all()


def ended(selection, kept=True):
    return network._Ended(np.array(selection), np.full(len(selection), kept))


def test_disputes_compare_margins_in_a_rules_own_norm():
    ours = atlas_rules.steepest_rows()
    rows = {name: ours[name] for name in ("steepest, nuclear", "steepest, l_inf")}
    (a, b) = rows
    selections = [DATA.opt, (DATA.opt + 1) % 4]
    sizes = [svm.token_svm(DATA, selection, "nuclear").norm for selection in selections]
    for sign, ends in ((1, selections), (-1, selections[::-1])):
        runs = dict(zip(rows, map(ended, ends), strict=True))
        found = network.disputes(rows, runs, atlas.BestMargins(DATA))
        np.testing.assert_allclose(
            found[a, b], sign * np.log(sizes[1] / sizes[0]), rtol=1e-9
        )


def test_runs_that_keep_no_selection_or_agree_have_no_dispute():
    rows = atlas_rules.steepest_rows()
    margins = atlas.BestMargins(DATA)
    same = {name: ended(DATA.opt) for name in rows}
    lost = same | {"steepest, l_1": ended((DATA.opt + 1) % 4, kept=False)}
    for runs in (same, lost):
        found = network.disputes(rows, runs, margins)
        assert len(found) == 30 and all(np.isnan(v).all() for v in found.values())
    assert not margins.known


BY_HAND = {"NGD": lambda G: G / G.norm(), "Signum": torch.sign, "Muon": network._polar}


@pytest.mark.parametrize("rule", BY_HAND)
def test_a_step_is_the_direction_of_a_mean_of_gradients_in_each_of_three_parts(rule):
    """m = 0.9 m + 0.1 G: after two steps 0.09 G_1 + 0.1 G_2."""
    model = small().double()
    p = model.blocks[0].attention.project.weight
    optimizer = network._ByMatrix(model, rule, 0.01)
    first, second = torch.randn(2, *p.shape, dtype=torch.float64)
    for gradient in (first, second):
        before = p.detach().clone()
        p.grad = gradient
        optimizer.step()
    for step, m in zip(
        (p - before).chunk(3), (0.9 * first + second).chunk(3), strict=True
    ):
        torch.testing.assert_close(step.detach(), -0.01 * BY_HAND[rule](m))


def test_adam_is_that_of_torch_on_the_rest_at_a_rate_of_its_own():
    ours = small()
    theirs = small()
    groups = [{"params": [], "lr": 0.01}, {"params": []}]
    for name, p in theirs.named_parameters():
        groups[not (name.startswith("blocks") and p.ndim == 2)]["params"] += [
            p
        ] * p.requires_grad
    pair = (
        network._ByMatrix(ours, "Adam", 0.01),
        torch.optim.Adam(groups, network.REST_RATE),
    )
    x = torch.randn(6, 3, 8, 8)
    y = torch.arange(6) % 3
    for _ in range(10):
        for model, optimizer in zip((ours, theirs), pair, strict=True):
            model.zero_grad()
            loss = F.cross_entropy(model(x), y)
            assert optimizer.step(lambda loss=loss: loss.backward() or loss) is loss
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-4, atol=1e-5)


def test_polar_factors_are_orthogonal_and_leave_out_what_is_zero():
    M = torch.randn(2, 5, 3, dtype=torch.float64)
    U = network._polar(M)
    torch.testing.assert_close(
        U.mT @ U, torch.eye(3, dtype=torch.float64).expand(2, 3, 3)
    )
    thin = torch.outer(torch.ones(4), torch.ones(3))
    torch.testing.assert_close(network._polar(thin), thin / thin.norm())
    torch.testing.assert_close(network._polar(torch.zeros(3, 3)), torch.zeros(3, 3))
    torch.testing.assert_close(
        network._unit(torch.zeros(1, 3, 3)), torch.zeros(1, 3, 3)
    )


def test_unknown_rules_and_rates_are_refused():
    for rule, rate in (("Sophia", 0.1), ("Muon", 0.0), ("Muon", float("inf"))):
        with pytest.raises(ValueError, match="rule = "):
            network._ByMatrix(small(), rule, rate)


def test_a_reading_has_the_logits_of_the_network():
    model = small().double()
    pictures = torch.randn(4, 3, 8, 8, dtype=torch.float64)
    found = network.read(model, pictures, 0.0)
    seen = {}
    plain = F.scaled_dot_product_attention

    def spy(q, k, v, **options):
        seen.setdefault("logits", []).append(q @ k.mT * options["scale"])
        return plain(q, k, v, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lib.networks.vision.F.scaled_dot_product_attention", spy)
        first = model.class_token.expand(len(pictures), -1, -1)
        # All queries
        model.blocks(torch.cat([first, model.tokens(pictures)], 1) + model.positions)
    for layer, logits in enumerate(seen["logits"]):  # (b, h, query, token)
        top = logits.topk(2, -1).values
        leads = (top[..., 0] - top[..., 1]).amin((0, 2))
        # the network's temperature is sqrt(d_h) in float32
        np.testing.assert_allclose(
            found.quantile[layer], leads.detach().numpy(), rtol=1e-7
        )


def test_ratios_do_not_see_the_size_of_W_or_how_it_is_shared():
    random = np.random.default_rng(0)
    K, Q = random.standard_normal((2, 2, 3, 4, 8))
    one = network._norms(K, Q)
    np.testing.assert_allclose(network._norms(2 * K, Q), 2 * one)
    np.testing.assert_allclose(network._norms(2 * K, Q / 2), one)
    W = np.swapaxes(K, -1, -2) @ Q / 2
    flat = np.abs(W).reshape(2, 3, -1)
    np.testing.assert_allclose(one[..., 0], flat.sum(-1))
    np.testing.assert_allclose(one[..., 5], flat.max(-1))
    np.testing.assert_allclose(one[..., 4], np.linalg.norm(W, 2, axis=(-2, -1)))


def test_the_sign_norm_of_factors_bounds_that_of_W_and_is_reached():
    """Equal rows of signs reach it: W = x y^T sqrt(d_h)."""
    k = NORMS.index(SIGN)
    K, Q = np.random.default_rng(0).standard_normal((2, 4, 6))
    assert network._norms(K, Q)[k] >= _sign_norm(K.T @ Q / 2)
    x = np.array([1.0, -1, 1, 1])
    y = np.array([1.0, 1, -1, 1])
    equal = np.tile(x, (4, 1)), np.tile(y, (4, 1))
    assert network._norms(*equal)[k] == pytest.approx(2, rel=1e-12)
    assert _sign_norm(equal[0].T @ equal[1] / 2) == pytest.approx(2, rel=1e-8)


def test_a_ratio_is_the_tenth_of_the_leads_over_norm_and_tokens():
    model = small().double()
    pictures = torch.randn(4, 3, 8, 8, dtype=torch.float64)
    found = network.read(model, pictures)
    k = NORMS.index("spectral")
    for layer, entered in enumerate(network._entrances(model, pictures)):
        x = entered.detach().numpy()
        lengths = np.mean([token @ token for picture in x for token in picture])
        for head, W in enumerate(found.W[layer]):
            logits = np.sort(
                [[t @ W @ z for t in picture] for picture in x for z in picture]
            )
            low = np.quantile(logits[:, -1] - logits[:, -2], 0.1)
            expected = low / lengths / np.linalg.norm(W, 2)
            assert found.ratio[layer, head, k] == pytest.approx(expected, rel=1e-9)


def images(rows):
    draw = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (rows, 3, 8, 8), generator=draw, dtype=torch.uint8)
    return ImageSet(pixels, torch.arange(rows) % 3, 3)


def test_runs_of_one_seed_share_start_and_batches():
    setting = network.Setting(20, 5, 3, SMALL, patch=4, batch=10)
    data = images(20)
    model, loss = network.trained(setting, data, "Muon", 1e-9, 0)
    other, of_other = network.trained(setting, data, "NGD", 1e-9, 0)
    np.testing.assert_allclose(loss, of_other, rtol=1e-5)
    pictures = data.standardise()(data.images)
    start = network.read(network._untrained(setting, data, 0), pictures)
    np.testing.assert_allclose(
        network.read(model, pictures).W, start.W, rtol=0, atol=1e-6
    )
    tried = network.tuned(setting, data, {"Muon": (1e-3, 1e-2)}, 2)
    assert set(tried["Muon"]) == {1e-3, 1e-2}
    loss = network.trained(setting, data, "Muon", 1e-2, TUNING_SEED)[1]
    assert tried["Muon"][1e-2] == pytest.approx(np.mean(loss[1:]), rel=1e-6)


def readings(level, noise=0.0):
    """Return three seeds of readings with log ratios `level`.

    `level` is broadcast to (seeds, ..., norms).
    """
    drawn = noise * np.random.default_rng(0).standard_normal((3, 2, 2, len(NORMS)))
    return [network._MarginReading(np.exp(one), None, None) for one in level + drawn]


def world():
    """Return readings in which every rule is first where it was predicted to be."""
    level = {
        rule: np.full(len(NORMS), 1e-3 * k) for k, rule in enumerate(network.DIRECTIONS)
    }
    for norm, rule in network.FIRST.items():
        level[rule][NORMS.index(norm)] += 1.0
    return {rule: readings(of, 0.01) for rule, of in level.items()}


def test_rankings_are_judged_and_exchanged_rules_are_caught():
    found = world()
    claims = network.ranking_claims(found)
    assert all(claim.holds and claim.verdict == "reproduced" for claim in claims)
    turned = dict(
        zip(found, [*found.values()][1:] + [*found.values()][:1], strict=True)
    )
    wrong = network.ranking_claims(turned)
    noticed = caught(claims, {"exchanged": wrong})["exchanged"]
    assert set(noticed) == {claim.id for claim in claims}
    assert {claim.verdict for claim in wrong} <= {"not reproduced", "undecided"}
    few = {rule: own[:2] for rule, own in found.items()}
    assert all(claim.verdict == "undecided" for claim in network.ranking_claims(few))
    with pytest.raises(ValueError, match="two seeds"):
        network.ranking_claims({rule: own[:1] for rule, own in found.items()})
    shares = network.counted(found)
    np.testing.assert_allclose(shares.sum(0), 1)
    for norm, rule in network.FIRST.items():
        assert shares[list(found).index(rule), NORMS.index(norm)] == 1


def test_a_ranking_is_decided_by_all_rivals_and_refuted_by_one():
    """Muon is ahead of NGD by 1, and of Signum by an amount that the seeds leave open.
    Adam is further behind.
    """

    def verdict(of_signum, of_ngd=(0.0, 0.0, 0.0)):
        levels = {
            "Muon": [1.0] * 3,
            "NGD": of_ngd,
            "Signum": of_signum,
            "Adam": [-1.0] * 3,
        }
        found = {
            rule: readings(np.reshape(of, (3, 1, 1, 1))) for rule, of in levels.items()
        }
        np.testing.assert_allclose(network._level(found["Adam"]), -1)
        return network.deciding_lead(found, "Muon", "spectral")[:2]

    assert verdict([0.5, 0.51, 0.52]) == ("reproduced", "Signum")
    # In the mean NGD is nearer
    assert verdict([-0.9, -0.1, 0.7]) == (
        "undecided",
        "Signum",
    )
    assert verdict([0.5, 1.1, 1.2]) == ("undecided", "Signum")
    assert verdict([1.5, 1.51, 1.52]) == ("not reproduced", "Signum")
    # The lead over Signum may be far below 0, but only NGD is certainly ahead.
    assert verdict([-3.0, 1.0, 5.0], [1.5, 1.51, 1.52]) == ("not reproduced", "NGD")


def selections():
    rules = [*atlas_rules.steepest_rows(), network.ADAM]
    optimal = {
        "from zero": {name: np.array([1.0, 0.95]) for name in rules},
        "near ties": {
            name: np.array([0.8, 0.8 - 0.4 * (name == network.ADAM)]) for name in rules
        },
        "wrong start": {name: np.array([0.5, 0.5]) for name in rules},
    }
    pairs = {
        (a, b): np.tile([1.0, 1.0, 1.0, -1.0], 10)
        for a in rules
        for b in rules
        if a != b
    }
    return optimal, {way: pairs for way in optimal}


def test_selection_claims_hold_as_predicted_and_fail_where_every_dispute_is_lost_or_even():
    optimal, found = selections()
    claims = network.selection_claims(optimal, found)
    assert len(claims) == 6 and all(claim.holds for claim in claims)
    lost = {way: {pair: -v for pair, v in of.items()} for way, of in found.items()}
    lost = [
        claim for claim in network.selection_claims(optimal, lost) if not claim.holds
    ]
    assert len(lost) == 3  # the share won in each way
    assert {claim.verdict for claim in lost} == {"not reproduced"}
    even = {way: {p: np.tile([1.0, -1.0], 20) for p in of} for way, of in found.items()}
    own = [c for c in network.selection_claims(optimal, even) if ".own." in c.id]
    assert {c.verdict for c in own} == {"undecided"} and not any(c.holds for c in own)


@pytest.mark.parametrize(
    "way, rule, shares, failing",
    [
        ("from zero", "steepest, nuclear", [0.8, 0.9], {"select.most"}),
        ("near ties", "steepest, nuclear", [1.0, 0.95], {"select.fewer"}),
        ("near ties", "steepest, nuclear", [0.5, 0.5], {"select.adam"}),
        ("from zero", network.ADAM, [0.8, 0.9], set()),
    ],
)
def test_one_rule_breaks_what_is_said_of_every_rule(way, rule, shares, failing):
    optimal, disputes = selections()
    optimal[way][rule] = np.array(shares)
    claims = network.selection_claims(optimal, disputes)
    assert {claim.id for claim in claims if not claim.holds} == failing


def test_equal_margins_are_not_won_and_adam_has_no_norm_of_its_own():
    none = np.nan
    found = {
        ("a", "b"): np.array([0.0, 1.0, none]),
        ("a", network.ADAM): np.array([1.0, 1, 1]),
    }
    found["b", "a"] = np.array([2.0, 1.0, none])
    count, of = network.won(found, ["a", "b"])
    np.testing.assert_array_equal(count, [1, 2, 0])
    np.testing.assert_array_equal(of, [2, 2, 0])


def test_the_interval_of_a_share_is_that_of_its_seeds():
    """Each seed wins all of its disputes or none, so that many disputes of few seeds
    say little.
    """
    won = np.tile([1, 0, 1], 8)
    once, often = (network.share(k * won, np.full(24, k)) for k in (1, 100))
    np.testing.assert_allclose(once, often)
    assert (
        once[0] == pytest.approx(2 / 3)
        and 0.45 < once[1] < 0.52
        and 0.8 < once[2] < 0.88
    )
    assert np.isnan(network.share(np.zeros(3), np.zeros(3))).all()


def test_norms_that_prefer_the_same_selection_say_nothing():
    """In runs 1 and 2 each norm prefers its own selection, in run 3 the other's. In runs
    4 and 5 both prefer the same, and run 6 has no dispute.
    """
    found = {("a", "b"): np.array([1.0, 2, -1, 1, -1, np.nan])}
    found["b", "a"] = np.array([1.0, 0.5, -1, -1, 1, np.nan])
    assert network.apart(found, ["a", "b"]) == (2, 3)


@pytest.mark.parametrize(
    "chosen, status, kept",
    [
        ((0, 0), "completed", True),
        ((1, 0), "completed", False),
        ((None, None), "completed", False),
        ((0, 0), "diverged", False),
    ],
)
def test_a_run_keeps_a_selection_that_stands_since_half_time_and_leads(
    monkeypatch, chosen, status, kept
):
    rule = atlas_rules.steepest_rows()["steepest, Frobenius"]
    solved = [svm.token_svm(DATA, (DATA.opt + k) % 4).W for k in (0, 1)]
    W = np.stack([0 * solved[0] if k is None else solved[k] for k in chosen], 1)
    path = SimpleNamespace(
        iterations=np.array([1, 2]), W=W, status=np.array([status] * 2)
    )
    monkeypatch.setattr(network.dynamics, "train", lambda *_, **__: {"a": path})
    assert (network.ended(DATA, {"a": rule}, 2, None)["a"].kept == kept).all()
