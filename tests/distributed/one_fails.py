"""Two processes meet; the second finds something wrong that the first, waiting for it, cannot know."""

import sys

from accelerate import PartialState

from rlvr_vocab.errors import UserError, main_process_reports


def meet():
    state = PartialState(cpu=True)
    if state.process_index == 1:
        raise UserError("the second alone knows")
    state.wait_for_everyone()


if __name__ == "__main__":
    try:
        with main_process_reports(seconds=1.0):
            meet()
    except UserError as error:
        print("error:", error, file=sys.stderr)
        raise SystemExit(2) from None
