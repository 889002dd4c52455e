"""Wrong worlds of the laws: a claim must notice a change of any number on which it
rests.
"""

import warnings
from copy import copy

import numpy as np


def caught(true, wrong):
    """Return, per wrong world, the ids of the claims that hold in the true one and fail
    in it.
    """
    holding = {claim.id for claim in true if claim.holds}
    return {
        world: [claim.id for claim in claims if not claim.holds and claim.id in holding]
        for world, claims in wrong.items()
    }


def caught_after(things, claims_of, changes):
    """Return `caught` for claims on a list of things, in worlds that each change every
    thing.
    """
    wrong = {
        world: claims_of([change(t) for t in things])
        for world, change in changes.items()
    }
    return caught(claims_of(things), wrong)


def but(record, **changes):
    """Copy nested records with parts changed, as in but(c, law__norm=2.0).

    A change that is a function is applied to the part.
    """
    changed = copy(record)
    for path, change in changes.items():
        name, _, rest = path.partition("__")
        part = getattr(changed, name)
        if rest:
            new = but(part, **{rest: change})
        else:
            new = change(part) if callable(change) else change
        if isinstance(changed, tuple):
            changed = changed._replace(**{name: new})
        else:
            vars(changed)[name] = new  # set on a copy; the record itself may be frozen
    return changed


def numbers(record, above=""):
    """Return the paths of numbers and arrays of numbers in nested records."""
    for name, part in (
        record._asdict() if isinstance(record, tuple) else vars(record)
    ).items():
        if isinstance(part, float | np.ndarray) and np.asarray(part).dtype.kind == "f":
            yield above + name
        elif type(part).__module__.startswith(
            ("papers.law", "papers.atlas", "lib.svm")
        ):
            yield from numbers(part, f"{above}{name}__")


SLIGHT = {  # ways in which a number or an array is wrong by the factor 1 + `by`
    "large": lambda x, by: (1 + by) * x,
    "small": lambda x, by: x / (1 + by),
    # over a decade by 0.1 in the exponent
    "tilted": lambda x, _: (
        x * np.linspace(1, 1.25, np.shape(x)[-1]) if np.ndim(x) else x
    ),
    "large at first": lambda x, by: (
        np.concatenate([(1 + by) * x[:1], x[1:]]) if np.ndim(x) else x
    ),
}
COARSE = {"raised": lambda x, by: x + by, "a hundredth": lambda x, by: x / 100}


def amiss(things, claims_of, by=0.03, bounds=()):
    """Return claims that fail, and claims that hold whichever number of every thing is
    wrong.

    Claims whose ids begin with one of `bounds` may need a number that is wrong by far.
    """
    worlds = {
        (way, path): lambda thing, path=path, of=of: but(
            thing, **{path: lambda x: of(x, by)}
        )
        for path in numbers(things[0])
        for way, of in (SLIGHT | COARSE).items()
    }
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a wrong world may divide by zero here
        noticed = caught_after(things, claims_of, worlds)
    noticing = {
        id
        for (way, _), ids in noticed.items()
        for id in ids
        if way in SLIGHT or id.startswith(tuple(bounds))
    }
    return [c.id for c in claims_of(things) if not (c.holds and c.id in noticing)]
