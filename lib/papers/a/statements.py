"""The numbered statements of paper A (2402.05738), hypotheses included.

Displayed constants did not survive in the text at hand; c, C and O hide what was lost.
"""

from lib.companion.ledger import Statement

FIXED = r"Assumptions 1 and 2, small $W_0$ of any direction, head $u_*$ fixed. "
JOINT = r"(DM) with Condition 1, $u_0 = 0, W_0 = 0$, Eq. 13. "
DIRECTION = r"$\| W_t/\|W_t\| - W_{mm}/\|W_{mm}\| \| \le \tilde O(t^{-1/2})$"
FAVOURS = (
    r"Assumption 2. For every $\epsilon \in (0, 1)$ there is $R_\epsilon$ with"
    r" $\|W\| \ge R_\epsilon \Rightarrow \langle -\nabla L, W_{mm}/\|W_{mm}\| \rangle"
    r" \ge (1 - \epsilon) \langle -\nabla L, W/\|W\| \rangle$"
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
        r"inner products of distinct tokens are small against the tokens' squared norms",
    ),
    "Assumption 2": Statement(
        "equal scores", r"$\gamma_{i,t} = \gamma_{i,t'}$ for all $t, t' \ne opt_i$"
    ),
    "Example 1": Statement(
        "data that fit", r"opt tokens scaled by $U$, noise $\sigma$, $U/\sigma$ and $d$ large"
    ),
    "Theorem 1": Statement("direction of NGD", FIXED + "NGD, Eq. 4: " + DIRECTION),
    "Theorem 2": Statement(
        "joint training: loss", JOINT + r"$L(\theta_t) \le O(\exp(-c\, t^{1/3}))$"
    ),
    "Theorem 3": Statement(
        "joint training: direction of W",
        JOINT + r"$\| W_t/\|W_t\| - W_{mm}/\|W_{mm}\| \| \le O(1/\log t)$",
    ),
    "Theorem 4": Statement("joint training: margin of u", JOINT + MARGIN),
    "Theorem 5": Statement(
        "direction of NGD, burn-in", FIXED + "NGD, for $t \\ge t_0$: " + DIRECTION
    ),
    "Theorem 6": Statement(
        "direction of GD",
        r"Assumption 2, GD with step at most one over the smoothness, any $n$:"
        r" $W_t/\|W_t\| \to W_{mm}/\|W_{mm}\|$",
    ),
    "Theorem 7": Statement(
        "direction of Polyak",
        FIXED + r"Polyak step, Eq. 3 with its 1/2: " + DIRECTION + r", $\|W_t\| = \Theta(t)$",
    ),
    "Theorem 8": Statement("joint training: loss, constant", "Theorem 2 with its constants"),
    "Theorem 9": Statement(
        "joint training: norm of W", JOINT + r"$\|W_t\| = \Theta(t^{1/3})$ and Theorem 3's rate"
    ),
    "Theorem 10": Statement("joint training: margin of u, full", JOINT + MARGIN),
    "Lemma 1": Statement(
        "softmax saturates",
        FIXED + r"NGD: $1 - p_{opt} \le T e^{-ct}$, $c \sim \eta/(B^2 \|W_{mm}\|^2)$",
    ),
    "Lemma 2": Statement("gradient favours $W_{mm}$", FAVOURS),
    "Lemma 3": Statement("gradient, step and curvature", JOINT + CURVATURE),
    "Lemma 4": Statement(
        "small start",
        r"$W_0$ Gaussian, small: all softmax weights are within a constant factor of $1/T$ and"
        r" $\|W_0\|_F \lesssim \sigma_0 d$, with probability $1 - \delta$",
    ),
    "Lemma 5": Statement(
        "opt weight does not collapse",
        FIXED + r"NGD, GD, Polyak: $p_{opt,i}(t) \ge c\, p_{opt,i}(0)$; not yet large, it does not"
        " fall",
    ),
    "Lemma 6": Statement(
        "gradient points to $W_{mm}$",
        r"Assumption 2, every $W$: $\langle -\nabla L(W), W_{mm} \rangle \ge c\,\|\nabla L(W)\|$",
    ),
    "Lemma 7": Statement(
        "norm of W, two bounds",
        FIXED + r"NGD: $c\,\eta t - \|W_0\| \le \|W_t\| \le \eta t + \|W_0\|$",
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
        JOINT + r"for $t \ge 1$: score gaps grow like $t^{1/3}$, $\max \ell_i/\ell_j \le C$,"
        r" $p_{opt}$ does not fall and is at least $1/2$",
    ),
    "Lemma 14": Statement(
        "opt tokens are separable",
        r"$y_i x_{i,opt}$ and mixtures with $p_{opt} \ge 1/2$ are linearly separable",
    ),
    "Lemma 15": Statement("curvature, constant", "Lemma 3 with its constants"),
    "Eq. 12": Statement("norm of W is linear", FIXED + r"NGD: $\|W_t\| = \Theta(t)$"),
    "Eq. 13": Statement(
        "exponent of the step size",
        r"Steps $\eta (t+1)^{-p}$, $p$ in a range: $p = 2/3$ gives the fastest rate of the proof",
    ),
    "Remark 1": Statement(
        "any start direction", "Assumptions 1 and 2: $W_{mm}$ is reached from any direction"
    ),
    "Remark 2": Statement(
        "n > 1",
        "Lemma 2 holds for $n > 1$, where the earlier lemma needed $n = 1$.",
        "It compares two proofs; Lemma 2 is checked with ten and with four samples.",
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
        "The local max-margin directions of other selections are not where training ends",
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
