"""The references: what a good engineer writes with standard tools and without our
ideas.

Training differentiates the loss with torch autograd in the d x d unknowns of W, one run
at a time. W_mm comes from cvxpy in the d^2 unknowns of the primal. Everything is in
float64.
"""

import cvxpy as cp
import numpy as np
import torch

from lib.attention.token_sets import TokenSet


class Model:
    """One run of paper A's model, f_i = y_i u^T X_i^T softmax(X_i W z_i), and its loss
    of f.
    """

    def __init__(self, tokens: TokenSet, loss=lambda f: torch.exp(-f)):
        arrays = tokens.X, tokens.y, tokens.z, tokens.u
        self.X, self.y, self.z, self.u = (
            torch.from_numpy(array[0]) for array in arrays
        )
        self.of_answers = loss
        # (n, T), constant while the head is fixed
        self.scores = self.y[:, None] * (self.X @ self.u)
        self.best_loss = loss(self.scores.amax(1)).mean().item()

    def loss(self, W, u=None):
        if u is None:
            scores = self.scores
        else:
            scores = self.y[:, None] * (self.X @ u)
        logits = torch.bmm(self.X, (self.z @ W.T)[:, :, None])[:, :, 0]  # (n, T)
        weights = torch.log_softmax(logits, -1).exp()
        return self.of_answers((weights * scores).sum(-1)).mean()


def train(
    model: Model, step, steps: int, record, start=None, joint=False
) -> list[np.ndarray]:
    """Train W, and u if `joint`; return them at the iterations `record`.

    The result is a list of W (k, d, d_z) and, if `joint`, u (k, d), in the order of the
    iterations. `step` changes one of them in place, given its gradient. W_0 is `start`
    or zero, and u_0 is zero.
    """
    if start is None:
        W = np.zeros((model.X.shape[-1], model.z.shape[-1]))
    else:
        W = start.copy()
    begun = (W, np.zeros(model.u.shape)) if joint else (W,)
    parameters = [torch.from_numpy(array).requires_grad_() for array in begun]
    record = set(record)
    history = []
    for t in range(steps + 1):
        gradients = torch.autograd.grad(model.loss(*parameters), parameters)
        with torch.no_grad():
            if t in record:
                history.append([parameter.numpy().copy() for parameter in parameters])
            for parameter, gradient in zip(parameters, gradients, strict=True):
                step(parameter, gradient)
    return list(map(np.array, zip(*history, strict=True)))


def numpy_ngd(tokens: TokenSet, step_size: float, steps: int):
    """Build NGD on W of the first run, with the gradient written out in numpy.

    The returned function gives ||W|| (1,). The loss is exponential.
    """
    X = tokens.X[0]
    z = tokens.z[0]
    scores = tokens.y[0][:, None] * (X @ tokens.u[0])  # (n, T)

    def train():
        W = np.zeros((X.shape[-1], z.shape[-1]))
        for _ in range(steps):
            logits = (X @ (z @ W.T)[..., None])[..., 0]  # (n, T)
            weights = np.exp(logits - logits.max(-1, keepdims=True))
            weights /= weights.sum(-1, keepdims=True)
            f = (weights * scores).sum(-1, keepdims=True)
            pull = np.exp(-f) * weights * (scores - f)
            G = (pull[:, None] @ X)[:, 0].T @ z
            W += step_size * G / np.linalg.norm(G)
        return np.array([np.linalg.norm(W)])

    return train


def normalised(step_size: float):
    """Return NGD's step (paper A, Eq. 4; for u Eq. 13)."""

    def step(parameter, gradient):
        if (
            norm := torch.linalg.norm(gradient).item()
        ) > 0:  # at u = 0 the loss does not depend on W
            parameter.sub_(gradient, alpha=step_size / norm)

    return step


def mirrored(p: float, step_size: float):
    """Return the step of normalised lp-AttGD (paper C)."""
    q = p / (p - 1)

    def step(W, gradient):
        gradient = gradient / gradient.abs().pow(q).sum() ** (1 / q)
        moved = W.sign() * W.abs().pow(p - 1) - step_size * gradient
        W.copy_(moved.sign() * moved.abs().pow(1 / (p - 1)))

    return step


