"""The rows of the report: what is measured, against which reference, and the bar."""

import os
import subprocess
import sys
import time
from functools import partial
from itertools import pairwise
from statistics import median

import numba
import numpy as np
import torch

from lib import attention, dynamics, files, mirror, networks, regression, svm, training
from lib.attention import coordinates, tokens
from lib.compiled import gram
from lib.dynamics import reduced as dynamics_reduced
from lib.dynamics import rules
from lib.training.rules import NormalizedSGD, StochasticPolyak
from papers.law import margin_law
from tests.benchmarks import memory, peers, plain
from tests.benchmarks.measure import (
    ENOUGH,
    Entry,
    Times,
    duration,
    gate,
    in_turns,
    seconds,
    threads,
    turns,
)

# both sides record at iterations 0, 100, 200, ...: the same cost per iteration at any
# horizon
EVERY = 100
# largest difference of loss gap, norm and direction error, as long as plain float64 is
# accurate
AGREE = 1e-8


def _memory(name, workload, limit):
    """Measure the peak memory of a workload in its own process, divided by a limit in
    MB.
    """
    began = time.perf_counter()
    command = [sys.executable, "-m", "tests.benchmarks.memory", workload]
    # Two threads mostly wait on a busy machine
    single = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=files.ROOT, env=single, capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[1:])} failed:\n{done.stderr}")
    peak = float(done.stdout)
    ratio = peak / limit
    taken = time.perf_counter() - began
    what = memory.WORKLOADS[workload].__doc__.rstrip(".")
    return Entry(
        name, None, None, ratio, (ratio, ratio), 1.0, "at most",
        f"{peak:.0f} MB", f"{limit} MB",
        f"{what}: peak memory over the limit, in a process of its own that took {taken:.1f} s",
    )  # fmt: skip


def _problem(data):
    """Return a token set in minimal coordinates, its W_mm there, and the seconds that
    both took on one thread.
    """
    with threads(1):
        began = time.perf_counter()
        problem = coordinates.minimal(data)
        return problem, svm.token_svm(problem.tokens).W, time.perf_counter() - began


def _ours(problem, W_mm, step_size, steps, head="fixed", every=EVERY):
    record = np.arange(0, steps + 1, every)
    return dynamics.train(
        problem, rules.NGD(step_size), steps, record, targets={"W_mm": W_mm}, head=head
    )


@numba.njit
def _products(K, run, c, out, count):
    for _ in range(count):
        gram.multiply(K, run, c, out)
        c[0] = 1e-300 * out[0]  # so that no compiler moves the product out of the loop


def _training(name, bar, draw, step_size, steps, reference_steps, head="fixed"):
    """Time NGD on the data of `draw`, per run and iteration.

    The reference is autograd on W of the first run.
    """
    data = draw()
    problem, W_mm, setup = _problem(data)
    runs = len(data.y)
    joint = head == "joint"
    model = plain.Model(data)
    target = problem.expand(W_mm)[0]

    def reference(steps=reference_steps, every=EVERY):
        step = plain.normalised(step_size)
        record = range(0, steps + 1, every)
        return plain.train(model, step, steps, record, joint=joint)

    W, *u = reference(100, 20)
    parameters = map(torch.from_numpy, (W, *u))
    least = 0.0 if joint else model.best_loss
    gaps = [model.loss(*each).item() - least for each in zip(*parameters, strict=True)]
    norm = np.linalg.norm(W, axis=(1, 2))
    away = W[1:] / norm[1:, None, None] - target / np.linalg.norm(target)
    first = _ours(coordinates.minimal(data.run(0)), W_mm[:1], step_size, 100, head, 20)
    error = first.direction_error["W_mm"][0, 1:]  # W_0 = 0 has no direction
    gate(f"{name}: loss gap", np.exp(first.log_gap[0]), gaps, AGREE)
    gate(f"{name}: norm of W", first.norm[0], norm, AGREE)
    gate(f"{name}: direction error", error, np.linalg.norm(away, axis=(1, 2)), AGREE)
    if joint:
        gate(
            f"{name}: norm of u", first.head_norm[0], np.linalg.norm(*u, axis=1), AGREE
        )

    times = in_turns(
        lambda: _ours(problem, W_mm, step_size, steps, head),
        reference,
        units=runs * steps, reference_units=reference_steps,
    )  # fmt: skip
    note = f"per run and iteration; {steps} iterations x {runs} runs (reference {reference_steps}"
    note = f"{note} x 1), recording every {EVERY}; basis and W_mm apart: {setup * 1e3:.3g} ms"
    return times.entry(name, bar, note)


