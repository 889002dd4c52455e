"""The command `python -m lib.batch`."""

from lib.batch.command import main

raise SystemExit(main())
