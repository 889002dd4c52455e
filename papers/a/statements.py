"""The numbered statements of paper A (2402.05738), hypotheses included.

Displayed formulas did not survive in the text at hand; c, C and O hide what was lost. "Our reading"
marks what the surrounding prose does not fix. Pages print these texts and word none of their own.
"""

from lib.companion.ledger import Statement

FIXED = r"Assumptions 1 and 2, small $W_0$ of any direction (Lemma 4), head $u_*$ fixed. "
NGD = FIXED + "NGD, Eq. 4, with a small enough step: "
JOINT = r"(DM) with $T = 2$, Condition 1 (complete: Condition 2), Eq. 13. "
DIRECTION = r"$\| W_t/\|W_t\| - W_{mm}/\|W_{mm}\| \| \le \tilde O(t^{-1/2})$"
FAVOURS = (
    NGD + r"for every $\epsilon \in (0, 1)$ there is $R_\epsilon$ with"
    r" $\|W_t\| \ge R_\epsilon \Rightarrow \langle -\nabla L(W_t), W_{mm}/\|W_{mm}\| \rangle"
    r" \ge (1 - \epsilon) \langle -\nabla L(W_t), W_t/\|W_t\| \rangle$"
)
CURVATURE = (
    r"$\|\nabla_u L\| \ge c\,\gamma^* L$; $L(\theta') \le C L(\theta_t)$ and"
    r" $\|\nabla^2 L(\theta')\| \le C (t+1)^{2/3} L(\theta_t)$ for $\theta'$ between $\theta_t$ and"
    r" $\theta_{t+1}$"
)
MARGIN = (
    r"$\min_i y_i u_t^\top x_{i,opt} / \|u_t\|$ is asymptotically a constant factor of $\gamma^*$"
)

