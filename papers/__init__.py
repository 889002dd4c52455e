"""What is stated, as checked claims, with its experiments and figures.

The wings do not import each other. `a`, `b` and `c` are the three papers; `law` (where
training ends, and how fast) and `atlas` (which margin each optimiser maximises) are
what they leave open; `studies` judges and draws the runs on real data.

In: histories, solutions and the curves of studies. Out: claims, ledgers' rows, figures.
Open `a.fixed_head` first, then `law`. What the wings share lies beside them: `ours`
(the claims of law and atlas), `saturation` (how strongly a token pulls near the end),
`fits` (exponents), `joint_loss` (loss and curvature with a trained head), `verdicts`
(the words of a comparison), `wrong_worlds` and `falsify` (what a claim catches).
"""

import lib  # noqa: F401 - first of all: lib answers Ctrl-C while our commands still import
