"""A contract for `lib.train`.

For each rule, loss, head, start and array layout it gives what a plain loop in the
tokens' own coordinates gives, or an error that names the argument.

The plain loops are written from the papers' formulas alone and call nothing of the
library. Loops of rules along the gradient and of mirror descent run in 80 bits. Loops
of rules that see the coordinates of W run in many digits (`tests.exact`), so that their
own rounding does not matter.
"""

import itertools

import mpmath
import numpy as np
import pytest

import lib
from tests import exact

STEPS = 5  # more steps would magnify rounding, since Polyak's steps are long at first
RNG = np.random.default_rng(7)
SHAPES = {  # (runs, n, T, d, d_z): both spans are whole, or neither is
    "narrow": (2, 3, 4, 3, 2),
    "wide": (2, 2, 3, 9, 5),
}
RULES = {
    "GD": lib.GD(0.3),
    "GD, decay and momentum": lib.GD(0.3, decay=0.4, momentum=0.8),
    "NGD": lib.NGD(0.2),
    "NGD, one norm": lib.NGD(0.2, joint=True),
    "NGD, cap, decay, momentum": lib.NGD(0.2, max_step=0.9, decay=0.5, momentum=0.6),
    "Polyak": lib.Polyak(max_step=5.0),
    "Custom": lib.Custom(lambda t, gap, norm: 0.2 * np.sqrt(gap) / ((t + 1) * norm)),
    "Custom, momentum": lib.Custom(lambda t, gap, norm: 0.2 / norm, momentum=0.5),
}
MIRROR = {
    "l_1.5": lib.MirrorDescent(1.5, 0.2),
    "l_2": lib.MirrorDescent(2.0, 0.2),
    "l_3, plain steps": lib.MirrorDescent(3.0, 0.3, normalised=False),
}
SEE_COORDINATES = {  # a rule, and what makes its direction in many digits
    "sign": (lib.SignDescent(0.1), lambda: steepest_in(np.inf)),
    "l_1": (lib.SteepestDescent(1, 0.1), lambda: steepest_in(1)),
    "l_3": (lib.SteepestDescent(3, 0.1, weight_decay=0.5), lambda: steepest_in(3)),
    "Frobenius": (lib.SteepestDescent("frobenius", 0.1), lambda: steepest_in(2)),
    "spectral": (lib.SteepestDescent("spectral", 0.1), lambda: steepest_in("spectral")),
    "nuclear": (lib.SteepestDescent("nuclear", 0.1), lambda: steepest_in("nuclear")),
    "Adam": (lib.Adam(0.1), lambda: exact.adaptive(0.9, 0.999)),
    "RMSprop": (
        lib.RMSprop(0.1, epsilon=1e-3),
        lambda: exact.adaptive(0.0, 0.99, 1e-3, corrected=False),
    ),
    "AdaGrad": (
        lib.AdaGrad(0.1, decay=0.5),
        lambda: exact.adaptive(0.0, 0.0, summed=True, corrected=False),
    ),
    "Signum": (lib.Signum(0.1), lambda: exact.sign_momentum(0.9, 0.9)),
    "Lion": (lib.Lion(0.1), lambda: exact.sign_momentum(0.9, 0.99)),
    "Muon": (lib.Muon(0.1), lambda: exact.muon(0.95, False)),
}
STARTS = "zero", "inside", "outside"


def drawn(shape, layout=np.asarray):
    """Draw tokens with a head, as arrays that `layout` made."""
    runs, n, T, d, d_z = shape
    rng = np.random.default_rng(0)
    X = rng.standard_normal((runs, n, T, d))
    z = rng.standard_normal((runs, n, d_z))
    u = 0.3 * rng.standard_normal((runs, d))  # small, so that no run converges in STEPS
    y = np.where(np.arange(runs * n).reshape(runs, n) % 2, 1, -1)
    return lib.token_set(layout(X), y, layout(z), layout(u))


