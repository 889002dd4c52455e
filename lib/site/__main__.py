"""The command `python -m lib.site`."""

from lib.site.build import main

raise SystemExit(main())
