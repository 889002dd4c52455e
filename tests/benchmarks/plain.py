"""The references: what a good engineer writes with standard tools and none of the library's ideas.

Training differentiates the loss with torch autograd in the d x d unknowns of W, one run at a time;
W_mm comes from cvxpy in the d^2 unknowns of the primal. All in float64.
"""

import cvxpy as cp
import numpy as np
import torch

from lib.attention.token_sets import TokenSet


class Model:
    """One run of paper A's model, f_i = y_i u^T X_i^T softmax(X_i W z_i), exponential loss."""

    def __init__(self, tokens: TokenSet, run: int = 0):
        arrays = tokens.X, tokens.y, tokens.z, tokens.u
        self.X, self.y, self.z, self.u = (torch.from_numpy(array[run]) for array in arrays)
        # (n, T), constant while the head is fixed
        self.scores = self.y[:, None] * (self.X @ self.u)
        self.best_loss = torch.exp(-self.scores.amax(1)).mean().item()

    def loss(self, W, scores):
        logits = torch.bmm(self.X, (self.z @ W.T)[:, :, None])[:, :, 0]  # (n, T)
        weights = torch.log_softmax(logits, -1).exp()
        return torch.exp(-(weights * scores).sum(-1)).mean()

    def zeros(self):
        """W_0 = 0."""
        shape = self.X.shape[-1], self.z.shape[-1]
        return torch.zeros(shape, dtype=torch.float64, requires_grad=True)


def train(
    model: Model, step_size: float, steps: int, record, target: np.ndarray, joint: bool = False
) -> np.ndarray:
    """NGD on W (paper A, Eq. 4) or on W and u, each by itself (Eq. 13), from zero; target (d, d).

    Records (k, 3): L - L*, ||W||, direction error of W; joint (k, 4): L, ||W||, ||u||, the same.
    """
    W, u = model.zeros(), torch.zeros_like(model.u, requires_grad=True)
    parameters = (W, u) if joint else (W,)
    target, record, history = torch.from_numpy(target / np.linalg.norm(target)), set(record), []
    for t in range(steps + 1):
        loss = model.loss(W, model.y[:, None] * (model.X @ u) if joint else model.scores)
        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            if t in record:
                gap = loss.item() - (0.0 if joint else model.best_loss)
                norms = [torch.linalg.norm(parameter).item() for parameter in parameters]
                error = torch.linalg.norm(W / torch.linalg.norm(W) - target).item()
                history.append((gap, *norms, error))
            for parameter, gradient in zip(parameters, gradients, strict=True):
                norm = torch.linalg.norm(gradient).item()
                if norm > 0:  # at u = 0 the loss does not see W
                    parameter.sub_(gradient, alpha=step_size / norm)
    return np.array(history)


def train_along(model: Model, direction, step_size: float, steps: int, record) -> np.ndarray:
    """W += step_size direction(-gradient) from W_0 = 0; records W, (k, d, d_z)."""
    W, record, history = model.zeros(), set(record), []
    for t in range(steps + 1):
        (gradient,) = torch.autograd.grad(model.loss(W, model.scores), W)
        with torch.no_grad():
            if t in record:
                history.append(W.numpy().copy())
            W.add_(direction(-gradient), alpha=step_size)
    return np.array(history)


def polar(G: torch.Tensor) -> torch.Tensor:
    """U V^T of the singular value decomposition, without singular values that are rounding."""
    U, S, V = torch.linalg.svd(G, full_matrices=False)
    return (U * (S > 1e-12 * S[0])) @ V


class AdamDirection:
    """Adam's m^ / (sqrt(v^) + 1e-8), with its state."""

    def __init__(self):
        self.t, self.m, self.v = 0, 0.0, 0.0

    def __call__(self, G):
        self.t += 1
        self.m = 0.9 * self.m + 0.1 * G
        self.v = 0.999 * self.v + 0.001 * G * G
        below = (self.v / (1 - 0.999**self.t)).sqrt() + 1e-8
        return self.m / (1 - 0.9**self.t) / below


def train_mirror(
    model: Model, p: float, step_size: float, steps: int, record, start, target
) -> np.ndarray:
    """lp-AttGD, normalised (paper C), logistic loss; start and target (d, d).

    Records (k, 3): L, ||W||_{p,p}, directional Bregman divergence.
    """
    W, q = torch.from_numpy(start).clone().requires_grad_(), p / (p - 1)
    V = torch.from_numpy(target)
    V = V / V.abs().pow(p).sum() ** (1 / p)
    record, history = set(record), []
    for t in range(steps + 1):
        logits = torch.bmm(model.X, (model.z @ W.T)[:, :, None])[:, :, 0]  # (n, T)
        answers = (torch.softmax(logits, -1) * model.scores).sum(-1)
        loss = torch.nn.functional.softplus(-answers).mean()
        (gradient,) = torch.autograd.grad(loss, W)
        with torch.no_grad():
            if t in record:
                norm = W.abs().pow(p).sum() ** (1 / p)
                unit = W / norm
                divergence = 1 - (unit.sign() * unit.abs().pow(p - 1) * V).sum()
                history.append((loss.item(), norm.item(), divergence.item()))
            gradient = gradient / gradient.abs().pow(q).sum() ** (1 / q)
            mirrored = W.sign() * W.abs().pow(p - 1) - step_size * gradient
            W.copy_(mirrored.sign() * mirrored.abs().pow(1 / (p - 1)))
    return np.array(history)


def regression_gradients(X, Y, A, B) -> tuple[np.ndarray, np.ndarray]:
    """grad_A and grad_B of paper B's in-sample loss (Eq. 1), queries and keys both X."""
    A, B = (matrix.clone().requires_grad_() for matrix in (A, B))
    prediction = torch.softmax(X @ B @ X.T, -1) @ X @ A.T
    loss = ((Y - prediction) ** 2).sum() / (2 * len(X))
    return tuple(gradient.numpy() for gradient in torch.autograd.grad(loss, (A, B)))


def bert_base_shapes() -> list[tuple[int, ...]]:
    """The 199 parameters of BERT-base, 109.5 million numbers: embeddings, 12 layers, pooler."""
    norm = [(768,), (768,)]
    layer = 4 * [(768, 768), (768,)] + norm + [(3072, 768), (3072,), (768, 3072), (768,)] + norm
    return [(30522, 768), (512, 768), (2, 768), *norm, *(12 * layer), (768, 768), (768,)]


def svm_per_constraint(tokens: TokenSet, norm: float = 2) -> np.ndarray:
    """W_mm (d, d_z) from the primal, one constraint per pair of tokens."""
    X, z, opt = tokens.X[0], tokens.z[0], tokens.opt[0]
    _, n, T, d = tokens.shape
    W = cp.Variable((d, z.shape[-1]))
    pairs = [(i, t) for i in range(n) for t in range(T) if t != opt[i]]
    constraints = [(X[i, opt[i]] - X[i, t]) @ W @ z[i] >= 1 for i, t in pairs]
    size = cp.sum_squares(W) if norm == 2 else cp.pnorm(cp.vec(W, order="C"), norm)
    return _solved(W, size, constraints)


def svm_vectorised(tokens: TokenSet) -> np.ndarray:
    """W_mm (d, d_z) from the primal, all constraints as one matrix on vec(W)."""
    X, z, opt = tokens.X[0], tokens.z[0], tokens.opt[0]
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
