"""Compare a run's figures with the committed ones.

The module says which figures are reproduced, and copies them if --update is given.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from PIL import Image

from companion import headlines, record
from companion.batch.job import Job
from companion.claims import Claim, Table
from lib import files, provenance


class Result(Enum):
    """What the comparison of a figure with the reference has shown."""

    REPRODUCED = "all numbers and claims are those of the reference"
    DIFFERENT = "a number or a claim differs, or the reference is damaged"
    MISSING = "the reference is missing, although the index says that it is committed"
    NOT_COMPARED = "there is no reference, or it has other parameters or data"


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The result of comparing a figure of a run with the reference.

    Parameters
    ----------
    job : Job
        The run.
    slug : str
        The name of the figure.
    words : str
        The result in words, which is printed.
    result : Result
        The result.
    is_news : bool
        Whether --update copies the figure. It is True if the figure is not reproduced,
        if it has no reference, or if it was made from code, parameters or data that
        differ from the reference's. It is False if parameters were set by --set, or if
        the figure shows embedded data in place of real data.
    """

    job: Job
    slug: str
    words: str
    result: Result
    is_news: bool

    @property
    def copies(self) -> dict[Path, Path]:
        """The run's files, by the paths of the reference files that they replace."""
        names = [f"{self.slug}{end}" for end in record.ENDS]
        return {self.job.reference / name: self.job.results / name for name in names}


def compare(job: Job, slug: str) -> Comparison:
    """Compare a figure of a run with the committed one.

    Parameters
    ----------
    job : Job
        A job that is up to date.
    slug : str
        The name of one of its figures.

    Returns
    -------
    Comparison
        The result. Numbers may differ by the tolerance that the reference states.
        Claims must have the same bound and verdict. Pictures are not compared.

    Raises
    ------
    ValueError
        If the run's own record is damaged. The message names its path.
    """
    new = record.read(job.results / f"{slug}.json")
    words, result, is_news = _compared(job, slug, new)
    hold = Table(map(Claim.of, new["claims"])).summary()
    yours = os.path.relpath(job.results / f"{slug}.png")
    return Comparison(
        job=job,
        slug=slug,
        words=f"{slug}: {words}; {hold}; yours: {yours}",
        result=result,
        is_news=is_news,
    )


def _compared(job: Job, slug: str, new: Mapping) -> tuple[str, Result, bool]:
    """Return the fields words, result and is_news of a `Comparison`.

    The words do not name the figure. `new` is the figure's record from the run.
    """
    if job.settings:
        return "parameters of your own, not compared", Result.NOT_COMPARED, False
    embedded = any(row["source"] == "demo" for row in new["data"])
    if embedded and job.scale != "demo":
        return (
            "not compared, it is of embedded data and not of the real ones",
            Result.NOT_COMPARED,
            False,
        )
    place = job.reference / f"{slug}.json"
    if not os.path.lexists(place):
        if _is_committed(slug, job.scale):
            return f"its reference {place} is missing", Result.MISSING, True
        return "no reference yet; --update adds it", Result.NOT_COMPARED, True
    try:
        old = record.read(place)
        _check_picture(place.with_suffix(".png"), slug, old)
    except ValueError as error:
        return f"the reference is of no use: {error}", Result.DIFFERENT, True

    # Were the same parameters and data used?
    if new["parameters"] != old["parameters"]:
        return f"not compared, {_other_parameters(new, old)}", Result.NOT_COMPARED, True
    if _kinds_of_data(new) != _kinds_of_data(old):
        return "not compared, the data differ", Result.NOT_COMPARED, not embedded

    # Are the results the same?
    differences = [*record.compare(new, old), *record.compare_claims(new, old)]
    fingerprints = [each["provenance"].get("fingerprint") for each in (new, old)]
    is_news = bool(differences) or fingerprints[0] != fingerprints[1]
    redrawn = any(row["source"] == "kept" for row in new["data"])
    begin = "redrawn from kept curves, " if redrawn else ""
    if differences:
        words = f"{begin}not reproduced: {'; '.join(differences)}"
        return words, Result.DIFFERENT, is_news
    numbers = len(old["numbers"])
    claims = len(old["claims"])
    if is_news:
        end = ", by other code or data than the reference's"
    else:
        end = ""
    return (
        f"{begin}reproduced, {numbers} numbers and {claims} claims{end}",
        Result.REPRODUCED,
        is_news,
    )


