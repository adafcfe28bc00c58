"""What tells two recorded configurations apart, and what one that is not whole has."""

from rlvr_vocab.config.load import read_settings
from rlvr_vocab.config.recorded import differences, read_recorded


def test_bookkeeping_is_no_difference_and_every_other_key_is():
    one = read_settings("train", ["experiment=quickstart"]).resolved
    other = read_settings("train", ["experiment=quickstart", "max_hours=3", "training.beta=0.1", "seed=7"]).resolved
    assert list(differences(one, other)) == [
        ("exp_name", "quickstart_reasoning_full_seed42", "quickstart_reasoning_full_seed7"),
        ("seed", 42, 7),
        ("training.beta", 0.0, 0.1),
    ]


def test_what_a_recorded_file_leaves_out_has_its_default(tmp_path):
    (tmp_path / "config.yaml").write_text("model: {name: m}\ndataset: {name: d}\ntraining: {max_steps: 3}\n")
    recorded = read_recorded(tmp_path, resolve=True)
    assert (recorded["seed"], recorded["model"]["reasoning_mode"], recorded["model"]["name"]) == (42, "expand", "m")
    assert (recorded["training"]["max_steps"], recorded["training"]["max_completion_length"]) == (3, 1024)