STATEMENTS = {
    "Definition 1": Statement(
        "opt token", r"$opt_i = \arg\max_t \gamma_{i,t}$, $\gamma_i = y_i X_i u$, is unique"
    ),
    "Assumption 1": Statement(
        "nearly orthogonal tokens",
        "Our reading: inner products of any two distinct tokens are small against the tokens'"
        " squared norms. The paper's inequalities are blank in the text at hand; the rows measure a"
        " sufficient form of ours, which may ask for more",
    ),
    "Assumption 2": Statement(
        "equal scores", r"$\gamma_{i,t} = \gamma_{i,t'}$ for all $t, t' \ne opt_i$"
    ),
    "Example 1": Statement(
        "data that fit",
        r"Our reading: Gaussian tokens of size $\sigma$, opt tokens scaled by $U$, $U/\sigma$ and"
        r" $d$ large, $u_*$ such that Assumption 2 holds. Class means, whose samples share their"
        " opt token, are not called so here: they break Assumption 1 as we read it",
    ),
    "Theorem 1": Statement("direction of NGD", NGD + DIRECTION),
    "Theorem 2": Statement(
        "joint training: loss", JOINT + r"$L(\theta_t) \le O(\exp(-c\, t^{1/3}))$"
    ),
    "Theorem 3": Statement(
        "joint training: direction of W",
        JOINT + r"$\| W_t/\|W_t\| - W_{mm}/\|W_{mm}\| \| \le O(1/\log t)$",
    ),
    "Theorem 4": Statement("joint training: margin of u", JOINT + MARGIN),
    "Theorem 5": Statement(
        "direction of NGD, burn-in",
        NGD + r"for $t \ge t_0$, which depends on $\eta$, $B$ and $\|W_{mm}\|$, " + DIRECTION,
    ),
    "Theorem 6": Statement(
        "direction of GD",
        FIXED + r"GD with a small enough constant step, any $n$:"
        r" $W_t/\|W_t\| \to W_{mm}/\|W_{mm}\|$ as $t \to \infty$, without a rate",
    ),
    "Theorem 7": Statement(
        "direction of Polyak",
        FIXED + r"Polyak step, Eq. 3 with its 1/2: " + DIRECTION + r", $\|W_t\| = \Theta(t)$",
    ),
    "Theorem 8": Statement("joint training: loss, constant", "Theorem 2 with its constants"),
    "Theorem 9": Statement(
        "joint training: direction of W, complete",
        r"Theorem 3 with its constants; in its proof (Eq. 58) $\|W_t\| \ge c\, t^{1/3}$",
    ),
    "Theorem 10": Statement(
        "joint training: margin of u, complete",
        "Theorem 4 with its factor and its rate, both blank in the text at hand",
    ),
    "Lemma 1": Statement(
        "softmax saturates", NGD + r"$1 - p_{opt} \le T e^{-ct}$, $c \sim \eta/(B^2 \|W_{mm}\|^2)$"
    ),
    "Lemma 2": Statement("gradient favours $W_{mm}$", FAVOURS),
    "Lemma 3": Statement(
        "gradient, step and curvature",
        JOINT + CURVATURE,
        r"The last bound has no row: $\|\nabla^2 L\|/L$ stays bounded here, so none could fail."
        " Page 42 measures what it tends to.",
    ),
    "Lemma 4": Statement(
        "small start",
        r"$W_0$ Gaussian, small: all softmax weights are within a constant factor of $1/T$ and"
        r" $\|W_0\|_F \lesssim \sigma_0 d$, with probability $1 - \delta$",
    ),
    "Lemma 5": Statement(
        "opt weight does not collapse",
        FIXED + r"NGD, GD or Polyak's step: $p_{opt,i}(t) \ge c\, p_{opt,i}(0)$ for all $t$. It"
        r" need not be monotone: it does not fall while it is small (our reading: at most $1/2$)",
    ),
    "Lemma 6": Statement(
        "gradient points to $W_{mm}$",
        r"Assumption 2, every $W$: $\langle -\nabla L(W), W_{mm} \rangle \ge c\,\|\nabla L(W)\|$",
    ),
    "Lemma 7": Statement(
        "norm of W, two bounds",
        NGD + r"$c\,\eta t - \|W_0\| \le \|W_t\| \le \eta t + \|W_0\|$",
        "The upper bound is a triangle inequality, and has no row.",
    ),
    "Lemma 8": Statement(
        "Example 1 fits", "Example 1 satisfies Assumptions 1 and 2 with probability $1 - \\delta$"
    ),
    "Lemma 9": Statement(
        "gradient favours $W_{mm}$, radius", FAVOURS + r", $R_\epsilon = \tilde O(1/\epsilon)$"
    ),
    "Lemma 10": Statement("softmax saturates, constant", "Lemma 1 with its constants"),
    "Lemma 11": Statement(
        "(DM) is nearly orthogonal",
        r"(DM): norms concentrate, $|\langle x, x' \rangle| \lesssim \alpha^2\sigma^2"
        r" \sqrt{d \log(n^2/\delta)}$, with probability $1 - \delta$",
    ),
    "Lemma 12": Statement(
        "joint training: norms", JOINT + r"$\|W_t\|, \|u_t\| \le 3 \eta t^{1/3}$"
    ),
    "Lemma 13": Statement(
        "joint training: gaps, ratio, opt weight",
        JOINT + r"for $t \ge 1$: score gaps grow at least like $t^{1/3}$,"
        r" $\max \ell_i/\ell_j \le C$ (Eq. 16), $p_{opt}$ does not fall and, as $T = 2$, is at"
        r" least $1/2$ (Eq. 14)",
    ),
    "Lemma 14": Statement(
        "opt tokens are separable",
        r"(DM), Condition 2: $y_i x_{i,opt}$ and mixtures with $p_{opt} \ge 1/2$ are linearly"
        " separable",
    ),
    "Lemma 15": Statement(
        "gradient, step and curvature, constants",
        "Lemma 3 with its constants.",
        "They are blank in the text at hand.",
    ),
    "Eq. 12": Statement("norm of W is linear", NGD + r"$\|W_t\| = \Theta(t)$"),
    "Eq. 13": Statement(
        "exponent of the step size",
        r"Joint results also for steps $\eta (t+1)^{-p}$, $p \in [2/3, 1)$ (the range: our"
        r" reading); $p = 2/3$ gives the fastest rate",
    ),
    "Remark 1": Statement(
        "any start direction",
        "Theorems 1, 6 and 7 hold from any direction of the start, a local one is not needed",
    ),
    "Remark 2": Statement(
        "n > 1",
        "Lemma 2 holds for $n > 1$, where the earlier lemma needed $n = 1$.",
        "It compares two proofs; Lemma 2 is checked with four samples.",
    ),
    "Remark 3": Statement(
        "as fast as linear predictors",
        r"$-\log L$ grows like $t^{1-p}$ with steps $(t+1)^{-p}$, as for linear predictors",
    ),
    "Remark 4": Statement(
        "gradient of order L", JOINT + r"$\|\nabla_u L\|$ is of the order of $L$"
    ),
    "Footnote 5": Statement(
        "antipodal opt tokens", "The results extend to antipodal opt tokens (Figure 5)"
    ),
    "Section 3.1": Statement(
        "local directions do not hold",
        "Under Assumptions 1 and 2 training does not end at the local max-margin directions of"
        " other selections",
    ),
    "Section 3.2": Statement(
        "other losses", r"The results for fixed $u$ hold for any decreasing $C^1$ loss"
    ),
    "Section 4.1": Statement(
        "small random start", "The joint results hold from a small random start as well"
    ),
    "Section 4.2": Statement(
        "T > 2", "The joint results extend to $T > 2$ where Assumption 2 holds, if only nearly"
    ),
    "Condition 1": Statement(
        "setting of joint training",
        r"$u_0 = 0, W_0 = 0$, $\alpha \ge C_0$, small step,"
        r" $d \ge C_1 \mathrm{poly}(\alpha, n) \log(n^2/\delta)$",
        "Its absolute constants are blank in the text at hand, those of its complete version,"
        " Condition 2, as well.",
    ),
}
