"""What tells two recorded configurations apart."""

import pytest
import yaml

from rlvr_vocab.cli import load_settings
from rlvr_vocab.config.recorded import config_yaml, differences, read_recorded
from rlvr_vocab.errors import UserError

COPIES, STAGES = "model.reasoning_vocab_size=full", "stages=[{name: a}, {name: b, training: {beta: 0.04}}]"


def test_a_section_that_an_older_run_has_not_is_no_difference_while_nothing_is_set_in_it():
    older = {"seed": 1, "training": {"beta": 0.0}}
    unset = {**older, "evaluation": {"grader": None, "threshold": None}}
    assert not list(differences(older, unset)) and not list(differences(unset, older))
    asked = {**older, "evaluation": {"grader": ["numeric"], "threshold": None}}
    assert [key for key, _, _ in differences(older, asked)] == ["evaluation"]


@pytest.mark.parametrize(
    ("words", "pulled"),
    [
        *(
            pytest.param(words, False, marks=pytest.mark.slow)
            for words in ([], [COPIES], ["model.reasoning_vocab_size=0", "training.beta=0.04"])
        ),
        ([COPIES, "training.beta=0.04"], True),
        pytest.param([COPIES, STAGES], True, marks=pytest.mark.slow),
    ],
)
def test_a_run_from_before_texts_were_told_from_ids_goes_on_as_it_was(words, pulled, tmp_path):
    words = ["experiment=quickstart", f"output_dir={tmp_path}", *words]
    resolved = load_settings("train", words).resolved
    del resolved["training"]["kl_over"], resolved["model"]["reasoning_rows"], resolved["model"]["reasoning_rank"]
    del resolved["model"]["hidden_bits"], resolved["training"]["hidden_bits"], resolved["training"]["placebo"]
    del resolved["warmup"]["planted_bits"], resolved["dataset"]["generator"]["modulus"]
    del resolved["dataset"]["generator"]["terms"], resolved["dataset"]["generator"]["partial_sums"]
    (tmp_path / "config.yaml").write_text(config_yaml(resolved))
    assert "kl_over" not in yaml.safe_load((tmp_path / "config.yaml").read_text())["training"]
    copies = "model.reasoning_vocab_size=0" not in words
    over, rows = "ids" if pulled else "text", "independent" if copies else "low_rank"
    assert read_recorded(tmp_path)["training"]["kl_over"] == over
    assert load_settings("train", [f"config={tmp_path}"]).training.kl_over == over
    assert load_settings("train", [f"config={tmp_path}"]).model.reasoning_rows == rows
    if copies:
        with pytest.raises(UserError, match=r"model.reasoning_rows: independent there, low_rank here"):
            load_settings("train", words)
        words = [*words, "model.reasoning_rows=independent"]
    if pulled:
        with pytest.raises(UserError, match=r"\(training.kl_over: ids there, text here\).*allow_changes"):
            load_settings("train", words)
        words = [*words, "training.kl_over=ids"]
    assert load_settings("train", words).model.reasoning_rows == rows
