"""What tells two recorded configurations apart."""

from rlvr_vocab.config.recorded import differences


def test_a_section_that_an_older_run_has_not_is_no_difference_while_nothing_is_set_in_it():
    older = {"seed": 1, "training": {"beta": 0.0}}
    unset = {**older, "evaluation": {"grader": None, "threshold": None}}
    assert not list(differences(older, unset)) and not list(differences(unset, older))
    asked = {**older, "evaluation": {"grader": ["numeric"], "threshold": None}}
    assert [key for key, _, _ in differences(older, asked)] == ["evaluation"]
