"""The numbered statements of paper B (2603.01514, first version), hypotheses included.

Displayed formulas are blank in the text at hand. They are restored as far as the section titles and
the proofs fix them; what is restored is marked "our reading".
"""

from lib.companion.ledger import Statement

READING = " (our reading of the blank formula)"
NEAR = r"A1-A3, $Z$ near the minima, $Z_\pi$ the nearest: "
QUERY = (
    r"$Z$ near the minima; the query $x$ is one of the $n$ keys, the others are i.i.d."
    r" $N(0, \Sigma)$; $s_i$ their softmax weights, $w = B^\top x$, $c = \sum s_i x_i$,"
    r" $C = \sum s_i x_i (x_i - c)^\top$: "
)
VARIANCE = QUERY + r"$\mathrm{Var}(%s \mid x) = O(1/n)$" + READING
MEAN = QUERY + r"$\|\mathbb{E}[%s \mid x] - %s\| = O(1/n)$" + READING
MOMENT = (
    QUERY + r"$\mathbb{E}_x \|%s\|^%d = O(n^{-%d})$, as the proof of Theorem 4 uses it" + READING
)
MIXED = "Its formula is blank, and neither its proof nor its use fixes it."
TESTED = "An identity and no finding; tested in {}.py."

STATEMENTS = {
    "Assumption 1": Statement("covariance", r"$\Sigma$ is positive definite"),
    "Assumption 2": Statement("signal", r"$k \ge d$, $M$ has full column rank"),
    "Assumption 3": Statement(
        "integrability",
        r"an upper bound on $\|M \Sigma^{1/2}\|$, blank in the text at hand, under which"
        r" $\mathbb{E} e^{c\, x^\top B x}$ is finite at all minima. That is so exactly for"
        r" $\|M\Sigma^{1/2}\| < 1/(4c^2)$ (ours): $1/4$ for $c = 1$, which is taken here; the"
        r" proofs may need $c = 2$ or $8$, that is $1/16$ or $1/256$",
    ),
    "Theorem 1": Statement(
        "population loss, minima, curvature",
        r"Under A1 and A2: (1) $L(Z) = \frac12 \|A \Sigma B^\top \Sigma^{1/2} - M"
        r" \Sigma^{1/2}\|_F^2 + L^*$ with $L^* = k\sigma^2/2$; it is convex in $A$ and in $B$, not"
        r" in both. (2) With $R(Z) = \frac18 \|\Sigma^{1/2}(A^\top A - B^\top \Sigma B)"
        r" \Sigma^{1/2}\|_F^2$ (our reading: it gives Eqs. 5 and 6) and $M\Sigma^{1/2} = UDV^\top$"
        r" all points $Z_Q = (U D^{1/2} Q \Sigma^{-1/2};\ \Sigma^{-1/2} V D^{1/2} Q \Sigma^{-1/2})$"
        r" with $Q$ orthogonal are global minima of $L + R$: $L = L^*$ and $R = 0$. (3) Near them"
        r" Eqs. 3 and 4 hold in the norm $\|Z\|^2 = \mathrm{tr}(Z^\top \bar\Sigma Z)$, $\bar\Sigma"
        r" = \mathrm{diag}(I, \Sigma)$ (our reading)",
    ),
    "Algorithm 1": Statement(
        "preconditioned descent",
        r"On $n$ samples with covariance $\hat\Sigma = X^\top X/n$ and least-squares map $\hat M$:"
        r" start at $A_0 = \hat U \hat D^{1/2} \hat\Sigma^{-1/2}$, $B_0 = \hat\Sigma^{-1/2} \hat V"
        r" \hat D^{1/2} \hat\Sigma^{-1/2}$, where $\hat M \hat\Sigma^{1/2} = \hat U \hat D \hat"
        r" V^\top$; step by $Z_{t+1} = Z_t - \eta\, \mathrm{diag}(I, \hat\Sigma^{-1})\, \mathbb{E}"
        r" \nabla(\hat L + \hat R)(Z_t)$, the mean over fresh batches of $n$, where $\hat R$ is $R$"
        r" with $\hat\Sigma$ (our reading of the blank display)",
        "A definition; notebook 20 writes it out and compares it with the library.",
    ),
    "Theorem 2": Statement(
        "data-compute scaling law",
        r"A1-A3, Algorithm 1 with $n \ge n_0(\delta)$ and a small step: with probability"
        r" $1 - \delta$ $L(Z_T) - L^* \lesssim 1/n + e^{-cT}$, up to logarithms of $n$ (the power"
        r" of $n$ is blank; $1/n$ is our reading)",
    ),
    "Remark": Statement(
        "parameter distance",
        r"Theorem 2 with the squared distance of $Z_T$ to the minima for $L(Z_T) - L^*$ (our"
        r" reading)",
    ),
    "Theorem 3": Statement(
        "gradients agree uniformly",
        NEAR + r"$\sup_Z \|\mathbb{E} \nabla (\hat L + \hat R)(Z) - \nabla (L + R)(Z)\|^2"
        r" = O(1/n^2)$" + READING,
    ),
    "Theorem 4": Statement(
        "gradient of the loss",
        NEAR + r"$\|\mathbb{E} \nabla \hat L(Z) - \nabla L(Z)\|^2 = O(1/n^2)$" + READING,
    ),
    "Theorem 5": Statement(
        "gradient of the regulariser",
        NEAR + r"$\|\mathbb{E} \nabla \hat R(Z) - \nabla R(Z)\|^2 = O(1/n^2)$" + READING,
    ),
    "Lemma 1": Statement(
        "projection",
        r"$\Sigma Z_\pi^\top \bar\Sigma (Z - Z_\pi)$ is symmetric;"
        r" $\sigma_{\min}(\bar\Sigma^{1/2} Z_\pi) \ge \sqrt{2\sigma_d}\,\|\Sigma\|^{-1/2}$ and"
        r" $\sigma_{\max} \le \sqrt{2\sigma_1}\, \lambda_{\min}(\Sigma)^{-1/2}$, where $\sigma_1"
        r" \ge \dots \ge \sigma_d$ are the singular values of $M\Sigma^{1/2}$" + READING,
    ),
    "Lemma 2": Statement(
        "descent lemma", NEAR + r"$(L + R)(Z) - \min \le \frac{\beta}{2} \|Z - Z_\pi\|^2$" + READING
    ),
    "Lemma 3": Statement(
        "good start",
        r"For $n \ge n_0(\delta)$ two events have probability $1 - \delta$ together: the spectral"
        r" start is near the minima, and $\hat\Sigma^{-1}$ is near $\Sigma^{-1}$",
    ),
    "Lemma 4": Statement(
        "curvature with the sample preconditioner",
        NEAR + r"for $g = \mathrm{diag}(I, \hat\Sigma^{-1})\, \mathbb{E} \nabla(\hat L + \hat"
        r" R)(Z)$, $\Delta = Z - Z_\pi$ and $e = \|\mathbb{E} \nabla(\hat L + \hat R)(Z) -"
        r" \nabla(L + R)(Z)\|$, in the event of Lemma 3: $\langle g, \Delta \rangle \ge \alpha'"
        r" \|\Delta\|^2 - e^2/\alpha'$ and $\|g\|^2 \le \beta'^2 \|\Delta\|^2 + C e^2$, with"
        r" $\alpha'$, $\beta'$ slightly worse than $\alpha$, $\beta$ of Eqs. 3 and 4" + READING,
    ),
    "Lemma 5": Statement(
        "perturbed start",
        r"The start is within $C (\|\hat\Sigma - \Sigma\| + \|\hat M - M\|)$ of the minima"
        + READING,
    ),
    "Lemma 6": Statement("least squares", r"$\|\hat M - M\|$ is small with high probability"),
    "Lemma 7": Statement(
        "integrability",
        r"$\mathbb{E} e^{c\, x^\top B x} < \infty$ near the minima under A3" + READING,
    ),
    "Lemma 8": Statement(
        "gradients of softmax weights",
        r"$\partial s_i/\partial x_l = s_i (\delta_{il} - s_l)\, w$ for keys other than the query,"
        r" and $\partial c/\partial x_l = s_l (I + (x_l - c) w^\top)$" + READING,
        TESTED.format("tests/papers/test_paper_b"),
    ),
    "Lemma 9": Statement(
        "moments of softmax weights",
        QUERY + r"$\mathbb{E}[s_i^2 \mid x, x_i] = O(n^{-2})$,"
        r" $\mathbb{E}[s_i^4 \mid x, x_i] = O(n^{-4})$" + READING,
    ),
    "Lemma 10": Statement(
        "variance of softmax weights",
        QUERY + r"$\mathrm{Var}(s_i \mid x, x_i) = O(n^{-3})$,"
        r" $\mathrm{Var}(s_i^2 \mid x, x_i) = O(n^{-5})$" + READING,
    ),
    "Lemma 11": Statement("mean of c", MEAN % ("c", r"\Sigma w")),
    "Lemma 12": Statement("mean of c, integrated", "", MIXED),
    "Lemma 13": Statement(
        "mean of c, integrated", MOMENT % (r"x\, (\mathbb{E}[c \mid x] - \Sigma w)^\top", 2, 2)
    ),
    "Lemma 14": Statement("variance of c", VARIANCE % r"c = \sum s_i x_i"),
    "Lemma 15": Statement("mean of c c'", MEAN % (r"c c^\top", r"\Sigma w w^\top \Sigma")),
    "Lemma 16": Statement(
        "mean of c c', integrated",
        "",
        "By its proof (Lemma 11, Hölder's inequality) Lemma 15 integrated over the query, with a"
        " power that the text does not fix; the row of Lemma 18 has the power 2.",
    ),
    "Lemma 17": Statement("mean of c c', integrated", "", MIXED),
    "Lemma 18": Statement(
        "mean of c c', integrated",
        MOMENT % (r"\mathbb{E}[c c^\top \mid x] - \Sigma w w^\top \Sigma", 2, 2),
    ),
    "Lemma 19": Statement("variance of c c'", VARIANCE % r"c c^\top"),
    "Lemma 20": Statement("mean of C", MEAN % ("C", r"\Sigma")),
    "Lemma 21": Statement("mean of C, integrated", "", MIXED),
    "Lemma 22": Statement(
        "mean of C, integrated", MOMENT % (r"\mathbb{E}[C \mid x] - \Sigma", 4, 4)
    ),
    "Lemma 23": Statement("variance of C", VARIANCE % "C"),
    "Eq. 3": Statement(
        "one-point convexity",
        NEAR + r"$\langle \nabla(L + R)(Z), Z - Z_\pi \rangle \ge \alpha \|Z - Z_\pi\|^2$",
    ),
    "Eq. 4": Statement(
        "one-point smoothness",
        NEAR + r"$\|\nabla(L + R)(Z)\| \le \beta \|Z - Z_\pi\|$, in the dual norm",
    ),
    "Eq. 5": Statement(
        "gradient as two terms",
        r"$\nabla(L + R) = \frac12 \bar\Sigma (Z\Sigma Z^\top - Z_\pi\Sigma Z_\pi^\top) \bar\Sigma"
        r" Z\Sigma + \frac12 \bar\Sigma \tilde Z_\pi \Sigma \tilde Z_\pi^\top \bar\Sigma Z\Sigma$"
        r" with $\tilde Z_\pi = (A_\pi; -B_\pi)$" + READING,
        TESTED.format("tests/regression/test_problem"),
    ),
    "Eq. 6": Statement(
        "orthogonality",
        r"$\tilde Z_\pi^\top \bar\Sigma Z_\pi = 0$" + READING,
        TESTED.format("tests/regression/test_problem"),
    ),
}