_spent = partial(seconds, at_least=0.05, clock=time.process_time)  # processor time


def _spent_in_turns(ours, reference, count, enough=ENOUGH):
    """Measure the processor seconds of two functions by turns, over `count` units of
    work.

    Both have run before. They use one thread, since with several threads processor time
    means little.
    """
    with threads(1):
        taken = [
            (_spent(ours) / count, _spent(reference) / count)
            for _ in turns(enough=enough)
        ]
    return Times(*map(list, zip(*taken, strict=True)), (1, 1))


def _over_products(name, bar, draw, step_size, steps, head="fixed"):
    """Time training per run and iteration, divided by the time of its Gram-matrix
    products.

    Processor time is measured. Both run on one thread, in turns, because a busy machine
    and idle threads stretch the clock.
    """
    problem, W_mm, _ = _problem(data := draw())
    reduced = problem.tokens
    (runs, n) = data.y.shape
    start = dynamics.zero_start(problem).inside
    reduced = dynamics_reduced.reduce(reduced, start, head, "exponential")
    packed = [gram.pack(K, n) for K in (reduced.K.matrix, reduced.G.matrix) if K.size]

    def products():
        for K in packed:
            _products(K, 0, np.ones(K.shape[1]), np.zeros(K.shape[1]), runs * steps)

    def ours():
        return _ours(problem, W_mm, step_size, steps, head)

    for work in (ours, products):
        work()  # compiles
    times = _spent_in_turns(ours, products, runs * steps)
    return times.entry(
        name, bar, f"processor time, {steps} iterations x {runs} runs", "at most"
    )


def _token_svm(name, bar, draw, of=plain.svm_per_constraint, p=2, agree=1e-6):
    """Time a token SVM against cvxpy.

    ||W_mm|| must agree to `agree`, and W_mm to the square root of it.
    """
    data = draw()

    def solve():
        return svm.token_svm(data, norm=p)

    def reference():
        return of(data) if p == 2 else of(data, p)

    solution = solve()
    expected = reference()
    norms = (np.linalg.norm(W.ravel(), p) for W in (solution.W[0], expected))
    gate(f"{name}: norm of W_mm", *norms, agree)
    gate(f"{name}: W_mm", solution.W[0], expected, agree**0.5)
    accuracy = f"gap {solution.gap.max():.0e}, violation {solution.violation.max():.0e}"
    note = f"p = {p:g}; {solution.solver[0]}, {accuracy}; cvxpy with Clarabel"
    return in_turns(solve, reference).entry(name, bar, note)


def mirror_runs() -> Entry:
    """Time lp-AttGD with p = 1.75, 2 and 3 on 100 random problems in one call.

    The problems have n=6, T=8, d=10.
    """
    name = "mirror_runs"
    steps = 2000
    reference_steps = 500
    seeds = range(100)
    exponents = (1.75, 2, 3)
    data = tokens.unit_tokens(seeds, n=6, T=8, d=10)
    start = mirror.gaussian_start(data, seeds)
    model = plain.Model(data, lambda f: torch.nn.functional.softplus(-f))
    targets = {p: svm.token_svm(data, norm=p).W for p in exponents}
    rule = {p: dynamics.MirrorDescent(p, 0.1) for p in exponents}

    def ours(steps=steps, every=EVERY):
        records = np.arange(0, steps + 1, every)
        histories = dynamics.train(data, rule, steps, records, start, loss="logistic")
        return {
            p: (history, history.divergence(targets[p], p))
            for p, history in histories.items()
        }

    def reference(steps=reference_steps, every=EVERY):
        train = partial(
            plain.train, model, steps=steps, record=range(0, steps + 1, every)
        )
        return {p: train(plain.mirrored(p, 0.1), start=start[0])[0] for p in exponents}

    expected = reference(100, 20)
    for p, (history, divergence) in ours(100, 20).items():
        W = expected[p].reshape(len(expected[p]), -1)
        V = targets[p][0].ravel()
        norm = np.linalg.norm(W, p, axis=1)
        unit = W / norm[:, None]
        along = (np.sign(unit) * np.abs(unit) ** (p - 1) @ V) / np.linalg.norm(V, p)
        gate(f"{name}, p = {p}: norm of W", history.own_norm[0], norm, AGREE)
        gate(f"{name}, p = {p}: divergence", divergence[0], 1 - along, AGREE)
    times = in_turns(
        ours, reference, units=300 * steps, reference_units=3 * reference_steps
    )
    note = f"per run and iteration; {steps} x 100 runs x 3 p (reference {reference_steps} x 1 x 3)"
    return times.entry(name, 100, f"{note}, recording every {EVERY}")