def _is_committed(slug: str, scale: str) -> bool:
    """Return whether the index says that a figure is committed at a scale.

    The index names the largest committed scale of each figure. A figure that is
    committed at a scale is also committed at each smaller scale at which it is drawn.
    """
    largest = headlines.entry(slug).get("scale")
    if largest not in record.SCALES:
        return False
    return record.SCALES.index(scale) <= record.SCALES.index(largest)


def _check_picture(path: Path, slug: str, saved: Mapping) -> None:
    """Raise ValueError if a picture cannot be read or does not belong to its record.

    A picture belongs to the record if it has the record's fingerprint. The message
    names the picture's path.
    """
    try:
        with Image.open(path) as picture:
            picture.load()
            stamp = picture.info.get("Description", "")
    except (OSError, SyntaxError, ValueError) as error:
        raise ValueError(f"{path} cannot be read: {files.sentence(error)}") from None
    if str(saved["provenance"].get("fingerprint")) not in stamp:
        raise ValueError(f"{path} is the picture of another run than its record")


def _other_parameters(new: Mapping, old: Mapping) -> str:
    """Return, in words, the parameters in which a run differs from the reference."""
    mine = new["parameters"]
    theirs = old["parameters"]
    words = []
    for name in [*theirs, *(name for name in mine if name not in theirs)]:
        if mine.get(name) != theirs.get(name):
            words.append(
                f"{name} is {mine.get(name)!r}, reference {theirs.get(name)!r}"
            )
    return "; ".join(words)


def _kinds_of_data(saved: Mapping) -> list[tuple[str, bool]]:
    """List the data sets by name, and whether each one is an embedded stand-in."""
    return [(row["name"], row["source"] == "demo") for row in saved["data"]]


# Copying.


class Refused(ValueError):
    """The reason why --update copied nothing."""


def update(comparisons: Iterable[Comparison]) -> list[Comparison]:
    """Copy the figures that are new over the reference.

    Parameters
    ----------
    comparisons : iterable of Comparison
        The figures of a batch.

    Returns
    -------
    list of Comparison
        The comparisons whose figures were copied.

    Raises
    ------
    Refused
        If a file that would be overwritten has uncommitted changes, which may be
        somebody's work. In this case nothing is copied.
    OSError
        If a file cannot be read or written. The message names its path. In this case
        nothing is copied.
    """
    news = [comparison for comparison in comparisons if comparison.is_news]
    contents = {}
    for comparison in news:
        for place, own in comparison.copies.items():
            contents[place] = own.read_bytes()
    taken = [
        place for place, content in contents.items() if _has_own_changes(place, content)
    ]
    if taken:
        names = ", ".join(os.path.relpath(place) for place in taken)
        advice = "commit them or take them back"
        raise Refused(
            "--update copied nothing: nobody committed the changes of "
            f"{names}; {advice}"
        )
    files.write_all(contents)
    return news


def _has_own_changes(place: Path, content: bytes) -> bool:
    """Return whether a file differs from the last commit and also from `content`.

    A file that is in no commit differs from the last commit; a missing file does not.
    """
    if not os.path.lexists(place):
        return False
    try:
        if place.read_bytes() == content:
            return False
    except OSError:
        return True  # This is a folder, or a file that we may not read.
    if provenance.git("rev-parse", "HEAD") is None:
        return False  # There is no repository in which the change could be committed.
    # `provenance.git` returns None if git fails. Then we do not know whether the change
    # is committed, and return True.
    return provenance.git("status", "--porcelain", "--ignored", "--", str(place)) != ""
