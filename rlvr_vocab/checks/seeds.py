"""What a seed may be: every generator of random numbers in use has to take it."""

from __future__ import annotations

from rlvr_vocab.config.command_sections import CompareSettings, DoctorSettings, ReportSettings, SamplesSettings
from rlvr_vocab.config.load import MergeSettings, Settings
from rlvr_vocab.errors import UserError

# NumPy takes seeds of 32 bits, and those of later stages and of other processes are counted up from this one.
LARGEST_SEED = 2**31 - 1
_DRAW_NOTHING = (MergeSettings, SamplesSettings, DoctorSettings, ReportSettings, CompareSettings)


def check_seeds(settings: Settings) -> None:
    """Refuse a seed that some generator would not take.

    Raises:
        UserError: naming the key, what was given and the bounds.
    """
    if not isinstance(settings, _DRAW_NOTHING) and not 0 <= settings.seed <= LARGEST_SEED:
        raise UserError(f"seed={settings.seed}: must be from 0 to {LARGEST_SEED}")
