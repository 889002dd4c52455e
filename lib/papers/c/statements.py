"""The statements of paper C (2410.14581): those of its appendix, and its theorems by their content.

The text at hand is part of the appendix; displayed formulas were lost and are restored as far as
the proofs fix them. D is D_psi(W_mm/||W_mm||, W/||W||), norms are l_{p,p}, 1/p + 1/q = 1.
"""

from lib.companion.ledger import Statement

STEP = r"$W(k)$ of $\ell_p$-AttGD with a small enough $\eta$: "
CONE = r"$\alpha$ locally optimal, $W \in C_{p,\mu_0,R}(W_{mm})$: "
IDENTITY = "An identity: it is tested on arbitrary inputs and is no finding."
MISSING = (
    "It stands in the main part of the paper. The text at hand has Lemma 4 and Lemmas 12 to 30"
    " alone (25 by its number), and no proof in it quotes this one: its formula and hypotheses are"
    " not known."
)

STATEMENTS = {
    "Assumption A": Statement(
        "loss",
        r"$\ell$ is strictly decreasing on bounded intervals, $\ell'$ Lipschitz and bounded (our"
        " reading).",
        "It is about the loss alone; the logistic loss of every row has it.",
    ),
    "Theorem, convergence": Statement(
        "local convergence",
        r"Started in $C_{p,\mu,R}(W_{mm})$, $\ell_p$-AttGD has $\|W(k)\| \to \infty$ and"
        r" $W(k)/\|W(k)\| \to W_{mm}/\|W_{mm}\|$",
    ),
    "Theorem, rate": Statement(
        "rate in k",
        r"There $D = O(\log\log k/\log k)$, $O((\log\log k)^2/\log k)$, $O((\log k)^{1-p})$ for"
        r" $p > 2$, $p = 2$, $p < 2$",
    ),
    "Theorem, path": Statement(
        "regularisation path",
        r"$\arg\min_{\|W\| \le R} L$ turns to the $W_{mm}$ of the globally optimal tokens,"
        r" $R \to \infty$",
    ),
    "Theorem, joint": Statement(
        "joint regularisation path",
        r"$\ell_p$-JointRP: $v/r$ and $W/R$ turn to $v_{mm}$ and $W_{mm}$ under a condition on the"
        " margins of other selections.",
    ),
    **{f"Lemma {k}": Statement("main part", "", MISSING) for k in (1, 2, 3)},
    "Lemma 4": Statement(
        "increments of the norm",
        STEP + r"$\|W(k+1)\|^{p-1} \le \|W(k)\|^{p-1} + \eta \|\nabla L(W(k))\|_{q,q}$",
    ),
    **{f"Lemma {k}": Statement("main part", "", MISSING) for k in range(5, 12)},
    "Lemma 12": Statement(
        "l_p and Frobenius norm",
        r"$p \ge 2$: $d^{2/p-1} \|W\|_F \le \|W\|_{p,p} \le \|W\|_F$; $p < 2$: the ends switched",
    ),
    "Lemma 13": Statement(
        "divergence and distance",
        r"$\|W_1\| = \|W_2\| = 1$: $D_\psi(W_1, W_2) \ge \|W_1 - W_2\|^p/(p 2^p)$ for $p \ge 2$,"
        r" $\ge c \|W_1 - W_2\|_F^2$ for $p < 2$",
    ),
    "Lemma 14": Statement(
        "differences of powers",
        r"$x \ge y \ge 0$, $r = x^{p-1} - y^{p-1}$: $y r \le \frac{p-1}{p} (x^p - y^p) \le x r$",
    ),
    "Lemma 15": Statement(
        "powers and tangents",
        r"$x \ge y \ge 0$, $p \ge 2$: $(p-1) y^{p-2} (x-y) \le x^{p-1} - y^{p-1} \le (p-1) x^{p-2}"
        r" (x-y)$; reversed for $p < 2$",
    ),
    "Lemma 16": Statement("loss is bounded", r"$L_{min} \le L(W) \le L_{max}$"),
    "Lemma 17": Statement(
        "gradient",
        r"$\nabla L(W) = \frac1n \sum \ell'_i X_i^\top \varphi'(a_i) \gamma_i z_i^\top$.",
        IDENTITY,
    ),
    "Lemma 18": Statement("gradient is bounded", r"$\|\nabla L(W)\|_{q,q} \le G$ for every $W$"),
    "Lemma 19": Statement(
        "margins inside the cone",
        CONE + r"with $\|V\| = \|W_{mm}\|$, support tokens have margins in $[1/2, 3/2]$, others are"
        r" $\delta$ above",
    ),
    "Lemma 20": Statement(
        "gradient inside the cone",
        CONE
        + r"$\langle -\nabla L(W), V \rangle \ge c\, e^{-(1 + \delta/2) \|W\|/\|W_{mm}\|} > 0$",
    ),
    "Lemma 21": Statement(
        "gradient favours $W_{mm}$",
        CONE + r"for every $\pi$ there is $R_\pi$ with $\langle -\nabla L, W/\|W\| \rangle \le"
        r" (1 + \pi) \langle -\nabla L, W_{mm}/\|W_{mm}\| \rangle$",
    ),
    "Lemma 22": Statement(
        "norm grows",
        STEP
        + r"$\|W(k+1)\|^{p-1} \ge \|W(k)\|^{p-1} + \eta \langle -\nabla L, W(k) \rangle/\|W(k)\|$",
    ),
    "Lemma 23": Statement("identities of mirror descent", "Eq. 23 and its consequence.", IDENTITY),
    "Lemma 24": Statement(
        "potential and loss",
        STEP
        + r"$\frac{p-1}{p} \Delta\|W\|^p + \eta \Delta L \le -\eta \langle \nabla L, W_k \rangle$",
    ),
    "Lemma 25": Statement("loss never rises", STEP + r"$L(W(k+1)) \le L(W(k))$"),
    "Lemma 26": Statement("law of cosines", r"Three-point identity of $D_\psi$.", IDENTITY),
    "Lemma 27": Statement(
        "turning towards $W_{mm}$",
        CONE + r"$\langle \Delta\nabla\psi(W), W_{mm}/\|W_{mm}\| \rangle \ge \frac{1}{1+\pi}"
        r" (\Delta\|W\|^{p-1} + \eta \Delta L/\|W\|)$",
    ),
    "Lemma 28": Statement(
        "cone is not left", "Started in a thinner cone, training stays in the cone, and $D$ falls"
    ),
    "Lemma 29": Statement(
        "rate in the norm",
        r"There $D = O(\log r/r)$, $O((\log r)^2/r)$, $O(r^{1-p})$ for $p > 2$, $p = 2$, $p < 2$,"
        r" $r = \|W(k)\|$",
    ),
    "Lemma 30": Statement("norm is at least log k", r"There $\|W(k)\| = \Omega(\log k)$"),
}
