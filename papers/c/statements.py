"""The statements of paper C (2410.14581): those of its appendix, and its theorems by their content.

The text at hand is part of the appendix. Displayed formulas were lost and are restored as far as
the proofs fix them; where they do not, the statement says "our reading". D is
D_psi(W_mm/||W_mm||, W/||W||), norms are l_{p,p}, 1/p + 1/q = 1, and Assumption A holds throughout.
"""

from lib.companion.ledger import Statement

STEP = r"$W(k)$ of $\ell_p$-AttGD with a small enough $\eta$: "
CONE = r"$\alpha$ locally optimal, $W \in C_{p,\mu_0,R}(W_{mm})$: "
START = (
    r"$\alpha$ locally optimal, $W(0)$ in a thin enough cone $C_{p,\mu,R}(W_{mm})$ with a large"
    r" enough $R$, $\eta$ small enough: "
)
IDENTITY = "An identity: it is tested on arbitrary inputs and is no finding."
DEFINITION = "A definition."
MISSING = (
    "It stands in the main part of the paper. The text at hand has Lemma 4 and Lemmas 12 to 30"
    " alone (25 by its number), and no proof in it quotes this one: its formula and hypotheses are"
    " not known."
)
UNDECIDED = (
    "It is Lemma 29 with the norm of Lemma 30, and both have rows. A row of its own would decide"
    r" nothing: from $k = 4{,}000$ to $40{,}000$ the bound of $p > 2$ falls by an eighth, less than"
    " the constant that is left open. What the runs do there is printed beside the ledger."
)

