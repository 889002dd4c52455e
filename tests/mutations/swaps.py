"""Plausible wrong formulas, each beside the test file, or test, that should notice it.

A swap replaces `old`, found exactly once in `file`, by `new`. Where both mean the same, or differ
by rounding alone, `equivalent` says why; such a swap is not run.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Swap:
    """One wrong formula: `old` -> `new` in `file`, which the test (file) `killer` should turn red."""

    file: str
    killer: str
    old: str
    new: str
    equivalent: str = ""


def _of(file, killer, *pairs):
    name, colons, test = killer.partition("::")
    path = name if colons else f"{killer}.py"
    home = "" if file.startswith("papers/") else "lib/"
    return [Swap(f"{home}{file}.py", f"tests/{path}{colons}{test}", *pair) for pair in pairs]


ATTENTION = [
    *_of(
        "attention/model",
        "attention/test_attention",
        ("D = scores - selected_score", "D = selected_score - scores"),
        ("log_small = second - log_Z", "log_small = second + log_Z"),
        ("f = selected_score[..., 0] + e\n", "f = selected_score[..., 0] - e\n"),
        ("w * (D - e[..., None]))", "w * (D + e[..., None]))"),
        ("-np.exp(b - log_Z[..., None]) * mean_D", "np.exp(b - log_Z[..., None]) * mean_D"),
        ("_factor(v, log_slope + log_small)", "_factor(v, log_slope)"),
        ("_factor(np.exp(log_weights), log_slope)", "_factor(log_weights, log_slope)"),
        ("lag = best - selected_score", "lag = selected_score - best"),
        ("log_small + np.log(-mean_D)", "np.log(-mean_D)"),
        ("largest[..., None]) / n)", "largest[..., None]) / (n + 1))"),
        ("- np.log(log_values.shape[-1])", "+ np.log(log_values.shape[-1])"),
        ("tokens.z @ np.swapaxes(W, 1, 2)", "tokens.z @ W"),
        ("return tokens.y[..., None] * np.einsum", "return -tokens.y[..., None] * np.einsum"),
        ("grad_W = -np.exp(at.log_scale)", "grad_W = np.exp(at.log_scale)"),
        ("-np.exp(at.log_push_scale)[:, None] * pushed", "-np.exp(at.log_scale)[:, None] * pushed"),
        ("lead = opt - np.einsum", "lead = opt + np.einsum"),
    ),
    *_of(
        "attention/losses",
        "attention/test_attention",
        (
            'return -f if loss == "exponential" else -np.logaddexp(0.0, f)',
            'return -f if loss == "exponential" else -np.logaddexp(0.0, -f)',
        ),
        (
            "return np.where(f > 37, -f, np.log(np.logaddexp(0.0, -np.minimum(f, 37.0))))",
            "return np.where(f > 37, f, np.log(np.logaddexp(0.0, -np.minimum(f, 37.0))))",
        ),
        (
            "log_gap = log_derivative(best, loss) + log_expm1",
            "log_gap = log_derivative(best, loss) - log_expm1",
        ),
        ("np.log(np.log1p(np.exp(log_gap)))", "np.log(np.expm1(np.exp(log_gap)))"),
        ("return -2 * np.log1p(np.maximum(f, 0.0))", "return -np.log1p(np.maximum(f, 0.0))"),
        ("np.logaddexp(0.0, np.exp(log_epsilon) - best)", "np.logaddexp(0.0, -best)"),
        ("epsilon - above**2 / (1 + above)", "epsilon - above / (1 + above)"),
        ("log_epsilon - np.log1p(np.maximum(after, 0.0))", "log_epsilon - np.log1p(above)"),
    ),
    *_of(
        "attention/model",
        "attention/test_tokens",
        ("relative = np.exp(a - a.max(-1, keepdims=True))", "relative = np.exp(a)"),
    ),
    *_of(
        "attention/coordinates",
        "attention/test_attention",
        ("rank + (rank >= selected", "rank + (rank > selected"),
        ("return chosen - np.take", "return np.take"),
        ("@ turned[:, first : first + count]", "@ turned[:, :count]"),
        ("return inside, np.sqrt(np.einsum", "return inside, (np.einsum"),
        ("outside = W - self.expand(inside)", "outside = W"),
    ),
    *_of(
        "attention/coordinates",
        "dynamics/test_exactness",
        (
            "order = np.concatenate([tokens.opt[..., None], rest], -1)",
            "order = np.concatenate([rest, tokens.opt[..., None]], -1)",
        ),
        (
            "return tokens.y[..., None, None] * np.take_along_axis(tokens.X, order",
            "return np.take_along_axis(tokens.X, order",
        ),
        ("np.repeat(np.repeat(queries, S, 1), S, 2)", "np.tile(queries, (1, S, S))"),
    ),
    *_of(
        "attention/coordinates",
        "papers/test_paper_c_inequalities",
        ("(unit**p).sum(-1) ** (1 / p)", "(unit**p).sum(-1) ** p"),
    ),
    *_of(
        "attention/token_sets",
        "attention/test_tokens",
        ("return scores.argmax(-1)", "return scores.argmin(-1)"),
    ),
    *_of(
        "attention/tokens",
        "attention/test_tokens",
        (
            "head = (plus - minus) / np.linalg.norm(plus - minus)",
            "head = plus / np.linalg.norm(plus)",
        ),
        ("head = (plus - minus) / np.linalg.norm(plus - minus)", "head = plus - minus"),
        ("x -= (x @ directions) @ directions.T", "x -= 0 * (x @ directions) @ directions.T"),
        ("minus = -plus if antipodal", "minus = plus if antipodal"),
        (
            "labels.integers(1, T, n)\n        X[np.arange(n), opt] = ",
            "labels.integers(0, T, n)\n        X[np.arange(n), opt] = ",
        ),
        ("np.where(y[:, None] > 0, plus, minus)", "np.where(y[:, None] < 0, plus, minus)"),
        ("scores[np.arange(n), opt] = y\n", "scores[np.arange(n), opt] = 1\n"),
        ("opt_tokens = signal * noise *", "opt_tokens = signal *"),
        (
            "np.repeat(additional[:, None], T - 1, 1), opt_tokens[:, None]",
            "np.repeat(opt_tokens[:, None], T - 1, 1), additional[:, None]",
        ),
        ("(y[:, None] * (X @ head)).argmax(1)", "(y[:, None] * (X @ head)).argmin(1)"),
        (
            "return a / np.linalg.norm(a, axis=-1, keepdims=True)",
            "return a / np.linalg.norm(a, axis=0, keepdims=True)",
        ),
        ("X[np.arange(n), opt] *= signal", "X[np.arange(n), opt] += signal"),
    ),
]

COMPILED = [
    *_of(
        "compiled/softmax",
        "compiled/test_primitives",
        ("f = level + small * mean_D", "f = level - small * mean_D"),
        (
            "lane[LOG_SLOPE, i] = -exponentials.log1p_exp(lane[ANSWER, i])",
            "lane[LOG_SLOPE, i] = exponentials.log1p_exp(-lane[ANSWER, i])",
        ),
        ("mean_D, near - lag)", "mean_D, near + lag)"),
        ("== level, 1.0, small)", "== level, small, 1.0)"),
        ("over_Z = 1.0 / (at_level + small * rest)", "over_Z = 1.0 / (at_level + rest)"),
        ("math.log(best - f[i])", "math.log(f[i] - level[i])"),
        ("return log_gap - math.log(n)", "return log_gap"),
        (
            "math.log(exponentials.log1p_exp(-f)) if logistic",
            "math.log(exponentials.log1p_exp(f)) if logistic",
        ),
        ("_pull(scores, w, lane, first, 1.0 / n, c)", "_pull(scores, w, lane, first, 1.0, c)"),
    ),
    *_of(
        "compiled/exponentials",
        "compiled/test_primitives",
        ("p = p * r + 1 / 5040.0", "p = p * r + 1 / 5000.0"),
        ("p = p * r + 0.5", "p = p * r + 0.25"),
        ("p = p * s2 + 1 / 7.0", "p = p * s2 + 1 / 8.0"),
        ("if size >= 1e-300 else -math.inf", "if size >= 1e-10 else -math.inf"),
        ("inside = x >= -708.0", "inside = x >= -70.0"),
    ),
    *_of(
        "compiled/gram",
        "compiled/test_primitives",
        ("s5 += K[s, i + 5, j] * c[j]", "s5 += K[s, i + 4, j] * c[j]"),
        (
            "out[i + 2] = s_d + d[i] * c_a + d[i + 1] * c_b",
            "out[i + 2] = s_d + d[i] * c_a - d[i + 1] * c_b",
        ),
        ("split.transpose(0, 2, 1, 4, 3)", "split.transpose(0, 1, 2, 3, 4)"),
    ),
    *_of("compiled/status", "dynamics/test_dynamics", ("LONGEST = 600.0", "LONGEST = 60.0")),
]

DYNAMICS = [
    *_of(
        "dynamics/rules",
        "dynamics/test_rules",
        ("log_eta = log_size - shrink - log_norm", "log_eta = log_size - shrink - 2.0 * log_norm"),
        ("log_eta = log_gap - LOG_2 - 2.0 * log_norm", "log_eta = log_gap - 2.0 * log_norm"),
        ("log_eta = log_gap - LOG_2 - 2.0 * log_norm", "log_eta = log_gap - LOG_2 - log_norm"),
        ("shrink = decay * math.log(t + 1.0)", "shrink = decay * math.log(t + 2.0)"),
        ("return np.minimum(log_eta, log_cap)", "return np.maximum(log_eta, log_cap)"),
        ("LOG_2 = math.log(2.0)", "LOG_2 = math.log(4.0)"),
    ),
    *_of(
        "dynamics/kernel",
        "dynamics/test_exactness",
        (
            "log_both = 0.5 * exponentials.add_logs(2.0 * log_norm, 2.0 * log_norm_u)",
            "log_both = exponentials.add_logs(log_norm, log_norm_u)",
        ),
        ("else 0.5 * math.log(square)", "else math.log(square)"),
        (
            "eta_u = math.exp(log_eta_u + scales[1, r])",
            "eta_u = math.exp(log_eta_u + scales[0, r])",
        ),
    ),
    *_of(
        "dynamics/reduced",
        "dynamics/test_dynamics",
        ("move, move_k = rule.momentum * move + eta * c", "move, move_k = eta * c + 0 * move"),
        (
            "length = np.where(log_norm > -np.inf, log_eta + log_norm, -np.inf)",
            "length = np.where(log_norm > -np.inf, log_eta - log_norm, -np.inf)",
        ),
    ),
    *_of(
        "dynamics/history",
        "dynamics/test_dynamics",
        ("log_miss = -np.logaddexp(0.0, -log_odds)", "log_miss = -np.logaddexp(0.0, log_odds)"),
        ("norm[:, part] = np.hypot(size, outside)", "norm[:, part] = size"),
        (
            "error[name][:, part] = np.hypot(np.hypot(apart, outside / scale), rest)",
            "error[name][:, part] = np.hypot(apart, rest)",
        ),
        ("gaps = known[..., :1] - known[..., 1:]", "gaps = known[..., 1:] - known[..., :1]"),
        ("return 1.0 - np.exp(self.log_miss).mean(-1)", "return np.exp(self.log_miss).mean(-1)"),
        ("return (c * toward).sum(-1) / length", "return -(c * toward).sum(-1) / length"),
        ("coefficients = b[:, part]", "coefficients = -b[:, part]"),
    ),
    *_of(
        "dynamics/gradient_descent",
        "dynamics/test_dynamics",
        ("rest = d * d_z - r * q", "rest = d * d_z"),
        ("std * np.sqrt(squares)", "std**2 * np.sqrt(squares)"),
    ),
    *_of("seeds", "dynamics/test_dynamics", ("[std * stream(", "[std**2 * stream(")),
    *_of(
        "attention/coordinates",
        "dynamics/test_dynamics",
        ("distance > DEPENDENT * length(column)", "distance > 0"),
    ),
    *_of(
        "dynamics/recording",
        "dynamics/test_dynamics",
        ("np.geomspace(1, max(steps, 1), count)", "np.linspace(1, max(steps, 1), count)"),
        ("or times[-1] > steps", "or times[-1] > steps + 1"),
    ),
]

MIRROR = [
    *_of(
        "mirror/geometry",
        "mirror/test_mirror",
        ("** (check_exponent(p) - 1)", "** check_exponent(p)"),
        ("+ (p - 1) / p * np.abs(V) ** p", "+ 1 / p * np.abs(V) ** p"),
        ("return check_exponent(p) / (p - 1)", "return (p - 1) / check_exponent(p)"),
        ("return 1 - (unit * (V / size", "return 1 + (unit * (V / size"),
        (
            "unit = to_mirror(W / norm(W, p)[..., None], p)",
            "unit = to_mirror(W / norm(W, 2)[..., None], p)",
        ),
    ),
    *_of(
        "mirror/descent",
        "mirror/test_mirror",
        ("return logits.argmax(-1)", "return logits.argmin(-1)"),
        (
            "flat, target.reshape(len(flat), 1, -1), p or self.rule.p",
            "flat, target.reshape(len(flat), 1, -1), self.rule.p",
        ),
    ),
    *_of(
        "mirror/kernel",
        "mirror/test_mirror",
        ("exponent = p / (p - 1.0), 1.0 / (p - 1.0)", "exponent = p / (p - 1.0), 1.0 / p"),
        ("q, exponent = p / (p - 1.0)", "q, exponent = p"),
        ("U[j] += step * direction[j]", "U[j] -= step * direction[j]"),
        ("math.log(largest) + math.log(total) / q", "math.log(largest) + math.log(total)"),
        ("W[j] = math.copysign(work[1, j], U[j])", "W[j] = work[1, j]"),
        (
            "rise < 0 and loss > last + NEGLIGIBLE_RISE",
            "rise < 0 and loss < last + NEGLIGIBLE_RISE",
        ),
        ("return DIVERGED, t + 1, rise", "return DIVERGED, t, rise"),
        ("NEGLIGIBLE_RISE = 1e-12", "NEGLIGIBLE_RISE = 1.0"),
    ),
]

SVM = [
    *_of(
        "svm/max_margin",
        "svm/test_hard_problems",
        (
            "self.margins.reshape(len(self.margins), -1).min(1)",
            "self.margins.reshape(len(self.margins), -1).max(1)",
        ),
    ),
    *_of(
        "svm/frobenius",
        "svm/test_hard_problems",
        ("DEPENDENT = 1e-10", "DEPENDENT = 1e-2"),
        ("if residual < DEPENDENT:", "if residual > DEPENDENT:"),
        ("weights = x * self.stretch", "weights = x / self.stretch**2"),
        (
            "raise constraints.infeasible(x / length, residual)",
            "raise constraints.infeasible(x, residual)",
        ),
        ("zero = length == 0", "zero = length > 0"),
        ("tried[1][support] = weights / weights.sum()", "tried[1][support] = weights"),
    ),
    *_of(
        "svm/frobenius",
        "svm/test_svm",
        (
            "wrong = np.where(support, beta < 0, slack < -tolerance)",
            "wrong = np.where(support, beta < 0, slack < 1e-2)",
            "exchanges that never end go to non-negative least squares, with the same certificate",
        ),
    ),
    *_of(
        "svm/frobenius",
        "svm/test_svm",
        (
            "is_closed = abs((stretch * beta).sum() - value) <= ACCURACY * value",
            "is_closed = True",
            "the pivoting's own conditions imply the gap",
        ),
    ),
    *_of(
        "svm/frobenius",
        "svm/test_hard_problems",
        ("solution[1] / (length * shortest)", "solution[1] / length"),
        ("beta = solution[0] / shortest,", "beta = solution[0] / length.max(),"),
        ("apart <= ACCURACY *", "apart >= ACCURACY *"),
    ),
    *_of(
        "svm/frobenius",
        "svm/test_hard_problems",
        ("asked[on] - rows[on] @ w", "asked[on] + rows[on] @ w"),
        ("np.linalg.lstsq(rows[on].T, w, rcond", "np.linalg.lstsq(rows[on].T, 2 * w, rcond"),
    ),
    *_of(
        "svm/scaling",
        "svm/test_hard_problems",
        ("MORE = 1e-11", "MORE = 1e-6"),
        ("MORE = 1e-11", "MORE = 1e-18"),
        ("BAD = 1e4", "BAD = 1e12"),
        (
            "math.ldexp(1.0, min(exponent[run] - rows[m], 0))",
            "math.ldexp(1.0, min(rows[m] - exponent[run], 0))",
        ),
        ("power = np.log2(size) - exponent", "power = np.log2(size) + exponent"),
        ("LARGEST_EXPONENT = 480", "LARGEST_EXPONENT = 4800"),
    ),
    *_of(
        "svm/max_margin",
        "svm/test_svm",
        ("delta = tokens.y[..., None, None] * chosen", "delta = chosen"),
        ("w = w / lowest", "w = w"),
        ("beta = beta * size / pulled", "beta = beta"),
        ("support = beta / beta.max() > margins - 1", "support = beta > -1"),
        ('"objective": np.sqrt(square)', '"objective": square'),
        ("np.inf: 1.0, 1.0: np.inf}", "np.inf: 1.0, 1.0: 1.0}"),
        ("if not gap <= ACCURACY_OTHER_NORMS", "if gap <= -ACCURACY_OTHER_NORMS"),
        ("norm / (norm - 1)", "norm / (norm + 1)"),
    ),
    *_of(
        "svm/max_margin",
        "svm/test_svm",
        (
            'solved["margins"] = solved["margins"] / units.stretch',
            'solved["margins"] = solved["margins"]',
        ),
    ),
    *_of(
        "svm/max_margin",
        "svm/test_hard_problems",
        ('np.ldexp(solved["objective"], exponent)', 'np.ldexp(solved["objective"], -exponent)'),
        ("2 * exponent[:, None]", "exponent[:, None]"),
    ),
    *_of(
        "svm/norms",
        "svm/test_svm",
        ('"spectral": cp.normNuc', '"spectral": cp.sigma_max'),
        ("1: cp.norm_inf", "1: cp.norm1"),
        (
            "return np.copysign(unit, (A @ w).sum()) * w",
            "return -np.copysign(unit, (A @ w).sum()) * w",
        ),
    ),
    *_of(
        "svm/lp",
        "svm/test_svm",
        ("GOAL = 1e-13", "GOAL = 1e-3"),
        ("return size ** (2 - p) / (p - 1)", "return size ** (2 - p) * (p - 1)"),
        ("s = _power(w, p - 1)", "s = _power(w, p)"),
        ("dual = asked @ new / norm(pulled, q)", "dual = asked @ new / norm(pulled, p)"),
    ),
]

REGRESSION = [
    *_of(
        "regression/problem",
        "regression/test_problem",
        ("return self.k * self.noise**2 / 2", "return self.d * self.noise**2 / 2"),
        ("return 0.5 / math.sqrt(self.singular_values[0])", "return 0.5 / self.singular_values[0]"),
        ("return (vectors * np.sqrt(values)) @ vectors.T", "return (vectors * values) @ vectors.T"),
        ("Sigma = (1 - floor) * (S + S.T) / 2", "Sigma = floor * (S + S.T) / 2"),
        ("self.noise * rng.standard_normal", "self.noise**2 * rng.standard_normal"),
    ),
    *_of(
        "regression/problem",
        "regression/test_problem",
        ("return (E * E).sum((-1, -2)) / 2", "return (E * E).sum((-1, -2))"),
        ("return E @ root @ B @ Sigma, root", "return E @ root @ B, root"),
        (
            "return ((Sigma @ G) * (Sigma @ G).mT).sum((-1, -2)) / 8",
            "return ((Sigma @ G) * (Sigma @ G)).sum((-1, -2)) / 8",
        ),
        ("-Sigma @ B @ SGS / 2", "Sigma @ B @ SGS / 2"),
    ),
    *_of(
        "regression/empirical",
        "regression/test_problem",
        ("- c * (v * c).sum(-1, keepdim=True)", "- v * (v * c).sum(-1, keepdim=True)"),
        ("E -= E.amax(-1, keepdim=True)", "E -= 0"),
        ("error = c @ A.mT - labels", "error = c @ A.mT + labels"),
    ),
    *_of(
        "regression/empirical",
        "regression/test_problem",
        ("logits[lane] -= logits[lane].max()", "logits[lane] -= 0.0"),
        ("SAFE = 300.0", "SAFE = 3000.0"),
        ("w[lane, d] = -radius", "w[lane, d] = radius"),
        ("counts = 1.0 if j + lane < last else 0.0", "counts = 1.0"),
        ("v[lane, d] -= t * c[lane, q]", "v[lane, d] += t * c[lane, q]"),
        ("t = x[p] / total[lane]", "t = x[p]"),
    ),
    *_of(
        "regression/descent",
        "regression/test_descent",
        ("self.weight * reg_A\n", "0 * reg_A\n"),
        ("self.step * self.left @ g_B @ self.right", "self.step * g_B @ self.left @ self.right"),
        (
            'eye if rule.preconditioner == "none" else inverse',
            'inverse if rule.preconditioner == "none" else eye',
        ),
        (
            "diverged[(gone.cpu()) & (diverged < 0)] = t + 1",
            "diverged[(gone.cpu()) & (diverged < 0)] = t",
        ),
    ),
    *_of(
        "regression/descent",
        "regression/test_descent",
        ("regularised: bool = True", "regularised: bool = False"),
    ),
    *_of(
        "regression/descent",
        "regression/test_descent",
        ("batch, replace=False", "batch, replace=True"),
        ("(u * u).sum(1, keepdim=True) / 2", "(u * u).sum(1, keepdim=True)"),
        ("change += delta @ root @ A.T @ A @ root", "change += 0 * delta @ root @ A.T @ A @ root"),
    ),
    *_of(
        "regression/manifold",
        "regression/test_descent",
        ("slope = (above - below) / (2 * reach)", "slope = (above - below) / reach"),
    ),
    *_of(
        "regression/manifold",
        "regression/test_problem",
        ("return np.vstack([U, V]) * np.sqrt(D)", "return np.vstack([U, V]) * D"),
        ("R = u @ vt\n        return self.point", "R = vt @ u\n        return self.point"),
        ("4.64 * largest * high", "2.32 * largest * high"),
        ("np.sqrt(4 * smallest * low / 9) / high", "3 * np.sqrt(4 * smallest * low / 9) / high"),
        ("np.sqrt(0.8 * smallest)", "np.sqrt(1.6 * smallest)"),
        ("smallest * low / 2", "smallest * low * 2"),
        ("Sigma = X.T @ X / n\n", "Sigma = X.T @ X / (n - 1)\n"),
        ("W @ self._root if norm", "W @ self.inverse_root if norm"),
    ),
]

TRAINING = [
    *_of(
        "training/rules",
        "training/test_rules",
        ('return group["lr"] / norm', 'return group["lr"] / norm**2'),
        ("loss.clamp(min=0) / norm / (2.0 * norm)", "loss.clamp(min=0) / (2.0 * norm)"),
        ("loss.clamp(min=0) / norm", "loss.abs() / norm"),
        ("/ (2.0 * norm)", "/ (1.0 * norm)"),
        ('max=min(group["max_step"], LARGEST_STEP)', "max=LARGEST_STEP"),
        ("torch.where(norm == 0, torch.zeros_like(size), size)", "size"),
        ("alpha=-float(size))", "alpha=float(size))"),
        ("wide = torch.promote_types(parameter.dtype, torch.float32)", "wide = parameter.dtype"),
        ("parameter.detach().to(wide)], p - 1)", "parameter.detach().to(wide)], p)"),
        ("mirrored(images, 1 / (p - 1))", "mirrored(images, 1 / p)"),
        ("torch._foreach_mul_(powers, torch._foreach_sign(tensors))", "pass"),
        ('if "mirror" not in state or changed', 'if "mirror" not in state'),
    ),
    *_of(
        "training/batches",
        "data/test_data",
        ("2 * BORDER + 1, (2", "2 * BORDER, (2"),
        ("cut.flip(-1), cut)", "cut.flip(-2), cut)"),
        ("rng.random(self.size) < 0.5", "rng.random(self.size) < 0.05"),
    ),
    *_of(
        "training/batches",
        "training/test_loop",
        ('seeds.stream_at(seed, "batches", epoch)', 'seeds.stream_at(seed, "batches", 0)'),
        ("divmod(step, len(self.inputs) // self.size)", "divmod(step, len(self.inputs))"),
        ("values.reshape(n, -1)[k]", "values.reshape(n, -1)[0]"),
    ),
    *_of(
        "training/loop",
        "training/test_loop",
        ("SeedSequence([dropout, step, ", "SeedSequence([dropout, "),
        ('status = f"diverged at step {end + 1}"', 'status = f"diverged at step {end}"'),
        ('if row["at"] <= end]', 'if row["at"] < end]'),
        ("loss=loss[:end]", "loss=loss[: end + 1]"),
    ),
    *_of(
        "training/measures",
        "training/test_loop",
        ("logits.argmax(1) == targets if", "logits.argmin(1) == targets if"),
    ),
    *_of(
        "training/curves",
        "training/test_curves",
        ("reached.argmax() + 1.0 if", "reached.argmax() + 0.0 if"),
        ("reached[: window - 1] = False", "pass"),
        ("np.minimum(np.arange(1, len(total) + 1), window)", "window"),
    ),
    *_of(
        "papers/verdicts",
        "papers/test_verdicts",
        ("stats.t.ppf(tail, n - 1)", "stats.norm.ppf(tail)"),
        ("values.var(ddof=1) / n", "values.var(ddof=1)"),
        (
            "np.where(never, horizon, steps) / np.where(theirs, horizon, reference)",
            "np.where(theirs, horizon, reference) / np.where(never, horizon, steps)",
        ),
        ("(bool(theirs.any()), bool(never.any()))", "(bool(never.any()), bool(theirs.any()))"),
        ("np.log(self.values) if", "np.log10(self.values) if"),
        ("max(largest, min(1.0,", "min(1.0, min(1.0,"),
        ("_word(difference.low > 0,", "_word(difference.high > 0,"),
    ),
    *_of(
        "training/study",
        "training/test_rate_choice",
        ("(scores[rate], -rate)", "(-scores[rate][1], -rate)"),
        ("tried[-1]: tried[-2]}.get", "}.get"),
        ("trials(rates, study.quarter)", "trials(rates, study.horizon)"),
        ("not waiting or 2 * first <= steps", "not waiting or first <= steps"),
        ("<= ERRORS * math.hypot(e, error)", "<= 0"),
        ("(len(rates) + 1) // 2", "len(rates)"),
    ),
]

NETWORKS = [
    *_of(
        "networks/vision",
        "networks/test_vision",
        ("cells.permute(0, 2, 4, 1, 3, 5)", "cells.permute(0, 4, 2, 1, 3, 5)"),
        ("torch.exp(-self.log_temperature)", "torch.exp(self.log_temperature)"),
        ("0.5 * math.log(self.head_width)", "math.log(self.head_width)"),
        ("mask = ~diagonal[", "mask = diagonal["),
        ("(tokens, readers=1)[:, 0])", "(tokens.flip(1), readers=1)[:, 0])"),
        (
            "nn.Sequential(nn.LayerNorm(width), nn.Linear(width, classes))",
            "nn.Sequential(nn.Identity(), nn.Linear(width, classes))",
        ),
        ("(self.dropout(tokens + self.positions))", "(self.dropout(tokens))"),
        ("else patch // 2", "else patch"),
    ),
    *_of(
        "networks/text",
        "networks/test_text",
        ("mask = present[:, None, None]  #", "mask = ~present[:, None, None]  #"),
        ("/ q.shape[-1] ** 0.5", "/ q.shape[-1]"),
        (
            "return torch.special.entr(weights.float()).sum(-1).exp()",
            "return torch.special.entr(weights.float()).sum(-1)",
        ),
        ("first = self.blocks[-1](tokens[:, :1]", "first = self.blocks[-1](tokens[:, -1:]"),
    ),
    *_of(
        "training/measures",
        "networks/test_text",
        ("(logits > 0) == (targets > 0)", "(logits > 0.5) == (targets > 0)"),
    ),
    *_of(
        "networks/weight_statistics",
        "networks/test_text",
        ("np.count_nonzero(np.abs(W) > threshold)", "np.count_nonzero(W > threshold)"),
        ("size.sum() / np.sqrt((size**2).sum())", "size.sum() / (size**2).sum()"),
        ("(root - size.sum()", "(size.size - size.sum()"),
    ),
]

DATA = [
    *_of(
        "data/texts",
        "data/test_data",
        (
            "return self.take(order[rows:]), self.take(order[:rows])",
            "return self.take(order[:rows]), self.take(order[rows:])",
        ),
        (
            'self.take(seeds.stream(seed, "subset").permutation(len(self))[:rows])',
            "self.take(np.arange(len(self))[:rows])",
        ),
    ),
    *_of(
        "data/images",
        "data/test_data",
        ("* pixels / (pixels - 1)", "* (pixels - 1) / pixels"),
        (
            "levels = torch.arange(256, dtype=torch.float64) / 255",
            "levels = torch.arange(256, dtype=torch.float64) / 256",
        ),
    ),
    *_of(
        "data/places",
        "data/test_data",
        ('self.splits[split == "test"]', 'self.splits[split != "test"]'),
        ("int(v >= self.threshold)", "int(v > self.threshold)"),
        ("    thread.join(PROBE_SECONDS)\n", "    thread.join()\n"),
        ('!= {f"{len(files):05d}"}', "== set()"),
        ('"revision": self.revision, "split"', '"revision": None, "split"'),
    ),
    *_of(
        "files",
        "batch/test_batch.py::test_a_publish_that_fails_leaves_what_was_there_and_the_next_one_succeeds",
        ("                write(path, old)\n", "                pass\n"),
    ),
    *_of(
        "batch/run",
        "batch/test_batch.py::test_a_publish_that_fails_leaves_what_was_there_and_the_next_one_succeeds",
        (
            'except (OSError, ValueError) as error:\n        return f"not',
            'except ValueError as error:\n        return f"not',
        ),
    ),
    *_of(
        "companion/record",
        "companion/test_record",
        ('<= row["tolerance"]', '<= 2 * row["tolerance"]'),
        ("replace(run, changes=moved | run.changes)", "run"),
    ),
    *_of(
        "seeds",
        "attention/test_tokens",
        ("number != value or number < minimum", "number < minimum"),
        ("bool | np.bool_ | str | bytes", "str | bytes"),
    ),
    *_of(
        "provenance",
        "test_provenance",
        ('("-dirty" if changed else "")', '("" if changed else "-dirty")'),
        ('":!notebooks/*.ipynb")', '":!notebooks/*.py")'),
    ),
    *_of(
        "batch/run",
        "batch/test_batch.py::test_a_run_begins_anew",
        ("            shutil.rmtree(job.home, ignore_errors=True)\n", ""),
        ("for path in (job.marker, job.copy)", "for path in (job.copy,)"),
    ),
    *_of(
        "batch/run",
        "batch/test_batch.py::test_embedded_data_never_take_the_place_of_real_ones",
        (
            'any(row["source"] == "demo" for row in data)',
            'all(row["source"] == "demo" for row in data)',
        ),
    ),
]

PAPERS = [
    *_of(
        "papers/a/speed",
        "papers/test_real_data",
        ("np.minimum(loss / (2 * norm**2), run.rate)", "np.minimum(loss / norm**2, run.rate)"),
        ("np.minimum(run.rate / norm, run.cap)", "np.minimum(run.rate / norm**2, run.cap)"),
        ("np.sqrt(1 + run.walked[name][-1]", "np.sqrt(run.walked[name][-1]"),
    ),
    *_of(
        "papers/fits",
        "papers/test_paper_b",
        ("slopes.std(ddof=1) / np.sqrt(len(slopes))", "slopes.std(ddof=1) / len(slopes)"),
        ("reached = excess <= 10 * floor", "reached = excess <= floor"),
    ),
    *_of("papers/fits", "papers/test_paper_a", ("@ x / (x @ x)", "@ x / len(x)")),
    *_of(
        "papers/c/inequalities",
        "papers/test_paper_c_inequalities",
        (
            "_growth(W, later, p), eta * norm(gradient, dual_exponent(p))",
            "_growth(W, later, p), -eta * norm(gradient, dual_exponent(p))",
        ),
        (
            "ends = norm(W, p), sorted((1.0, W.shape[-1] ** (1 / p - 0.5)))",
            "ends = norm(W, p), sorted((1.0, W.shape[-1] ** (0.5 - 1 / p)))",
        ),
        ("(p * 2**p) if p >= 2", "2 * p if p >= 2"),
        ("at_y, at_x = ((p - 1) * end", "at_y, at_x = (p * end"),
        ("(p - 1) / p * (x**p - y**p)", "1 / p * (x**p - y**p)"),
        ("else [(at_x, rise), (rise, at_y)]", "else [(at_y, rise), (rise, at_x)]"),
        ("grown = (p - 1) / p * (norm(later, p) ** p", "grown = 1 / p * (norm(later, p) ** p"),
    ),
    *_of(
        "papers/c/paths",
        "papers/test_predecessor",
        ("- slopes.log_gap[0])\n", ")\n"),
        ("return value, gradient.ravel()", "return value, -gradient.ravel()"),
    ),
    *_of(
        "papers/c/predecessor",
        "papers/test_predecessor",
        (
            "move_K, move_Q = np.swapaxes(down, 1, 2) @ Q, down @ K",
            "move_K, move_Q = np.swapaxes(down, 1, 2) @ Q, down @ Q",
        ),
        ("K += step_size * _unit(move_K)", "K -= step_size * _unit(move_K)"),
    ),
    *_of(
        "papers/joint_loss",
        "papers/test_paper_a",
        ("away, eye = scores - f[..., None]", "away, eye = scores + f[..., None]"),
        ("first[..., None, :] - hessian_f)", "first[..., None, :] + hessian_f)"),
        (
            "weights = p[..., :, None] * (eye - p[..., None, :])",
            "weights = p[..., :, None] * (eye + p[..., None, :])",
        ),
    ),
]

CLAIMS = [
    *_of(
        "companion/claims",
        "companion/test_claims",
        ("bool(measured <= bound)", "bool(measured >= bound)"),
        (
            "measured, holds = float(measured), bool(measured >= bound)",
            "measured, holds = float(measured), bool(measured <= bound)",
        ),
        ("bool(off <= tolerance)", "bool(off <= 2 * tolerance)"),
        ("abs(float(measured) - expected)", "float(measured) - expected"),
    )
]

LAW = [
    *_of(
        "papers/beyond/margin_law",
        "papers/test_margin_law_solutions",
        (
            "log_slopes - np.log(beta)",
            "log_slopes - np.log(beta + 0.01 * beta[0] * np.eye(1, len(beta))[0])",
        ),
        ("log_slopes - np.log(beta)", "np.log(beta) - log_slopes"),
        ("log_slopes - np.log(beta)", "-np.log(beta)"),
        ("mean = beta @ ratio / beta.sum()", "mean = ratio.mean()"),
        ("square = weights @ K_on @ weights", "square = weights @ weights"),
        ('"norm": np.sqrt(square)', '"norm": square'),
        ('"constant": np.sqrt(max(offsets @ inside, 0.0))', '"constant": np.linalg.norm(offsets)'),
        ('"constant": np.sqrt(max(offsets @ inside, 0.0))', '"constant": offsets @ inside'),
        (
            "root[:, None] * K_on * root - np.outer(root, root) / weights.sum()",
            "root[:, None] * K_on * root",
        ),
        ("root[:, None] * K_on * root -", "weights[:, None] * K_on * weights -"),
        ("return 2 * (1 + momentum) * self.norm", "return (1 + momentum) * self.norm"),
        ("return 2 * (1 + momentum) * self.norm", "return 2 * self.norm"),
        ("return 2 * (1 + momentum) * self.norm", "return 2 / (1 - momentum) * self.norm"),
        ("np.minimum(np.minimum(self.slowest, self.excess), 1.0)", "self.slowest"),
        ("(margins[~on] - 1).min()", "margins[~on].min()"),
        ("total = np.hypot(self.constant, outside)", "total = self.constant + outside"),
        ("share >= SMALLEST_DUAL or not known", "share >= 0 or not known"),
        ("if not independent and not behind.size:", "if False:"),
        ("if behind.size:", "if False:"),
        ("require(off <= SAME_SOLUTION", "require(off >= 0"),
        (
            "losses.log_derivative(chosen, loss) + _log_gaps",
            "losses.log_derivative(chosen, loss) - _log_gaps",
        ),
        (
            "losses.log_derivative(chosen, loss) + _log_gaps(scores, selected)",
            "_log_gaps(scores, selected)",
        ),
        (
            "losses.log_derivative(chosen, loss) + _log_gaps(scores, selected)",
            "losses.log_derivative(chosen, loss) + 0 * _log_gaps(scores, selected)",
        ),
        ("np.log(head.duals)[..., None] + log_gaps", "log_gaps"),
        ("np.log(head.duals)[..., None] + log_gaps", "log_gaps - np.log(head.duals)[..., None]"),
        ('require(share >= SMALLEST_DUAL, "whole', 'require(share >= 0, "whole'),
    ),
    *_of(
        "papers/beyond/margins",
        "papers/test_margins",
        ("np.where(margins.min(-1) >= 0, opt, nearest)", "opt + 0 * nearest"),
        ("log_slopes - margins, -np.inf", "log_slopes + margins, -np.inf"),
        (
            "weights / weights.sum((-2, -1), keepdims=True)",
            "weights / weights.sum(-1, keepdims=True)",
        ),
        ("history.weights(late) - history.weights(early)", "history.weights(late)"),
        (
            "np.linalg.norm(W - along[:, None, None] * unit",
            "np.linalg.norm(W - along[:, None, None] * V",
        ),
        ("2 * np.sin(np.arctan2(", "np.sin(np.arctan2("),
        ("margins[run].ravel()[flat], rcond", "margins[run].ravel()[flat] ** 2, rcond"),
        ("np.linalg.norm(W - _span_part(", "np.linalg.norm(_span_part("),
    ),
    *_of(
        "papers/beyond/margin_law_runs",
        "papers/test_margin_law",
        ("level=along[late] / c.solution.norm[0]", "level=along[late]"),
        ("early = W[0] if support.all() else W[1]", "early = W[0]"),
        ("step = W[-1] - W[half]", "step = W[-1]"),
        (
            "1 - bound * smallest / np.linalg.norm(W, axis=(1, 2))",
            "1 - smallest / np.linalg.norm(W, axis=(1, 2))",
        ),
    ),
    *_of(
        "papers/beyond/margins",
        "papers/test_margin_law",
        (
            "short, share = measured.step_length < longest",
            "short, share = measured.step_length < 2 * longest",
        ),
        ("if left > SETTLED:", "if left > 1:"),
        ("require(measured.moved <= allowed", "require(measured.moved <= 1"),
        ("overshot ** measured.iterations[-1]", "overshot"),
    ),
    *_of(
        "papers/beyond/margin_law_runs",
        "papers/test_margin_law",
        ("rule.step_size / (1 - rule.momentum)", "rule.step_size"),
        ("float(c.law.norm[0]) / 2", "float(c.law.norm[0])"),
    ),
    *_of(
        "papers/beyond/margin_law_steps",
        "papers/test_margin_law",
        ("log_gap - LOG_2 - 2 * log_norm", "2 * log_gap - LOG_2 - 2 * log_norm"),
        ("rule = ngd(multiple * longest, momentum=momentum)", "rule = ngd(multiple * longest)"),
        ("np.log(e / np.log(t))", "np.log(e * np.log(t))"),
        ("np.minimum(law.slowest, 1.0)", "0.5 * law.slowest"),
    ),
    *_of(
        "papers/beyond/joint_law",
        "papers/test_margin_law",
        ("for s in (both, start)", "for s in (start, start)"),
    ),
    *_of(
        "papers/beyond/margin_theorem",
        "papers/test_margin_theorem",
        ("far * (h - 1 + h * spread)", "far * (h - 1 + spread)"),
        ("room.high * room.xi / V / -np.expm1", "room.xi / V / -np.expm1"),
        ("exact / (np.hypot(1, V * L * R) + xi)", "exact / (1 + xi)"),
    ),
    *_of(
        "papers/a/phase_diagram",
        "papers/test_two_samples",
        ("(k - K[second, second])", "(k - K[first, first])"),
        ("slope(low, first) / slope(high, second)", "slope(high, first) / slope(low, second)"),
    ),
]

SWAPS = [
    *ATTENTION,
    *COMPILED,
    *DYNAMICS,
    *MIRROR,
    *SVM,
    *REGRESSION,
    *TRAINING,
    *NETWORKS,
    *DATA,
    *PAPERS,
    *CLAIMS,
    *LAW,
]