def polar(G: torch.Tensor) -> torch.Tensor:
    """Return U V^T of the singular value decomposition.

    Singular values that are rounding are left out.
    """
    U, S, V = torch.linalg.svd(G, full_matrices=False)
    return (U * (S > 1e-12 * S[0])) @ V


class AdamDirection:
    """Adam's m^ / (sqrt(v^) + 1e-8), with its state."""

    def __init__(self):
        self.t = 0
        self.m = 0.0
        self.v = 0.0

    def __call__(self, G):
        self.t += 1
        self.m = 0.9 * self.m + 0.1 * G
        self.v = 0.999 * self.v + 0.001 * G * G
        below = (self.v / (1 - 0.999**self.t)).sqrt() + 1e-8
        return self.m / (1 - 0.9**self.t) / below


def regression_gradients(X, Y, A, B) -> tuple[np.ndarray, np.ndarray]:
    """Return grad_A and grad_B of paper B's in-sample loss (Eq. 1).

    Queries and keys are both X.
    """
    A, B = (matrix.clone().requires_grad_() for matrix in (A, B))
    prediction = torch.softmax(X @ B @ X.T, -1) @ X @ A.T
    loss = ((Y - prediction) ** 2).sum() / (2 * len(X))
    return tuple(gradient.numpy() for gradient in torch.autograd.grad(loss, (A, B)))


def bert_base_shapes() -> list[tuple[int, ...]]:
    """Return the shapes of the 199 parameters of BERT-base, 109.5 million numbers.

    They belong to embeddings, 12 layers and the pooler.
    """
    norm = [(768,), (768,)]
    layer = (
        4 * [(768, 768), (768,)]
        + norm
        + [(3072, 768), (3072,), (768, 3072), (768,)]
        + norm
    )
    return [
        (30522, 768),
        (512, 768),
        (2, 768),
        *norm,
        *(12 * layer),
        (768, 768),
        (768,),
    ]


def svm_per_constraint(tokens: TokenSet, norm: float = 2) -> np.ndarray:
    """Solve for W_mm (d, d_z) from the primal, with one constraint per pair of
    tokens.
    """
    X = tokens.X[0]
    z = tokens.z[0]
    opt = tokens.opt[0]
    _, n, T, d = tokens.shape
    W = cp.Variable((d, z.shape[-1]))
    pairs = [(i, t) for i in range(n) for t in range(T) if t != opt[i]]
    constraints = [(X[i, opt[i]] - X[i, t]) @ W @ z[i] >= 1 for i, t in pairs]
    if norm == 2:
        size = cp.sum_squares(W)
    else:
        size = cp.pnorm(cp.vec(W, order="C"), norm)
    return _solved(W, size, constraints)


def svm_vectorised(tokens: TokenSet) -> np.ndarray:
    """Solve for W_mm (d, d_z) from the primal, with all constraints as one matrix on
    vec(W).
    """
    X = tokens.X[0]
    z = tokens.z[0]
    opt = tokens.opt[0]
    _, n, T, d = tokens.shape
    others = np.arange(T) != opt[:, None]  # (n, T)
    delta = (X[np.arange(n), opt][:, None] - X)[others].reshape(n, T - 1, d)
    A = np.einsum("itd,ie->itde", delta, z).reshape(n * (T - 1), -1)  # (n (T-1), d d_z)
    w = cp.Variable(A.shape[1])
    return _solved(w, cp.sum_squares(w), [A @ w >= 1]).reshape(d, -1)


def _solved(variable, objective, constraints):
    problem = cp.Problem(cp.Minimize(objective), constraints)
    problem.solve(solver=cp.CLARABEL)
    if problem.status != cp.OPTIMAL:
        raise RuntimeError(f"the cvxpy reference ended as {problem.status}")
    return variable.value
