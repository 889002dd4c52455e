"""What the papers and this project state, as checked claims, with experiments and
figures.

The subpackages do not import each other. `a`, `b` and `c` are the three papers. `law`
(where training ends, and how fast) and `atlas` (which margin each optimiser maximises)
answer questions that the papers leave open. `studies` decides the claims on real data,
and draws them.

They take histories, solutions and the curves of studies, and return claims, rows of the
ledgers and figures. Open `a.fixed_head` first, then `law`. The modules beside the
subpackages are shared: `ours` (the claims of law and atlas), `saturation` (how strongly
a token pulls near the end), `fits` (exponents), `joint_loss` (loss and curvature with a
trained head), `verdicts` (the words of a comparison), `wrong_worlds` and `falsify`
(which errors in an altered copy a claim detects).
"""

import lib  # noqa: F401 - first of all: lib answers Ctrl-C while our commands still import
