"""The command `python -m companion.batch`."""

from companion.batch.run import main

raise SystemExit(main())
