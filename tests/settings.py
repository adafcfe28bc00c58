"""Settings of a command, composed and checked as by the command line, or the line that refuses them."""

import pytest

from rlvr_vocab.cli import checked_settings
from rlvr_vocab.config.command_line import parse_command_line
from rlvr_vocab.errors import UserError


def load_settings(command, argv):
    return checked_settings(parse_command_line(command, argv))


def refusal(command, argv):
    with pytest.raises(UserError) as caught:
        load_settings(command, argv)
    assert "\n" not in str(caught.value)
    return str(caught.value)