def loss_and_slope(f, loss):
    """Return l(f) and l'(f), elementwise."""
    if loss == "exponential":
        return np.exp(-f), -np.exp(-f)
    if loss == "logistic":
        return np.log1p(np.exp(-f)), -1 / (1 + np.exp(f))
    if loss == "sigmoid":
        value = 1 / (1 + np.exp(f))
        return value, -value * (1 - value)
    inside = 1 + np.abs(f)
    return np.where(f < 0, inside, 1 / inside), np.where(f < 0, -1, -1 / inside**2)


def steepest_in(norm):
    """Return the direction of steepest descent in a norm."""
    return lambda t, parts: exact.steepest(parts.mean(0), norm)


def mirrored(W, gradient, rule):
    """Return W after a step of mirror descent with the potential ||W||_p^p / p."""
    p = np.longdouble(rule.p)
    q = p / (p - 1)
    image = np.sign(W) * np.abs(W) ** (p - 1)
    size = (np.abs(gradient) ** q).sum() ** (1 / q) if rule.normalised else 1
    image = image - rule.step_size * gradient / size
    return np.sign(image) * np.abs(image) ** (1 / (p - 1))


def step_size(rule, t, gap, norm):
    """Return eta_t from the rule's formula."""
    if isinstance(rule, lib.Custom):
        return rule.law(t, gap, norm)
    if isinstance(rule, lib.Polyak):
        return min(gap / (2 * norm**2), rule.max_step)
    eta = rule.step_size * (t + np.longdouble(1)) ** -rule.decay
    return min(eta / norm if isinstance(rule, lib.NGD) else eta, rule.max_step)


def of_opt(rows, opt):
    """Return the entry of each row (n, T) that belongs to its opt token, (n, 1)."""
    return rows[np.arange(len(rows)), opt][:, None]


def of_others(rows, opt):
    """Return the other entries of each row, (n, T-1)."""
    return np.array([np.delete(row, k) for row, k in zip(rows, opt, strict=True)])


def plain(data, rule, W, loss, head, run, steps=STEPS):
    """Train one run; return W, u and what its last iterate measures."""
    X, y, z, u = (getattr(data, name)[run].astype(np.longdouble) for name in "Xyzu")
    W = W.astype(np.longdouble)
    opt = data.opt[run]
    moved_W, moved_u = np.zeros_like(W), np.zeros_like(u)
    for t in range(steps + 1):
        logits = np.einsum("ntd,de,ne->nt", X, W, z)
        weights = np.exp(logits - logits.max(1, keepdims=True))
        weights /= weights.sum(1, keepdims=True)
        scores = y[:, None] * (X @ u)
        f = (weights * scores).sum(1)
        value, slope = loss_and_slope(f, loss)
        gap = value.mean()
        if head == "fixed":
            gap -= loss_and_slope(scores.max(1), loss)[0].mean()
        pull = slope[:, None] * weights * (scores - f[:, None]) / len(y)
        grad_W = np.einsum("nt,ntd,ne->de", pull, X, z)
        grad_u = np.einsum("n,nt,ntd->d", slope * y, weights, X) / len(y)
        norms = np.sqrt((grad_W**2).sum()), np.sqrt((grad_u**2).sum())
        if isinstance(rule, lib.MirrorDescent):
            if t < steps:
                W = mirrored(W, grad_W, rule)
                if head == "joint":
                    u = mirrored(u, grad_u, rule)
            continue
        # Paper A, Eq. 13: each gradient by its own norm. Elsewhere grad L is of both.
        each = head == "fixed" or (isinstance(rule, lib.NGD) and not rule.joint)
        used = norms if each else (np.hypot(*norms), np.hypot(*norms))
        etas = [step_size(rule, t, gap, norm) for norm in used]
        if t == steps:
            break
        moved_W = rule.momentum * moved_W + etas[0] * grad_W
        W = W - moved_W
        if head == "joint":
            moved_u = rule.momentum * moved_u + etas[1] * grad_u
            u = u - moved_u
    measured = {
        "log_gap": np.log(gap),
        "log_gradient": np.log(norms[0]),
        "norm": np.sqrt((W**2).sum()),
        "margins": of_opt(logits, opt) - of_others(logits, opt),
        "log_miss": np.log(of_others(weights, opt).sum(1)),
        "score_gaps": of_opt(scores, opt) - of_others(scores, opt),
    }
    if not isinstance(rule, lib.MirrorDescent):
        measured["log_step"] = np.log(etas[0])
        if head == "joint":
            measured["log_gradient_head"] = np.log(norms[1])
            measured["log_step_head"] = np.log(etas[1])
    if head == "joint":
        measured["head_norm"] = np.sqrt((u**2).sum())
    return W, u, measured


