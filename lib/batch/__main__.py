"""The command `python -m lib.batch`."""

from lib.batch import main

raise SystemExit(main())
