"""The command `python -m companion.site`."""

from companion.site import build

raise SystemExit(build.main())
