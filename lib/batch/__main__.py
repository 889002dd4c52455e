"""The command `python -m lib.batch`."""

from lib.batch.runner import main

raise SystemExit(main())
