"""What to run: the notebooks asked for, their parameters at a scale, and in words why they must run again."""

import json
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path

from lib import files, provenance
from lib.batch.job import Job
from lib.companion import parameters
from lib.files import folder


class UsageError(Exception):
    """A request that cannot be met; its text is one sentence for the person who asked."""


def overrides(notebook: str, scale: str) -> dict | None:
    """What `scale` changes in the parameters of `notebook`; None where that scale is not offered."""
    if scale == "demo":
        return {}
    path = folder("notebooks") / "scales.toml"
    table = tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    section = table.get(notebook, {}).get(scale)
    return None if section is None else {"scale": scale, **section}


def select(names: Iterable[str], known: list[str]) -> list[str]:
    """The notebooks that `names` (stems or unique prefixes) stand for; all of them when there is no name."""
    chosen = []
    for name in names:
        fits = [name] if name in known else [stem for stem in known if stem.startswith(name)]
        if len(fits) != 1:
            trouble = "fits more than one notebook" if fits else "is not a notebook"
            raise UsageError(f"{name!r} {trouble}; there are {', '.join(fits or known)}")
        chosen += [fits[0]] if fits[0] not in chosen else []
    return chosen or known


def _check(changes: Mapping, parameters: Mapping) -> None:
    # papermill itself only logs a parameter that it does not know, and the default figure would
    # come out.
    unknown = sorted(changes.keys() - parameters.keys())
    if unknown:
        raise ValueError(
            f"there is no parameter {', '.join(unknown)}; there are {', '.join(parameters)}"
        )
    for key, value in changes.items():
        if isinstance(parameters[key], int | float) and isinstance(value, str):
            raise ValueError(f"{key} is a number such as {parameters[key]}, not {value!r}")


def plan(names: list[str], scale: str, settings: Mapping) -> tuple[list[Job], list[str]]:
    """The jobs asked for, and the notebooks left out because they are not offered at `scale`."""
    known = sorted(path.stem for path in folder("notebooks").glob("*.py"))
    if not known:
        raise UsageError(f"there is no notebook in {folder('notebooks')}")
    if "scale" in settings:
        raise UsageError("choose the scale with --scale, not with --set")
    jobs, skipped = [], []
    for notebook in select(names, known):
        text = (folder("notebooks") / f"{notebook}.py").read_text(encoding="utf-8")
        changes = overrides(notebook, scale)
        if changes is None:
            skipped.append(notebook)
            continue
        changes = {**changes, **settings}
        try:
            literals = parameters.literals(text)
            _check(changes, literals)
            parts = provenance.fingerprint(notebook, {**literals, **changes})
        except (ValueError, SyntaxError) as error:
            raise UsageError(f"{notebook}: {error}") from None
        jobs.append(Job(notebook, scale, changes, text, parts, bool(settings)))
    if skipped and (names or not jobs):
        raise UsageError(
            f"{', '.join(skipped)}: no section for scale {scale} in scales.toml, so not offered"
        )
    return jobs, skipped


def _data_changes(rows: Iterable[Mapping], demo: bool) -> list[str]:
    real = [row for row in rows if row["source"] != "synthetic"]
    if not real:
        return []
    from lib.data import images, texts
    from lib.networks import bert  # here, since most notebooks need no real data

    finder = dict.fromkeys(images.IMAGES, images.identity) | dict.fromkeys(
        texts.TEXTS, texts.identity
    )
    words = []
    for row in real:
        # Records of the embedded digits from before they stood for one set alone do not say which
        # one was asked for.
        asked = row.get("instead_of", row["name"])
        names = [asked] if asked in finder else list(images.IMAGES)
        try:
            if row.get("kind") == "weights":
                present = [bert.weights(demo=demo).as_row()]
            else:
                present = [finder[name](name, demo=demo) for name in names]
        except (OSError, ValueError) as error:  # the notebook itself reports it best
            words.append(f"data unclear: {row['name']} ({error})")
            continue
        now = next((found for found in present if found["source"] == row["source"]), present[0])
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


def reason(job: Job) -> str | None:
    """Why a job must run, against the marker that its last success left; None when it is up to date."""
    try:
        old = json.loads(job.marker.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return "never run"
    words = ["source changed"] if old["source"] != job.parts["source"] else []
    if modules := _differing(old["lib"], job.parts["lib"]):
        words.append(f"lib changed: {', '.join(modules)}")
    before, now = old["parameters"], job.parts["parameters"]
    if changes := [
        f"{name} {before.get(name)} -> {now.get(name)}" for name in _differing(before, now)
    ]:
        words.append(f"parameters changed: {', '.join(changes)}")
    words += _data_changes(old["data"], demo=job.scale == "demo")
    words += _figure_changes(old["figures"], job.figures)
    return "; ".join(words) or None
