"""The numbered statements of paper B (2603.01514), hypotheses included.

Displayed formulas are blank in the text at hand; they are restored as far as the proofs fix them. w
= B^T x, s_i the softmax weights of the keys for a query x, Sbar = diag(I, Sigma), Z_pi the global
minimum nearest to Z, sigma_d the smallest singular value of M Sigma^{1/2}.
"""

from lib.companion.ledger import Statement

IDENTITY = "An identity: it is tested on arbitrary inputs and is no finding."
NEAR = r"A1-A3, $Z$ near the manifold of global minima: "
QUERY = r"Given the query $x$, keys i.i.d. $N(0, \Sigma)$: "
VARIANCE = QUERY + r"$\mathrm{Var}(%s \mid x) = O(1/n)$ (our reading of the blank formula)"
MEAN = QUERY + r"$\mathbb{E}[%s \mid x] = %s + O(1/n)$ (our reading of the blank formula)"
MOMENT = QUERY + r"$\mathbb{E}\|%s\|^4 = O(1)$ (our reading of the blank formula)"
MIXED = "Its formula is blank and its proof does not fix it."

STATEMENTS = {
    "Assumption 1": Statement("covariance", r"$\Sigma$ is positive definite"),
    "Assumption 2": Statement("signal", r"$k \ge d$, $M$ has full column rank"),
    "Assumption 3": Statement(
        "integrability",
        r"an upper bound on $\|M \Sigma^{1/2}\|$ that makes $\mathbb{E} e^{c\, x^\top B x}$ finite"
        r" on the whole manifold: exactly $2 c \|M\Sigma^{1/2}\|^{1/2} < 1$ (ours)",
    ),
    "Theorem 1": Statement(
        "population loss, minima, curvature",
        r"$L(Z) = \frac12 \|A \Sigma B^\top \Sigma^{1/2} - M \Sigma^{1/2}\|_F^2 + k\sigma^2/2$;"
        r" the minima of $L + R$ are $\{Z_R : R \in O(d)\}$; Eqs. 3 and 4 near them",
    ),
    "Theorem 2": Statement(
        "data-compute scaling law",
        r"A1-A3, Algorithm 1 with $n \ge n_0(\delta)$ and a small step: with probability"
        r" $1 - \delta$ $L(Z_T) - L^* \lesssim 1/n + e^{-cT}$",
    ),
    "Remark": Statement("parameter distance", "Theorem 2 for the distance of $Z_T$ to the minima"),
    "Theorem 3": Statement(
        "gradients agree uniformly",
        NEAR + r"$\sup_Z \|\mathbb{E} \nabla (\hat L + \hat R)(Z) - \nabla (L + R)(Z)\| \to 0$",
    ),
    "Theorem 4": Statement(
        "gradient of the loss", NEAR + r"$\|\mathbb{E} \nabla \hat L(Z) - \nabla L(Z)\| \to 0$"
    ),
    "Theorem 5": Statement(
        "gradient of the regulariser",
        NEAR + r"$\|\mathbb{E} \nabla \hat R(Z) - \nabla R(Z)\|^2 = O(1/n^2)$",
    ),
    "Lemma 1": Statement(
        "projection",
        r"$\Sigma Z_\pi^\top \bar\Sigma (Z - Z_\pi)$ is symmetric;"
        r" $\sigma_{\min}(\bar\Sigma^{1/2} Z_\pi) \ge \sqrt{2\sigma_d}\,\|\Sigma\|^{-1/2}$ and"
        r" $\sigma_{\max} \le \sqrt{2\sigma_1}\, \lambda_{\min}(\Sigma)^{-1/2}$",
    ),
    "Lemma 2": Statement(
        "descent lemma", NEAR + r"$(L + R)(Z) - \min \le \frac{\beta}{2} \|Z - Z_\pi\|^2$"
    ),
    "Lemma 3": Statement(
        "good start",
        r"For $n \ge n_0(\delta)$ the spectral start is near, $\hat\Sigma \approx \Sigma$",
    ),
    "Lemma 4": Statement(
        "curvature with the sample preconditioner",
        NEAR + r"Eqs. 3 and 4 with $\hat{\bar\Sigma}^{-1}$ and slightly worse constants",
    ),
    "Lemma 5": Statement(
        "perturbed start",
        r"The start is within $C (\|\hat\Sigma - \Sigma\| + \|\hat M - M\|)$ of the minima",
    ),
    "Lemma 6": Statement("least squares", r"$\|\hat M - M\|$ is small with high probability"),
    "Lemma 7": Statement(
        "integrability", r"$\mathbb{E} e^{c\, x^\top B x} < \infty$ near the minima under A3"
    ),
    "Lemma 8": Statement("gradients of softmax weights", r"$\partial s_i/\partial x_l$.", IDENTITY),
    "Lemma 9": Statement(
        "moments of softmax weights",
        QUERY + r"$\mathbb{E}[s_i^2 \mid x, x_i] = O(n^{-2})$,"
        r" $\mathbb{E}[s_i^4 \mid x, x_i] = O(n^{-4})$",
    ),
    "Lemma 10": Statement("variance", VARIANCE % r"\sum s_i x_i"),
    "Lemma 11": Statement("mean", MEAN % (r"\sum s_i x_i", r"\Sigma w")),
    "Lemma 12": Statement("moment", "", MIXED),
    "Lemma 13": Statement(
        "moment", QUERY + r"$\mathbb{E}\|\sum s_i x_i - \Sigma w\|^4 = O(n^{-2})$ (our reading)"
    ),
    "Lemma 14": Statement("variance", VARIANCE % r"\sum s_i x_i x_i^\top"),
    "Lemma 15": Statement(
        "mean", MEAN % (r"\sum s_i x_i x_i^\top", r"\Sigma + \Sigma w w^\top \Sigma")
    ),
    "Lemma 16": Statement("moment", MOMENT % r"\sum s_i x_i x_i^\top"),
    "Lemma 17": Statement("moment", "", MIXED),
    "Lemma 18": Statement("limit of the first term of Theorem 4", "", MIXED),
    "Lemma 19": Statement("variance", VARIANCE % r"\sum s_i^2 x_i n"),
    "Lemma 20": Statement("mean", "", MIXED),
    "Lemma 21": Statement("moment", "", MIXED),
    "Lemma 22": Statement("limit of the third term of Theorem 4", "", MIXED),
    "Lemma 23": Statement("variance", VARIANCE % r"(\sum s_i x_i)(\sum s_i x_i)^\top"),
    "Eq. 3": Statement(
        "one-point convexity",
        NEAR + r"$\langle \nabla, Z - Z_\pi \rangle \ge \alpha \|Z - Z_\pi\|^2$",
    ),
    "Eq. 4": Statement("one-point smoothness", NEAR + r"$\|\nabla\| \le \beta \|Z - Z_\pi\|$"),
    "Eq. 5": Statement("gradient as two terms", "Eq. 5.", IDENTITY),
    "Eq. 6": Statement("orthogonality", r"$\tilde Z_\pi^\top \bar\Sigma Z_\pi = 0$.", IDENTITY),
}
