"""What a seed may be: every generator of random numbers in use has to take it."""

from __future__ import annotations

from collections.abc import Iterator

from rlvr_vocab.errors import UserError
from rlvr_vocab.exp.look_sections import CompareSettings, DoctorSettings, ReportSettings, SamplesSettings
from rlvr_vocab.exp.settings import MergeSettings, RunSettings, Settings

# NumPy takes seeds of 32 bits, and those of later stages and of other processes are counted up from this one.
LARGEST_SEED = 2**31 - 1
_DRAW_NOTHING = (MergeSettings, SamplesSettings, DoctorSettings, ReportSettings, CompareSettings)
_OF_TRAINING = ("seed", "data_seed")


def check_seeds(settings: Settings) -> None:
    """Refuse a seed that some generator would not take.

    Raises:
        UserError: naming the key, what was given and the bounds.
    """
    for key, seed in _seeds(settings):
        if not 0 <= seed <= LARGEST_SEED:
            raise UserError(f"{key}={seed}: must be from 0 to {LARGEST_SEED}")


def _seeds(settings: Settings) -> Iterator[tuple[str, int]]:
    """(key, seed), those of a run's stages with the name of the stage."""
    if isinstance(settings, _DRAW_NOTHING):
        return
    yield "seed", settings.seed
    if isinstance(settings, RunSettings):
        runs = [("", settings), *((f"stage {stage.name}: ", stage.run) for stage in settings.stages)]
        for where, run in runs:
            given = ((key, run.training.grpo.get(key)) for key in _OF_TRAINING)
            yield from ((f"{where}training.{key}", seed) for key, seed in given if seed is not None)