def _along(name, bar, table):
    """Time the rules of `table` on unit tokens.

    `table` has, by name, a rule and a function that builds its direction D(-gradient).
    The reference is autograd along this direction.
    """
    rules = {kind: rule for kind, (rule, _) in table.items()}
    steps = 5000
    reference_steps = 200
    runs = 8
    data = tokens.unit_tokens(range(runs), n=6, T=8, d=10)
    model = plain.Model(data)

    def ours(steps=steps, every=EVERY):
        return dynamics.train(data, rules, steps, record=np.arange(0, steps + 1, every))

    def reference(steps=reference_steps, every=EVERY):
        train = partial(
            plain.train, model, steps=steps, record=range(0, steps + 1, every)
        )

        def along(D, size):
            return lambda W, gradient: W.add_(D(-gradient), alpha=size)

        rows = table.items()
        return {
            kind: train(along(make(), rule.step_size))[0] for kind, (rule, make) in rows
        }

    expected = reference(100, 20)
    for kind, path in ours(100, 20).items():
        gate(f"{name}, {kind}: W", path.W[0], expected[kind], AGREE)
    units = len(rules) * runs * steps
    reference_units = len(rules) * reference_steps
    times = in_turns(ours, reference, units, reference_units)
    note = f"per run and iteration; {', '.join(rules)}; {steps} x {runs} runs"
    note = f"{note} (reference {reference_steps} x 1), recording every {EVERY}"
    return times.entry(name, bar, note)


def _power(G):
    return torch.sign(G) * G.abs().sqrt() / (G.abs() ** 1.5).sum() ** (1 / 3)


ENTRYWISE = {  # rule, and what makes its direction
    "sign": (dynamics.SteepestDescent(np.inf, 1e-3), lambda: torch.sign),
    "l_3": (dynamics.SteepestDescent(3, 1e-2), lambda: _power),
    "Adam": (dynamics.Adam(1e-3, epsilon=1e-8), plain.AdamDirection),
}
SPECTRAL = {"polar": (dynamics.SteepestDescent("spectral", 1e-2), lambda: plain.polar)}


def _svm_peers(name, bar, draw):
    """Time a token SVM against the fastest QP solver on its dual, on one thread.

    Processor time is measured. Both start from the tokens: a peer's time includes the
    matrix of the dual, which our code builds.
    """
    data = draw()

    def gram_matrix():
        return coordinates.gram(coordinates.differences(data, data.opt), data.z)[0]

    solution = svm.token_svm(data)
    with threads(1):
        for peer, solve in peers.SOLVERS.items():
            gate(
                f"{name}: {peer}",
                solve(gram_matrix()).sum(),
                solution.norm[0] ** 2,
                1e-6,
            )
        ours, theirs, fastest = _beside(peers.SOLVERS, gram_matrix, data)
    note = f"processor time, {solution.duals.size} constraints; {fastest}"
    return Times(ours, theirs, (1, 1)).entry(name, bar, note)


def _beside(solvers, problem, data):
    """Time `token_svm` and the fastest of `solvers` on problem(), in turns.

    Returns both processor times, and words on which solver was fastest with all times.
    """
    ours = []
    taken = {peer: [] for peer in solvers}
    for _ in turns():
        for peer, solve in solvers.items():
            taken[peer].append(_spent(lambda: solve(problem())))  # noqa: B023
        ours.append(_spent(lambda: svm.token_svm(data)))
    best = min(taken, key=lambda peer: median(taken[peer]))
    each = ", ".join(f"{peer} {duration(median(t))}" for peer, t in taken.items())
    return ours, taken[best], f"the fastest is {best}: {each}"