def start_of(kind, data):
    """Return W_0 (runs, d, d_z), in the span of tokens and queries or partly outside of
    it.
    """
    shape = *data.u.shape, data.z.shape[-1]
    if kind == "zero":
        return np.zeros(shape)
    W = np.random.default_rng(1).standard_normal(shape)
    if kind == "inside":
        problem = lib.minimal(data)
        W = problem.expand(problem.reduce(W)[0])
    return W


def close(measured, expected, where):
    """Assert agreement to 1e-12, relative to the larger of one and the value."""
    np.testing.assert_allclose(
        measured, expected.astype(float), rtol=1e-12, atol=1e-12, err_msg=where
    )


@pytest.mark.parametrize("product", ["gram", "factored"])
@pytest.mark.parametrize("loss", lib.LOSSES)
@pytest.mark.parametrize("shape", SHAPES)
def test_training_is_the_plain_loop(shape, loss, product):
    data = drawn(SHAPES[shape])
    problem = lib.minimal(data)
    for head, kind in itertools.product(("fixed", "joint"), STARTS):
        W_0 = start_of(kind, data)
        runs = lib.train(
            data, RULES, STEPS, [STEPS], W_0, head=head, loss=loss, product=product
        )
        outside = W_0 - problem.expand(problem.reduce(W_0)[0])
        for (name, rule), run in itertools.product(RULES.items(), range(len(data.X))):
            where = f"{name}, {head} head, start {kind}, run {run}"
            W, u, expected = plain(data, rule, W_0[run], loss, head, run)
            history = runs[name]
            assert history.status[run] == "completed", where
            whole = problem.expand(history.weights(-1)) + outside
            close(whole[run], W, where)
            for quantity, value in expected.items():
                close(
                    getattr(history, quantity)[run, -1], value, f"{quantity}, {where}"
                )
            basis = problem.token_basis[run]
            if head == "joint":
                close(history.head(-1)[run], basis.T @ u.astype(float), where)


@pytest.mark.parametrize("loss", lib.LOSSES[:2])
@pytest.mark.parametrize("shape", SHAPES)
def test_mirror_descent_is_the_plain_loop(shape, loss):
    data = drawn(SHAPES[shape])
    for head, kind in itertools.product(("fixed", "joint"), STARTS):
        W_0 = start_of(kind, data)
        runs = lib.train(data, MIRROR, STEPS, [STEPS], W_0, head=head, loss=loss)
        for (name, rule), run in itertools.product(MIRROR.items(), range(len(data.X))):
            where = f"{name}, {head} head, start {kind}, run {run}"
            W, u, expected = plain(data, rule, W_0[run], loss, head, run)
            history = runs[name]
            assert history.status[run] == "completed", where
            close(history.weights(-1)[run], W, where)
            close(history.head(-1)[run], u, where)
            for quantity, value in expected.items():
                close(
                    getattr(history, quantity)[run, -1], value, f"{quantity}, {where}"
                )


