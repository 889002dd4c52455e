"""The law of the margins on samples of different lengths, and what refuses a mask."""

import numpy as np
import pytest

from lib import attention, svm
from lib.attention import coordinates
from lib.dynamics import NGD
from papers import joint_loss
from papers.atlas import atlas
from papers.law import (
    head_law,
    joint_law,
    lp_law,
    margin_law_runs,
    margin_theorem,
    zero_duals,
)
from papers.law import margin_law as law
from tests.masked import aligned, shown, with_a_token_more

DENSE = attention.gaussian_tokens([4, 9], n=3, T=4, d=40)
MASKED = with_a_token_more(DENSE)


def test_the_law_is_that_without_the_token():
    ours = law.margin_law(MASKED, svm.token_svm(MASKED))
    wanted = law.margin_law(DENSE, svm.token_svm(DENSE))
    for field in ("constant", "norm", "slowest", "fastest", "excess"):
        np.testing.assert_allclose(
            getattr(ours, field), getattr(wanted, field), rtol=1e-8, err_msg=field
        )
    for field in ("offsets", "duals", "coefficients"):
        np.testing.assert_allclose(
            shown(getattr(ours, field), MASKED),
            aligned(getattr(wanted, field)),
            atol=1e-8,
            err_msg=field,
        )
    hidden = coordinates.hidden_pairs(MASKED, MASKED.opt)
    assert not ours.support[hidden].any()


def test_a_run_is_held_against_its_law_as_without_the_token():
    rule = NGD(0.5)
    ours, wanted = (
        margin_law_runs.compare(margin_law_runs.LawSetting("", data, rule), 10_000)
        for data in (MASKED, DENSE)
    )
    for a, b in zip(ours, wanted, strict=True):
        assert not a.refusal and not b.refusal
        np.testing.assert_allclose(a.predicted, b.predicted, rtol=1e-8)
        np.testing.assert_allclose(a.measured.error, b.measured.error, rtol=1e-8)
        np.testing.assert_allclose(a.measured.difference_gap, 0.0, atol=1e-6)


SOLUTION = svm.token_svm(MASKED)
REFUSING = {
    "joint_law.predict": lambda: joint_law.predict(MASKED),
    "head_law.predict": lambda: head_law.predict([MASKED]),
    "the law in l_p norms": lambda: lp_law._LpLaw(MASKED, 3.0),
    "the law at zero duals": lambda: zero_duals._ZeroDuals(MASKED),
    "the theorem on margins": lambda: margin_theorem.Local(
        MASKED, law.margin_law(MASKED, SOLUTION), MASKED.opt, "exponential"
    ),
    "atlas.least_margins": lambda: atlas.least_margins(
        MASKED, MASKED.opt, SOLUTION.W[:, None]
    ),
    "joint_loss.curvature": lambda: joint_loss.curvature(None, MASKED),
    "this measure": lambda: coordinates.differences(MASKED, MASKED.opt),
}


@pytest.mark.parametrize("door", REFUSING)
def test_what_does_not_take_a_mask_says_so(door):
    with pytest.raises(ValueError, match=f"tokens have a mask, which {door} does not"):
        REFUSING[door]()
