"""Why a notebook must run again: what its last success depended on, against what is there."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from lib import files
from lib.batch.job import Job


def reason(job: Job) -> str | None:
    """Why a job must run, against the marker of its last success; None when it is up to date."""
    try:
        old = files.read_object(job.marker)
        return "; ".join(_changes(job, old)) or None
    except OSError:
        return "never run"
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"damaged: {job.marker.relative_to(job.runs_folder.parent)}"


def _changes(job: Job, old: Mapping) -> list[str]:
    words = ["source changed"] if old["source"] != job.parts["source"] else []
    if modules := _differing(old["lib"], job.parts["lib"]):
        words.append(f"lib changed: {', '.join(modules)}")
    # A marker from before kept results counted has none.
    if results := _differing(old.get("kept", {}), job.parts["kept"]):
        words.append(f"kept results changed: {', '.join(results)}")
    before, now = old["parameters"], job.parts["parameters"]
    if changes := [
        f"{name} {before.get(name)} -> {now.get(name)}" for name in _differing(before, now)
    ]:
        words.append(f"parameters changed: {', '.join(changes)}")
    words += _data_changes(old["data"], demo=job.scale == "demo")
    return words + _figure_changes(old["figures"], job.figures)


def _data_changes(rows: Iterable[Mapping], demo: bool) -> list[str]:
    real = [row for row in rows if row["source"] not in ("synthetic", "kept")]
    if not real:
        return []
    from lib.data import images, texts
    from lib.networks import bert  # here, since most notebooks need no real data

    finder = dict.fromkeys(images.IMAGES, images.identity) | dict.fromkeys(
        texts.TEXTS, texts.identity
    )
    words = []
    for row in real:
        asked = row.get("instead_of", row["name"])
        try:
            weights = row.get("kind") == "weights"
            now = bert.weights(demo=demo).as_row() if weights else finder[asked](asked, demo=demo)
        except (OSError, ValueError) as error:  # the notebook itself reports it best
            words.append(f"data unclear: {row['name']} ({error})")
            continue
        if now["source"] != row["source"]:
            words.append(f"data changed: {now['name']} ({row['source']} -> {now['source']})")
        elif any(row.get(key, now.get(key)) != now.get(key) for key in ("name", "revision")):
            words.append(f"data changed: {now['name']}")
    return words


def _figure_changes(recorded: Mapping[str, str], figures: Path) -> list[str]:
    there = [name for name in recorded if (figures / name).exists()]
    changed = [
        name for name in there if files.sha256((figures / name).read_bytes()) != recorded[name]
    ]
    missing = [name for name in recorded if name not in there]
    return [f"figure missing: {name}" for name in missing] + [
        f"figure changed: {name}" for name in changed
    ]


def _differing(old: Mapping, new: Mapping) -> list[str]:
    return [name for name in sorted(old.keys() | new.keys()) if old.get(name) != new.get(name)]
