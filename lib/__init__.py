"""The library of this companion to three papers on how a self-attention layer learns.

lib/README.md describes the packages.
"""

import sys

if sys.hexversion < 0x030B0000:
    _words = (
        "attention-dynamics needs Python 3.11 or later, not " + sys.version.split()[0]
    )
    # `python -m` prints only this sentence; an import shows it with a traceback.
    raise SystemExit(_words) if sys.argv[:1] == ["-m"] else ImportError(_words)

# isort: split
from lib import interrupt

if interrupt.is_own_command(sys.orig_argv):
    interrupt.end_in_a_sentence()

# The public names are listed in __init__.pyi, where editors also find them. Each name
# is imported at its first use, so that `import lib` is quick, and torch is imported
# only if networks are used.
# isort: split
import lazy_loader

#: The names of the losses: ``"exponential"`` is :math:`e^{-f}`, ``"logistic"`` is
#: :math:`\log(1 + e^{-f})`, ``"sigmoid"`` is :math:`1 / (1 + e^f)`, and
#: ``"reciprocal"`` is :math:`1 / (1 + f)` for :math:`f \ge 0` and :math:`1 - f` for
#: :math:`f < 0`. Only the first two losses are compiled.
LOSSES: tuple[str, ...]

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
