"""A companion to three papers on how a self-attention layer learns; lib/README.md is
the map.
"""

import sys

if sys.hexversion < 0x030B0000:
    _words = (
        "attention-dynamics needs Python 3.11 or later, not " + sys.version.split()[0]
    )
    # Under `python -m` one sentence, where an import shows its traceback.
    raise SystemExit(_words) if sys.argv[:1] == ["-m"] else ImportError(_words)

# isort: split
from lib import interrupt

if interrupt.is_own_command(sys.orig_argv):
    interrupt.end_in_a_sentence()
