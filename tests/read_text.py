"""What no text that people read may hold: values as Python writes them, nouns and verbs that do not go together."""

import re

PYTHON = re.compile(r"\{'|\['|': |\b(?:None|True|False|nan)\b")
NUMBER = re.compile(
    r"(?<![\d.,−-])1 (?:problems|rows|runs|steps|answers|keys|tokens|pairs|completions|seconds|are|were|have)\b"
)


def faults_in(text: str) -> list[str]:
    """Each with the words around it."""
    found = (match for each in (PYTHON, NUMBER) for match in each.finditer(text))
    return [text[max(match.start() - 40, 0) : match.end() + 40] for match in found]
