"""What each paper states, as checked claims, and its experiments; the papers stand apart.

In: histories, solutions and the curves of studies. Out: claims, ledgers' rows, figures. Open
`a.fixed_head` first, and `beyond` for what the papers leave open. What they share lies beside them:
`fits` (exponents), `joint_loss` (loss and curvature with a trained head), `kept_curves` (verdicts
on real data), `wrong_worlds` and `falsify` (what a claim catches), `redraw` (figures from kept
curves).
"""

import sys
from pathlib import Path

import lib

if Path(str(lib.__file__)).parent.parent != Path(__file__).parent.parent:
    _words = f"{lib.__file__} is another package named lib, and comes first on the path:"
    _words += " start in this repository, or take that folder off PYTHONPATH"
    _command = Path(sys.argv[0]).name in ("-m", "attention-dynamics")
    raise SystemExit(_words) if _command else ImportError(_words)
