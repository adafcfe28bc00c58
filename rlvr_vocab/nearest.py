"""What a mistyped word may have been meant to be."""

from collections.abc import Iterable
from difflib import SequenceMatcher

CLOSE_ENOUGH = 0.6
BEGINNING_COUNTS = 0.9  # qwen4 is close to qwen3_0.6b, though half of the letters are missing


def similarity(word: str, known: str) -> float:
    return SequenceMatcher(None, word.lower(), known.lower()).ratio()


def nearest_word(word: str, known: Iterable[str], cutoff: float = CLOSE_ENOUGH) -> str | None:
    """The known word that is most similar, or begins most similarly; None where none reaches `cutoff` (0 to 1)."""

    def score(candidate: str) -> tuple[float, float]:
        whole = similarity(word, candidate)
        return max(whole, BEGINNING_COUNTS * similarity(word, candidate[: len(word)])), whole

    ranked = sorted(known, key=score, reverse=True)
    return ranked[0] if ranked and score(ranked[0])[0] >= cutoff else None


def nearest_keys(key: str, known: Iterable[str]) -> list[str]:
    """The dotted keys most like `key`, by last part or as a whole; several where that is ambiguous."""
    known = list(known)
    last = key.rpartition(".")[2]
    same_last = [candidate for candidate in known if candidate.rpartition(".")[2] == last]
    if same_last:
        by_likeness = sorted(same_last, key=lambda candidate: similarity(key, candidate), reverse=True)
        return sorted(by_likeness, key=lambda candidate: not candidate.startswith("training."))[:3]

    def score(candidate: str) -> tuple[float, float]:
        whole = similarity(key, candidate)
        return max(whole, similarity(last, candidate.rpartition(".")[2])), whole

    ranked = sorted(known, key=score, reverse=True)
    return ranked[:1] if ranked and score(ranked[0])[0] >= CLOSE_ENOUGH else []


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean X?`, or nothing."""
    nearest = nearest_word(word, known)
    return f"; did you mean {nearest}?" if nearest else ""


def nearest_and_all(word: str, known: Iterable[str]) -> str:
    """`; did you mean X? Choices: A, X, Z`, for a short list."""
    known = list(known)
    end = did_you_mean(word, known) or "."
    return f"{end} Choices: {', '.join(known)}" if known else end
