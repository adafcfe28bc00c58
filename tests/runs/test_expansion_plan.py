"""What a run's settings say of its vocabulary arrives in the layout of its model."""

from rlvr_vocab.config.load import read_settings
from rlvr_vocab.runs.model import untrained_plan
from rlvr_vocab.vocab.layout import VocabLayout


def test_a_limit_on_choices_arrives_in_the_layout_and_in_its_file(tmp_path):
    words = ["model.hidden_bits=0.25", "model.reasoning_mode=expand", f"output_dir={tmp_path / 'run'}"]
    settings = read_settings("quickstart", words)
    layout = untrained_plan(settings.model, settings.seed, settings.dataset).layout
    assert layout.hidden_bits == 0.25 and layout.size
    layout.save(tmp_path)
    assert VocabLayout.load(tmp_path) == layout


def test_a_baseline_has_no_choice_to_limit(tmp_path):
    words = ["model.hidden_bits=0", "model.reasoning_vocab_size=0", f"output_dir={tmp_path / 'run'}"]
    settings = read_settings("quickstart", words)
    assert untrained_plan(settings.model, settings.seed, settings.dataset).layout.hidden_bits is None
