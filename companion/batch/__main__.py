"""The command `python -m companion.batch`."""

from companion.batch import main

raise SystemExit(main())
