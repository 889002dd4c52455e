"""What each paper states, as checked claims, and its experiments; the papers stand
apart.

In: histories, solutions and the curves of studies. Out: claims, ledgers' rows, figures.
Open `a.fixed_head` first, and `beyond` for what the papers leave open. What they share
lies beside them: `fits` (exponents), `joint_loss` (loss and curvature with a trained
head), `kept_curves` (verdicts on real data), `wrong_worlds` and `falsify` (what a claim
catches), `redraw` (figures from kept curves).
"""

import lib  # noqa: F401 - first of all: lib answers Ctrl-C while our commands still import
