"""The doctor beside a run: takes its rows one by one and says what is new."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from rlvr_vocab.analysis.doctor import (
    completion_rules,
    group_rules,
    held_out_rules,
    learning_rules,
    optimizer_rules,
    policy_rules,
    scoring_rules,
    time_rules,
)
from rlvr_vocab.analysis.doctor.causes import explained_by, unexplained
from rlvr_vocab.analysis.doctor.finding import Finding
from rlvr_vocab.analysis.doctor.seen import Seen
from rlvr_vocab.record.metrics import Row, RunFacts, is_step_row

# Roots before what follows from them.
RULES: tuple[Callable[[Seen], list[Finding]], ...] = (
    optimizer_rules.not_finite,
    policy_rules.sampler_disagrees,
    policy_rules.kl_too_far,
    policy_rules.entropy_exploding,
    policy_rules.entropy_collapsing,
    optimizer_rules.learning_rate_zero,
    scoring_rules.verifier_timeouts,
    scoring_rules.rows_unscored,
    scoring_rules.problems_left_out,
    completion_rules.completions_cut_off,
    completion_rules.thinking_never_closed,
    completion_rules.mode_collapse,
    scoring_rules.format_never_met,
    group_rules.groups_without_spread,
    learning_rules.reward_dominated,
    learning_rules.reward_collapsed,
    learning_rules.reward_flat,
    optimizer_rules.weights_not_moving,
    optimizer_rules.gradients_clipped,
    completion_rules.reasoning_tokens,
    time_rules.steps_slow,
)

_UNTIL_A_RISE = "reward_flat"
_OF_A_STAGE = re.compile(r"['\"]?(rewards|training|dataset)\b")


class Doctor:
    """Looks at the rows of one run in their order, in bounded memory.

    Args:
        facts: what the run was to do.
        folder: where it writes, for the few things that no row says.

    Attributes:
        found: everything found so far, explained by something else or not, by name.
    """

    def __init__(self, facts: RunFacts, folder: Path) -> None:
        self.found: dict[str, Finding] = {}
        self._seen = Seen(facts, folder)

    def look(self, row: Row) -> list[Finding]:
        """What this row, of a step or of a measurement, brings to light: no name twice, and nothing that follows from
        something already found."""
        self._seen.add(row)
        if not is_step_row(row):
            return self._new(held_out_rules.held_out_falls(self._seen))
        if self._seen.has_risen:
            self.found.pop(_UNTIL_A_RISE, None)
        return self._new([finding for rule in RULES for finding in rule(self._seen)])

    def close(self, summary: Row) -> list[Finding]:
        """What the outcome of a finished run adds."""
        return self._new(held_out_rules.before_and_after(self._seen, summary))

    def findings(self) -> list[Finding]:
        """All that was found and follows from nothing else, the gravest first; a reward that was flat and has risen
        since was at rest."""
        return unexplained(self.found.values())

    def _placed(self, finding: Finding) -> Finding:
        """The finding, its remedies those that the run's configuration takes and has not got already.

        Each with the stage that it is for, whose own keys go over those of the run.
        """
        facts = self._seen.facts
        taken = [line for line in dict.fromkeys(finding.remedy) if facts.takes(line)]
        lines = [
            f"in stage {facts.stage}: {line}" if facts.stage and _OF_A_STAGE.match(line) else line for line in taken
        ]
        return replace(finding, remedy=tuple(lines))

    def _new(self, findings: list[Finding]) -> list[Finding]:
        new = {finding.name: self._placed(finding) for finding in findings if finding.name not in self.found}
        self.found.update(new)
        explained = explained_by(self.found)
        return unexplained([finding for name, finding in new.items() if name not in explained])
