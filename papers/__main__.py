"""`python -m lib.batch` as the command attention-dynamics, which knows whose lib it asks."""

from lib.batch.__main__ import main

if __name__ == "__main__":
    raise SystemExit(main())