STATEMENTS = {
    "lp-AttGD": Statement(
        "the algorithm",
        r"$\nabla\psi(W(k+1)) = \nabla\psi(W(k)) - \eta\, \nabla L(W(k))$, with the plain gradient."
        r" The paper's experiments divide it by $\|\nabla L(W(k))\|_{q,q}$; its lemmas do not.",
        DEFINITION,
    ),
    "lp-AttSVM": Statement(
        "the solution of a selection",
        r"$W_{mm} = \arg\min \|W\|_{p,p}$ with $(x_{i,\alpha_i} - x_{i,t})^\top W z_i \ge 1$ for"
        r" all $i$ and $t \ne \alpha_i$.",
        DEFINITION,
    ),
    "Assumption A": Statement(
        "loss",
        r"$\ell$ is strictly decreasing on bounded intervals, $\ell'$ Lipschitz and bounded (our"
        " reading).",
        "It is about the loss alone; the logistic loss of every row has it.",
    ),
    "Definition 1": Statement(
        "potential and divergence",
        r"$\psi(W) = \frac1p \|W\|_{p,p}^p$, and $D_\psi(V, W) = \psi(V) - \psi(W) -"
        r" \langle \nabla\psi(W), V - W \rangle$ with $\nabla\psi(W) = |W|^{p-1} \mathrm{sgn}(W)$"
        " entry by entry.",
        DEFINITION,
    ),
    "Definition 3": Statement(
        "locally optimal tokens",
        r"A token $t$ supports $\alpha_i$ if its constraint is an equality at $W_{mm}$;"
        r" $\alpha$ is locally optimal if every $\alpha_i$ has a higher score $y_i v^\top x_{i,t}$"
        " than the tokens that support it.",
        "A definition: every selection whose cone is measured was checked to satisfy it.",
    ),
    "Eqs. 4-8": Statement(
        "cones",
        r"With $D = D_\psi(W_{mm}/\|W_{mm}\|_{p,p}, W/\|W\|_{p,p})$, $S_{p,\mu}(W_{mm}) ="
        r" \{W : D \le \mu\}$, and $C_{p,\mu,R}(W_{mm})$ are those of them with"
        r" $\|W\| \ge R$; $\delta$ is half the least excess over 1 of a margin that is no support"
        r" token's; $\mu_0$ (our constant) is so small that Lemma 19 follows.",
        DEFINITION,
    ),
    "Theorem, convergence": Statement(
        "local convergence",
        START + r"$\|W(k)\| \to \infty$ and $W(k)/\|W(k)\| \to W_{mm}/\|W_{mm}\|$, that is"
        r" $D \to 0$ (our reading).",
    ),
    "Theorem, rate": Statement(
        "rate in k",
        START + r"$D = O(\log\log k/\log k)$, $O((\log\log k)^2/\log k)$, $O((\log k)^{1-p})$ for"
        r" $p > 2$, $p = 2$, $p < 2$ (our reading).",
        UNDECIDED,
    ),
    "Theorem, path": Statement(
        "regularisation path",
        r"If every sample has one best token $opt_i$ and $W_{mm}$ of these tokens exists, then"
        r" $\arg\min_{\|W\|_{p,p} \le R} L$ turns to $W_{mm}/\|W_{mm}\|$ as $R \to \infty$ (our"
        " reading).",
    ),
    "Theorem, joint": Statement(
        "joint regularisation path",
        r"$\arg\min L(v, W)$ over $\|v\|_p \le r$, $\|W\|_{p,p} \le R$: $v/r$ and $W/R$ turn to"
        r" $v_{mm}/\|v_{mm}\|$ and $W_{mm}/\|W_{mm}\|$ as $r, R \to \infty$, under a condition on"
        " the label margins of other selections (our reading).",
    ),
    **{f"Lemma {k}": Statement("main part", "", MISSING) for k in (1, 2, 3)},
    "Lemma 4": Statement(
        "increments of the norm",
        r"By its proof it bounds $\|W(k+1)\| - \|W(k)\|$; the formula is lost. Our reading: "
        + STEP
        + r"$\|W(k+1)\|^{p-1} \le \|W(k)\|^{p-1} + \eta \|\nabla L(W(k))\|_{q,q}$",
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
    "Lemma 16": Statement("loss is bounded", r"$L_{min} \le L(W) \le L_{max}$ for every $W$"),
    "Lemma 17": Statement(
        "gradient",
        r"$\nabla L(W) = \frac1n \sum \ell'_i X_i^\top \varphi'(a_i) \gamma_i z_i^\top$.",
        IDENTITY,
    ),
    "Lemma 18": Statement("gradient is bounded", r"$\|\nabla L(W)\|_{q,q} \le G$ for every $W$"),
    "Lemma 19": Statement(
        "margins inside the cone",
        r"$\alpha$ locally optimal, $V \in S_{p,\mu_0}(W_{mm})$, $\|V\| = \|W_{mm}\|$: under $V$"
        r" support tokens have margins in $[1/2, 3/2]$, and other tokens have margins above"
        r" $1 + \delta$, by $\delta$ above every support token's",
    ),
    "Lemma 20": Statement(
        "gradient inside the cone",
        CONE + r"with $R$ a constant of the data, and $V \in S_{p,\mu_0}(W_{mm})$,"
        r" $\langle -\nabla L(W), V/\|V\| \rangle \ge c\, e^{-(1 + \delta/2) \|W\|/\|W_{mm}\|} > 0$"
        " (the exponent is our reading)",
    ),
    "Lemma 21": Statement(
        "gradient favours $W_{mm}$",
        r"$\alpha$ locally optimal: for every $\pi \in (0, 1)$ there is $R_\pi \sim \frac{C}{\pi}"
        r" \log \frac{C}{\pi}$ so that $\langle -\nabla L(W), W/\|W\| \rangle \le (1 + \pi)"
        r" \langle -\nabla L(W), W_{mm}/\|W_{mm}\| \rangle$ for all $W \in"
        r" C_{p,\mu_0,R_\pi}(W_{mm})$",
    ),
    "Lemma 22": Statement(
        "norm grows",
        STEP + r"$\|W(k+1)\|^{p-1} \ge \|W(k)\|^{p-1} + \eta \langle -\nabla L(W(k)), W(k)"
        r" \rangle/\|W(k)\|$ (our reading)",
    ),
    "Lemma 23": Statement("identities of mirror descent", "Eq. 23 and its consequence.", IDENTITY),
    "Lemma 24": Statement(
        "potential and loss",
        STEP + r"$\frac{p-1}{p} \Delta\|W\|^p + \eta \Delta L \le -\eta \langle \nabla L(W(k)),"
        r" W(k) \rangle$, with $\Delta$ from $k$ to $k+1$ (our reading)",
    ),
    "Lemma 25": Statement("loss never rises", STEP + r"$L(W(k+1)) \le L(W(k))$"),
    "Lemma 26": Statement("law of cosines", r"Three-point identity of $D_\psi$.", IDENTITY),
    "Lemma 27": Statement(
        "turning towards $W_{mm}$",
        r"$W(k) \in C_{p,\mu_0,R_\pi}(W_{mm})$ of Lemma 21, $\eta$ small enough: $\langle"
        r" \Delta\nabla\psi(W), W_{mm}/\|W_{mm}\| \rangle \ge \frac{1}{1+\pi} \Delta\|W\|^{p-1} +"
        r" \eta \Delta L/\|W(k)\|$ (our reading of Eq. 25; the rows measure the stronger line"
        r" before it, with $\frac{1}{1+\pi}$ before $\Delta L$ as well)",
    ),
    "Lemma 28": Statement(
        "cone is not left",
        r"$\alpha$ locally optimal, $\mu \in (0, \mu_0)$, $\eta$ small enough: there are $R$ and"
        r" $\mu'$ so that $W(0) \in C_{p,\mu',R}(W_{mm})$ gives $W(k) \in C_{p,\mu,R}(W_{mm})$ for"
        " every $k$",
    ),
    "Lemma 29": Statement(
        "rate in the norm",
        START + r"$D = O(\log r/r)$, $O((\log r)^2/r)$, $O(r^{1-p})$ for $p > 2$, $p = 2$,"
        r" $p < 2$, with $r = \|W(k)\|$ (our reading of Eq. 28)",
    ),
    "Lemma 30": Statement("norm is at least log k", START + r"$\|W(k)\| = \Omega(\log k)$"),
}
