"""What became of a reasoning vocabulary: its use, the drift of its rows, entropy by region and token."""

from rlvr_vocab.analysis.vocabulary.analyse import analyse_vocabulary
from rlvr_vocab.analysis.vocabulary.charts import vocabulary_charts
from rlvr_vocab.analysis.vocabulary.files import write_analysis
from rlvr_vocab.analysis.vocabulary.results import VocabularyAnalysis
from rlvr_vocab.analysis.vocabulary.tables import vocabulary_tables

__all__ = ["VocabularyAnalysis", "analyse_vocabulary", "vocabulary_charts", "vocabulary_tables", "write_analysis"]
