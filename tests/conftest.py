"""What several test files share."""

import pytest

from lib import files
from lib.site import build


@pytest.fixture(scope="session")
def whole_site(tmp_path_factory):
    """The site of the repository's own records, with one benchmark that missed its bar."""
    place = tmp_path_factory.mktemp("whole")
    entry = dict(
        ratio=2.0,
        spread=[1, 3],
        bar=3,
        sense="at least",
        ours="1 s",
        reference="2 s",
        note="n",
        holds=False,
    )
    files.write(place / "runs" / "bench.json", files.dumps([{"name": "a"} | entry]).encode())
    with pytest.MonkeyPatch.context() as patch:
        for name in ("figures", "notebooks"):
            patch.setenv(f"{name.upper()}_DIR", str(files.ROOT / name))
        patch.setenv("RUNS_DIR", str(place / "runs"))
        build.build(place / "site")
    return place / "site"
