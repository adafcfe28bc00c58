"""What became of a reasoning vocabulary: its use, the drift of its rows, entropy by region and token."""

from rlvr_vocab.analysis.vocabulary.analyse import analyse_vocabulary
from rlvr_vocab.analysis.vocabulary.charts import Picture, pictures
from rlvr_vocab.analysis.vocabulary.files import write_analysis
from rlvr_vocab.analysis.vocabulary.results import VocabularyAnalysis
from rlvr_vocab.analysis.vocabulary.tables import Table, tables

__all__ = ["Picture", "Table", "VocabularyAnalysis", "analyse_vocabulary", "pictures", "tables", "write_analysis"]