@pytest.mark.parametrize("loss", lib.LOSSES[:2])
@pytest.mark.parametrize("shape", SHAPES)
def test_rules_that_see_coordinates_are_the_plain_loop(shape, loss):
    data = drawn(SHAPES[shape])
    rules = {name: rule for name, (rule, _) in SEE_COORDINATES.items()}
    for kind in STARTS:
        W_0 = start_of(kind, data)
        runs = lib.train(data, rules, STEPS, [STEPS], W_0, loss=loss)
        for name, (rule, make) in SEE_COORDINATES.items():
            for run in range(len(data.X)):
                with mpmath.workdps(40):
                    W = exact.train(data.run(run), make(), rule, STEPS, W_0[run], loss)
                where = f"{name}, start {kind}, run {run}"
                assert runs[name].status[run] == "completed", where
                close(runs[name].weights(-1)[run], W, where)


@pytest.mark.parametrize("head", ["fixed", "joint"])
def test_targets_are_measured_by_their_definitions(head):
    data = drawn(SHAPES["wide"])
    W_0 = start_of("inside", data)
    V = RNG.standard_normal(W_0.shape)  # it leaves the span of tokens and queries
    v = RNG.standard_normal(data.u.shape)
    targets = {"targets": {"V": V}}
    if head == "joint":  # only one of head and target may leave the tokens' span
        basis = lib.minimal(data).token_basis
        v = (basis @ (np.swapaxes(basis, 1, 2) @ v[..., None]))[..., 0]
        targets["head_targets"] = {"v": v}
    history = lib.train(data, lib.NGD(0.2), STEPS, [STEPS], W_0, head=head, **targets)
    assert (history.status == "completed").all()
    for run in range(len(data.X)):
        W, u, _ = plain(data, lib.NGD(0.2), W_0[run], "exponential", head, run)
        apart, cosine = compared(W, V[run])
        close(history.direction_error["V"][run, -1], apart, "direction error")
        close(history.alignment["V"][run, -1], cosine, "alignment")
        if head == "joint":
            apart, cosine = compared(u, v[run])
            close(history.head_direction_error["v"][run, -1], apart, "of the head")
            close(history.head_alignment["v"][run, -1], cosine, "of the head")


def compared(a, b):
    """Return the distance and the scalar product of two vectors' directions."""
    a = a / np.sqrt((a**2).sum())
    b = b / np.sqrt((b**2).sum())
    return np.sqrt(((a - b) ** 2).sum()), (a * b).sum()


