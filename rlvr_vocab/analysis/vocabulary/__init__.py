"""What became of a reasoning vocabulary: its use, the drift of its rows, entropy by region and token."""

from rlvr_vocab.analysis.vocabulary.data_files import write_story
from rlvr_vocab.analysis.vocabulary.pictures import Picture, pictures
from rlvr_vocab.analysis.vocabulary.story import VocabularyStory
from rlvr_vocab.analysis.vocabulary.tables import Table, tables
from rlvr_vocab.analysis.vocabulary.tell import tell

__all__ = ["Picture", "Table", "VocabularyStory", "pictures", "tables", "tell", "write_story"]
