"""Paper C (2410.14581), Section 5: its synthetic settings, and the claims of its figures."""

import numpy as np

from lib.tokens import TokenSet, token_set


def joint_instance() -> TokenSet:
    """The paper's fixed instance of joint training: n = 2, T = 3, d = 2, query the first token, v_0 = 0.

    The opt tokens are not known before the head is: index 0 stands in for them.
    """
    X = [[(-2.7, 1.2), (1.4, 2.1), (1.3, -0.1)], [(0.4, -2.2), (-1.1, -0.4), (0.9, 0.1)]]
    return token_set(X, [1, -1], opt=np.zeros(2, int))
