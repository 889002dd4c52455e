"""New numbers against the committed ones, and which notebooks do not reproduce."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from lib import files, provenance
from lib.batch.job import Job
from lib.companion import reproduction
from lib.companion.claims import UNDECIDED
from lib.files import folder

NO_RECORD = "no committed record"
Committed = Mapping[str, Mapping | None]  # by slug; None for a record that cannot be read


@dataclass(frozen=True)
class RecordComparison:
    """A line per figure, and the notebooks with a number, or a claim that held, not reproduced."""

    lines: tuple[str, ...]
    differing: tuple[str, ...]


def committed(scale: str, running: Iterable[str]) -> Committed:
    """The committed records of a scale by slug; without git, what `running` made before."""
    if provenance.git("rev-parse", "--git-dir") is None:
        places = [path for path in (folder("figures") / scale).glob("*.json") if path.is_file()]
        present = {path.stem: _read(path.read_bytes()) for path in places}
        return {
            slug: saved
            for slug, saved in present.items()
            if saved is None or saved["notebook"] in running
        }
    listing = provenance.git("ls-tree", "--name-only", "HEAD", f"figures/{scale}/") or ""
    names = [name for name in listing.split() if name.endswith(".json")]
    texts = {Path(name).stem: provenance.git("show", f"HEAD:./{name}") or "" for name in names}
    return {slug: _read(text.encode("utf-8", "surrogateescape")) for slug, text in texts.items()}


def compare(jobs: Iterable[Job], old: Committed) -> RecordComparison:
    """What finished jobs published, beside what was committed."""
    lines, differing = [], []
    for job in jobs:
        shown = [(slug, *_figure(job, slug, old)) for slug in _slugs(job)]
        lines += [f"{slug}: {text}" for slug, text, _ in shown]
        if not all(same for _, _, same in shown):
            differing.append(job.notebook)
    return RecordComparison(tuple(lines), tuple(differing))


def _slugs(job: Job) -> list[str]:
    if job.custom:
        names = [path.name for path in job.figures.glob("*")]
    elif job.marker.exists():  # it names what this run made; an older figure may lie beside it
        names = files.read_object(job.marker)["figures"]
    else:
        names = []  # nothing was published
    return sorted(name.removesuffix(".json") for name in names if name.endswith(".json"))


def _figure(job: Job, slug: str, old: Committed) -> tuple[str, bool]:
    saved = files.read_object(job.figures / f"{slug}.json")
    text, same = "custom, not compared", True
    if not job.custom:
        text, same = _reproduced(saved, old[slug]) if slug in old else (NO_RECORD, True)
    open_ = [claim["id"] for claim in saved["claims"] if claim.get("verdict") == UNDECIDED]
    failed = [c["id"] for c in saved["claims"] if not c["holds"] and c["id"] not in open_]
    names = f", not {', '.join(failed)}" if failed else ""
    names += f", undecided {', '.join(open_)}" if open_ else ""
    held = sum(claim["holds"] for claim in saved["claims"])
    return f"{text}; held {held} of {len(saved['claims'])} claims{names}", same


def _reproduced(new: Mapping, old: Mapping | None) -> tuple[str, bool]:
    if old is None:
        return "the committed record is damaged, not compared", False
    if new["parameters"] != old["parameters"]:
        return "parameters differ, not compared", True
    if _kinds(new) != _kinds(old):
        return "data differ, not compared", True
    redrawn = any(row["source"] == "kept" for row in new["data"])  # nothing was trained for it
    differences, count = reproduction.compare(new, old), len(old["numbers"])
    same = f"{count - len(differences)} of {count}"
    text = f"redrawn from kept curves: {same}" if redrawn else f"{same} numbers reproduced"
    held = {claim["id"] for claim in new["claims"] if claim["holds"]}
    lost = [
        f"{claim['id']} held before"
        for claim in old["claims"]
        if claim["holds"] and claim["id"] not in held
    ]
    return "; ".join([text, *map(str, differences), *lost]), not (differences or lost)


def _kinds(saved: Mapping) -> list[tuple[str, bool]]:
    return [(row["name"], row["source"] == "demo") for row in saved["data"]]


def _read(content: bytes) -> Mapping | None:
    """A record, or None where the content is none."""
    try:
        return reproduction.checked(files.parse_object(content, "the record"), "the record")
    except ValueError:
        return None
