"""The command `python -m lib.site`."""

from lib.site import build

raise SystemExit(build.main())
