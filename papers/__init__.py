"""The papers' statements and our own as checked claims, with experiments and figures.

The subpackages do not import each other. `a`, `b` and `c` are the three papers. `law`
(where training ends, and how fast it gets there) and `atlas` (which margin each
optimiser maximises) answer questions that the papers leave open. `studies` decides the
claims about real data, and draws the measurements behind them.

The subpackages take training histories, SVM solutions and the curves of studies. They
return claims, rows of the ledgers (the tables of all claims of a paper), and figures.
Open `a.fixed_head` first, then `law`. The modules beside the subpackages are shared:
`ours` (the claims of law and atlas), `saturation` (how strongly a token pulls near the
end), `fits` (exponents), `joint_loss` (loss and curvature with a trained head),
`verdicts` (the words of a comparison), `wrong_worlds` and `falsify` (which errors in an
altered copy a claim detects).
"""

import lib  # noqa: F401 - first of all: lib answers Ctrl-C while our commands still import
