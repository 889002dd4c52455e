"""Random mutants are those of their seed and Python that differs, else no share says anything."""

import ast

from tests.mutations import random_mutants


def test_random_mutants_are_drawn_by_their_seed_and_are_python():
    drawn = random_mutants.draw(20, 3)
    assert drawn == random_mutants.draw(20, 3) != random_mutants.draw(20, 4)
    drawn += (some := random_mutants.draw(5, 3, ["lib/svm"]))
    assert all(file.startswith("lib/svm/") for file, *_ in some)
    for file, tests, old, new in drawn:
        assert tests and ast.dump(ast.parse(old)) != ast.dump(ast.parse(new)), file