def _planted(n, T, d):
    """Draw unit tokens and queries; a random W selects the opt tokens."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, T, d))
    X /= np.linalg.norm(X, axis=-1, keepdims=True)
    z = rng.standard_normal((n, d))
    z /= np.linalg.norm(z, axis=-1, keepdims=True)
    W = rng.standard_normal((d, d))
    opt = (X @ (z @ W.T)[..., None])[..., 0].argmax(1)
    return attention.token_set(X, np.ones(n), z=z, opt=opt)


def _svm_at_scale(name, bar, n, T, d):
    """Time a token SVM with many more constraints than unknowns, on one thread.

    The reference is the fastest QP solver on the primal. Processor time is measured.
    Both start from the tokens: a peer's time includes building the constraints.
    """
    data = _planted(n, T, d)

    def rows():
        delta = coordinates.differences(data, data.opt)[0]
        return coordinates.constraint_rows(delta, data.z[0])

    with threads(1):
        solution = svm.token_svm(data)
        for peer, solve in peers.PRIMAL.items():
            gate(f"{name}: {peer}", solve(rows()), solution.W[0].ravel(), 1e-5)
        ours, theirs, fastest = _beside(peers.PRIMAL, rows, data)
    note = f"processor time, {n * (T - 1)} constraints in {d * d} unknowns, gap "
    note = f"{note}{solution.gap[0]:.0e}; {fastest}"
    return Times(ours, theirs, (1, 1)).entry(name, bar, note)


def _jax(name, bar, draw, step_size, steps):
    """Time NGD against the same closed form by JAX in minimal coordinates.

    Processor time per step is measured.
    """
    problem, W_mm, _ = _problem(draw())
    runs = len(problem.tokens.y)

    def ours(count=steps):
        return _ours(problem, W_mm, step_size, count, every=count)

    # Later float64 loses the weights
    reference = peers.jax_ngd(problem.tokens, step_size, 100)
    gate(f"{name}: norm of W", ours(100).norm[:, -1], reference(), AGREE)
    reference = peers.jax_ngd(problem.tokens, step_size, steps)
    for work in (reference, ours):
        work()  # compiles
    times = _spent_in_turns(ours, reference, steps * runs)
    return times.entry(name, bar, f"processor time, {steps} steps x {runs} runs")


def _at_scale(name, bar, draw, steps):
    """Time NGD with many pairs of tokens.

    The reference is the faster of numpy and JAX in the coordinates of W. Processor time
    per step is measured.
    """
    data = draw()
    step_size = 0.05

    def ours(count=steps):
        return dynamics.train(data, rules.NGD(step_size), count, [count])

    makers = {"numpy": plain.numpy_ngd, "JAX": peers.jax_ngd}
    norm = ours(100).norm[:, -1]
    references = {}
    for peer, make in makers.items():
        # Later the peers' weights are lost to rounding.
        gate(f"{name}, {peer}: norm of W", norm, make(data, step_size, 100)(), AGREE)
        references[peer] = make(data, step_size, steps)
        references[peer]()  # compiles
    ours()
    taken = {peer: [] for peer in makers}
    own = []
    with threads(1):
        for _ in turns():
            for peer, work in references.items():
                taken[peer].append(_spent(work) / steps)
            own.append(_spent(ours) / steps)
    best = min(taken, key=lambda peer: median(taken[peer]))
    others = ", ".join(f"{peer} {duration(median(t))}" for peer, t in taken.items())
    n, T, d = data.shape[1:]
    note = (
        f"processor time a step with all set-up, {steps} steps, (n, T, d) = {n, T, d}"
    )
    note = f"{note}, {n * (T - 1)} pairs; the faster is {best}: {others}"
    return Times(own, taken[best], (1, 1)).entry(name, bar, note)


def dimension() -> Entry:
    """Time training at d = 100,000 against d = 300, once the basis is built.

    Both have n=20, T=10.
    """
    small, large = (_problem(class_means(d=d)) for d in (300, 100_000))
    steps = 10_000
    runs = [partial(_ours, *problem[:2], 0.05, steps) for problem in (large, small)]
    first, second = (run().norm[0] for run in runs)
    # two data sets from the same distribution
    gate("dimension: norm of W at both d", first, second, 0.5)
    times = in_turns(*runs, units=steps, reference_units=steps)
    note = f"d = 100,000 over d = 300, per iteration; basis and W_mm apart: {large[2]:.1f} s"
    return times.entry("dimension", 1.2, note, "at most")


def minibatch_gradient() -> Entry:
    """Time paper B's in-sample gradient on a minibatch of 500, d = k = 10, against
    autograd.
    """
    problem = regression.random_regression(0, d=10, k=10)
    samples = problem.sample(500, np.random.default_rng(0))
    layer = regression.gaussian_start(0, 10, 10, 0.3)
    tensors = [torch.from_numpy(value) for value in (*samples, *layer)]

    def ours():
        return regression.empirical_gradients(*samples, *layer)

    def reference():
        return plain.regression_gradients(*tensors)

    for part, gradient, expected in zip("AB", ours(), reference(), strict=True):
        gate(f"minibatch_gradient: grad_{part}", gradient, expected, 1e-12)
    times = in_turns(ours, reference)
    return times.entry("minibatch_gradient", 3, "one call each, float64")


def long_horizon() -> Entry:
    """Time ten million NGD steps of Figure 2's problem, per step, against one million.

    Processor time is measured. The direction error at the end of both must be the one
    that the law of the margins predicts.
    """
    name = "long_horizon"
    steps = 10_000_000
    fewer = 1_000_000
    data = tokens.class_mean_tokens(0, n=20, T=10, d=300, signal=3.0, noise=0.1)
    problem, W_mm, _ = _problem(data)
    law = margin_law.margin_law(problem.tokens, svm.token_svm(problem.tokens))

    def work(count):
        began = time.process_time()
        history = _ours(problem, W_mm, 0.025, count, every=count)
        spent = time.process_time() - began
        error = history.direction_error["W_mm"][:, -1]
        gate(
            f"{name}: error at {count}",
            error,
            law.direction_error(history.norm[:, -1]),
            1e-6,
        )
        return spent / count

    _ours(problem, W_mm, 0.025, EVERY)  # compiles
    with threads(1):
        first, *rest = [work(count) for count in (fewer, *3 * (steps, fewer))]
    between = [(a + b) / 2 for a, b in pairwise([first, *rest[1::2]])]
    times = Times(rest[::2], between, (1, 1))
    return times.entry(
        name, 1.1, "processor time of a step, last step recorded", "at most"
    )


def _optimizer_step(name, make):
    """Time one step over BERT-base's parameters, with given gradients, against SGD.

    SGD needs no norm. A pass for the norm reads g, while SGD's pass reads g and θ and
    writes θ. If no cache holds a part of g, a step that first measures ‖g‖ takes at
    least 4/3 of SGD's time. The bar is 1.2 times that.
    """
    generator = torch.Generator().manual_seed(0)
    draw = partial(torch.randn, generator=generator)
    parameters = [draw(shape).requires_grad_() for shape in plain.bert_base_shapes()]
    for parameter in parameters:
        parameter.grad = 1e-3 * draw(parameter.shape)
    ours = make(parameters)
    reference = torch.optim.SGD(parameters, 1e-3, foreach=True)
    before = [parameter.detach().clone() for parameter in parameters]
    loss = torch.tensor(0.7)
    ours.step(lambda: loss)
    size = float(ours.last_step_size)
    worst = 0.0
    for parameter, start in zip(parameters, before, strict=True):
        worst = max(
            worst,
            float((start - size * parameter.grad - parameter.detach()).abs().max()),
        )
    gate(f"{name}: the move", 1 + worst, 1.0, 1e-6)
    square = sum(
        float(np.square(p.grad.numpy(), dtype=float).sum()) for p in parameters
    )
    gate(f"{name}: gradient norm", float(ours.last_gradient_norm), square**0.5, 1e-8)
    del before
    times = in_turns(lambda: ours.step(lambda: loss), reference.step, enough=25)
    count = sum(parameter.numel() for parameter in parameters) / 1e6
    note = f"{count:.1f} million float32, gradients given; over torch.optim.SGD(foreach=True)"
    return times.entry(name, 1.6, note, "at most")


def _loop_step(name, make):
    """Time a whole step of `training.Trainer` on a vision transformer against one with
    SGD.

    Processor time of one thread is measured, because a host that takes away one of two
    cores changes wall-clock time by a half.
    """
    os.environ["TQDM_DISABLE"] = "1"
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(256, 1, 32, 32, generator=generator)
    labels = torch.arange(256) % 10
    batches = training.Batches(images, labels, 32, seed=0)
    steps = 2

    def work(make):
        vision = partial(
            networks.VisionTransformer, 32, 4, width=128, depth=4, hidden=512
        )
        model = training.initialised(vision, 0)

        def run():
            optimiser = make(model.parameters())
            return training.Trainer(model, optimiser, batches, steps, cpu=True).run()

        return model, run

    model, ours = work(make)
    _, reference = work(
        lambda parameters: torch.optim.SGD(parameters, 1e-3, foreach=True)
    )
    gate(f"{name}: first loss", ours().loss[0], reference().loss[0], 1e-6)
    times = _spent_in_turns(ours, reference, steps, enough=40)
    count = sum(p.numel() for p in model.parameters()) / 1e6
    note = f"processor time, ViT of {count:.2f} million parameters, batch 32; over SGD in the loop"
    return times.entry(name, 1.03, note, "at most")


class_means = partial(tokens.class_mean_tokens, 0, n=20, T=10)
many = partial(tokens.unit_tokens, range(100), n=6, T=8, d=10)
two_tokens = partial(tokens.two_token_gaussian, 0, n=20, T=2, d=1000)
one = partial(tokens.unit_tokens, 0)
# Rows that one function makes: the function, then its arguments after the row's name.
ROWS = {
    "dimension_memory": (_memory, "dimension", 1500),
    "svm_memory": (_memory, "svm", 2000),
    "minibatch_memory": (_memory, "minibatch", 2000),
    "ngd_single": (_training, 100, partial(class_means, d=300), 0.05, 10_000, 600),
    "ngd_runs": (_training, 500, many, 0.1, 2000, 1000),
    "ngd_joint": (_training, 300, two_tokens, 0.1, 10_000, 100, "joint"),
    "products_single": (_over_products, 2, partial(class_means, d=300), 0.05, 10_000),
    "products_runs": (_over_products, 4, many, 0.1, 2000),
    "products_joint": (_over_products, 6, two_tokens, 0.1, 10_000, "joint"),
    "jax_single": (_jax, 2, partial(class_means, d=300), 0.05, 10_000),
    "jax_runs": (_jax, 1, many, 0.1, 2000),
    "scale_1800": (_at_scale, 1, partial(one, n=200, T=10, d=64), 2000),
    "scale_5800": (_at_scale, 1, partial(one, n=200, T=30, d=64), 1000),
    "scale_19000": (_at_scale, 1, partial(one, n=1000, T=20, d=64), 400),
    "entrywise_runs": (_along, 100, ENTRYWISE),
    "spectral_runs": (_along, 20, SPECTRAL),
    "svm_peers_small": (_svm_peers, 0.67, partial(one, n=6, T=8, d=10)),
    "svm_peers_medium": (_svm_peers, 2, partial(one, n=20, T=20, d=30)),
    "svm_peers_large": (_svm_peers, 2, partial(one, n=50, T=20, d=40)),
    "svm_scale_5800": (_svm_at_scale, 2, 200, 30, 16),
    "svm_scale_19000": (_svm_at_scale, 2, 1000, 20, 16),
    "svm_per_constraint": (_token_svm, 200, partial(one, n=20, T=20, d=30)),
    "svm_vectorised": (
        _token_svm,
        60,
        partial(one, n=50, T=20, d=40),
        plain.svm_vectorised,
    ),
    "svm_lp_low": (
        _token_svm,
        10,
        partial(one, n=6, T=8, d=10),
        plain.svm_per_constraint,
        1.75,
    ),
    "svm_lp_high": (
        _token_svm,
        10,
        partial(one, n=6, T=8, d=10),
        plain.svm_per_constraint,
        3.0,
    ),
    "normalized_step": (_optimizer_step, lambda p: NormalizedSGD(p, 0.1, 0.01)),
    "polyak_step": (_optimizer_step, lambda p: StochasticPolyak(p, 0.01)),
    "normalized_loop": (_loop_step, lambda p: NormalizedSGD(p, 1e-3)),
    "polyak_loop": (_loop_step, lambda p: StochasticPolyak(p, 1e-3)),
}
ALONE = (mirror_runs, dimension, long_horizon, minibatch_gradient)
ENTRIES = {name: partial(of, name, *given) for name, (of, *given) in ROWS.items()}
ENTRIES |= {entry.__name__: entry for entry in ALONE}


def measured(name: str) -> Entry:
    """Measure the row of the entry `name`."""
    return ENTRIES[name]()