LAYOUTS = {
    "Fortran order": np.asfortranarray,
    "every second entry": lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
    "backwards in memory": lambda a: np.ascontiguousarray(a[::-1])[::-1],
    "read only": lambda a: np.broadcast_to(a, a.shape),
    "nested lists": lambda a: a.tolist(),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_layout_of_an_array_does_not_matter(layout):
    shape = SHAPES["wide"]
    data, same = drawn(shape), drawn(shape, LAYOUTS[layout])
    W_0 = start_of("outside", data)
    rules = RULES | MIRROR | {name: rule for name, (rule, _) in SEE_COORDINATES.items()}
    expected = lib.train(data, rules, STEPS, start=W_0)
    found = lib.train(same, rules, STEPS, start=LAYOUTS[layout](W_0))
    for name in rules:
        np.testing.assert_array_equal(found[name].norm, expected[name].norm)
        np.testing.assert_array_equal(
            found[name].weights(-1), expected[name].weights(-1)
        )


@pytest.mark.parametrize("kind", [np.float32, np.float16, np.int8, np.int64, np.uint8])
def test_narrow_numbers_are_widened_before_anything_is_computed(kind):
    X = RNG.integers(0, 100, (3, 3, 4)).astype(kind)
    z = RNG.integers(0, 100, (3, 2)).astype(kind)
    u = RNG.integers(0, 3, 4).astype(kind) + kind(1)
    data = lib.token_set(X, [1, -1, 1], z, u, opt=[0, 1, 2])
    wide = lib.token_set(
        X.astype(float), [1, -1, 1], z.astype(float), u.astype(float), opt=[0, 1, 2]
    )
    for rule in (lib.NGD(0.01), lib.MirrorDescent(3.0), lib.Adam(0.01)):
        np.testing.assert_array_equal(
            lib.train(data, rule, 5).norm, lib.train(wide, rule, 5).norm
        )
    assert data.X.dtype == float


DATA = drawn(SHAPES["narrow"])
W_0 = start_of("inside", DATA)
NAN = np.full_like(W_0, np.nan)
REFUSED = {  # the mistake: (arguments of train, what the message must name)
    "a class of rules": (dict(rules=lib.NGD), "NGD"),
    "a number": (dict(rules=0.1), "0.1"),
    "a word": (dict(rules={"mine": "NGD"}), "'NGD'"),
    "no steps": (dict(steps=-1), "steps"),
    "half a step": (dict(steps=1.5), "steps"),
    "another loss": (dict(loss="hinge"), "'hinge'"),
    "another head": (dict(head="trained"), "'trained'"),
    "another product": (dict(product="sparse"), "'sparse'"),
    "records that go back": (dict(record=[3, 1]), "record"),
    "records after the end": (dict(record=[1, 99]), "record"),
    "half a record": (dict(record=[0.5]), "record"),
    "a start of one run": (dict(start=W_0[0]), "start"),
    "a start of NaN": (dict(start=NAN), "start"),
    "a target of NaN": (dict(targets={"V": NAN}), "'V'"),
    "a target of zero": (dict(targets={"V": 0 * W_0}), "'V'"),
    "a target of one run": (dict(targets={"V": W_0[0]}), "'V'"),
    "a target without a name": (dict(targets=lib.token_svm(DATA)), "W_mm"),
    "a head's target as W": (dict(head_targets={"v": W_0}, head="joint"), "'v'"),
    "no tokens": (dict(tokens=DATA.X), "tokens"),
}


ALIKE = np.ones((2, 3, 4))  # two samples of three equal tokens
BAD_DATA = {  # the mistake: (arguments of token_set, what the message must say)
    "labels 0 and 1": (dict(X=np.eye(3)[None], y=[0], u=np.ones(3)), "give 2 * y - 1"),
    "dimension first": (
        dict(X=[np.ones((3, 5)), np.ones((3, 4))], y=[1, 1], u=np.ones(5)),
        "a row for each token",
    ),
    "equal tokens": (dict(X=ALIKE, y=[1, 1], u=np.ones(4)), "at the tokens 0, 1, 2;"),
}


@pytest.mark.parametrize("fault", BAD_DATA)
def test_bad_data_are_named_with_a_way_out(fault):
    given, says = BAD_DATA[fault]
    with pytest.raises(ValueError) as caught:
        lib.token_set(**given)
    assert says in str(caught.value)


def test_equal_tokens_and_a_zero_query_are_a_matter_of_one_sample():
    equal = lib.token_set(ALIKE, [1, 1], opt=[0, 0])
    silent = lib.token_set(np.eye(3)[None], [1], z=np.zeros((1, 2)), opt=[0])
    for data in (equal, silent):
        with pytest.raises(lib.Infeasible, match="of sample 0 .* query is not zero"):
            lib.token_svm(data)


ANY_RULE = [lib.NGD(0.1), lib.MirrorDescent(3.0), lib.Adam(0.1)]


@pytest.mark.parametrize("rule", ANY_RULE, ids=repr)
@pytest.mark.parametrize("fault", REFUSED)
def test_a_bad_argument_is_named_in_one_sentence(fault, rule):
    given, names = REFUSED[fault]
    arguments = dict(tokens=DATA, rules=rule, steps=5) | given
    with pytest.raises((ValueError, TypeError)) as caught:
        lib.train(**arguments)
    sentence = str(caught.value)
    assert names in sentence
    assert "\n" not in sentence
