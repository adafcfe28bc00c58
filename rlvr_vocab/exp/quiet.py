"""Keeps the libraries' bars and advice off a screen that shows the run."""

from __future__ import annotations

import os
import warnings


def quiet_libraries() -> None:
    """Errors and warnings of the run stay; `TRANSFORMERS_VERBOSITY` brings the rest back."""
    import datasets
    from transformers.utils import logging

    if "TRANSFORMERS_VERBOSITY" not in os.environ:
        logging.set_verbosity_error()
    logging.disable_progress_bar()
    datasets.disable_progress_bars()
    warnings.filterwarnings("ignore", category=FutureWarning, module="transformers")
    warnings.filterwarnings("ignore", message=".*pin_memory.*")
