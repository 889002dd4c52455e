"""The command `python -m lib.batch`."""

from lib.batch.run import main

raise SystemExit(main())
