"""The pages in the terminal, driven by keys alone."""

import asyncio
import shutil
import time

import pandas as pd
import pytest
from textual.widgets import Input

from rlvr_vocab.analysis.samples.app import SamplesApp
from rlvr_vocab.analysis.samples.browser import View
from rlvr_vocab.analysis.samples.filter import CorrectnessReward, SampleFilter
from rlvr_vocab.analysis.samples.sample import SampleReader
from rlvr_vocab.record.completions import CompletionFiles
from rlvr_vocab.record.metrics import RewardFact
from rlvr_vocab.vocab.marking import Marker

HOSTILE = "[red]x[/red] [@click=app.quit]y[/] \x1b[2J\x1b]0;t\x07 \0 \u202e <script>"


def app_of(run, sample_filter=None):
    reader = SampleReader((RewardFact("accuracy", 1.0, False),), CorrectnessReward("accuracy", 1.0))
    model = run / "initial_model"
    return SamplesApp(
        CompletionFiles(run / "completions"),
        View(sample_filter or SampleFilter(), "file"),
        reader,
        lambda: Marker.from_folder(model),
    )


def played(app, *keys, size=(100, 30), text=None):
    """Presses keys, types `text` into the line that they open, and gives what the screen says at the end."""

    async def play():
        async with app.run_test(size=size) as pilot:
            await settled(app, pilot)
            for key in keys:
                await pilot.press(key)
                await settled(app, pilot)
            if text is not None:
                await pilot.press(*(["space" if each == " " else each for each in text]), "enter")
                await settled(app, pilot)
            return screen(app)

    return asyncio.run(play())


async def settled(app, pilot):
    """Until threads have told what they found; a busy machine may take its time."""
    deadline = time.monotonic() + 20
    while (app.browser.search.steps_left or app.reader.marker is None) and time.monotonic() < deadline:
        await pilot.pause(0.01)
    await pilot.pause()


def screen(app):
    return "\n".join(str(app.screen.query_one(name).render()) for name in ("SampleList", "#text", "#status"))


# Pressed one after the other, each with the completion that it leads to.
WALK = [
    *(("n", (1, 2)), ("right", (1, 3)), ("left", (1, 2)), ("p", (1, 1))),
    *(("G", (50, 64)), ("home", (1, 1)), ("end", (50, 64)), ("g", (1, 1))),
    *(("right_square_bracket", (2, 1)), ("left_square_bracket", (1, 1)), ("n", (1, 2)), ("r", (1, 2))),
    *(("c", (1, 2)), ("G", (41, 8)), ("c", (1, 2))),
    *(("o", (1, 5)), ("o", (50, 1)), ("o", (1, 1))),  # lowest, highest, as sampled
]


def test_keys_lead_to_completions(finished_run):
    app = app_of(finished_run)

    async def play():
        async with app.run_test(size=(100, 30)) as pilot:
            await settled(app, pilot)
            for number, (key, sample_id) in enumerate(WALK):
                await pilot.press(key)
                await settled(app, pilot)
                assert app.browser.sample_id == sample_id, WALK[: number + 1]
                assert f"step {sample_id[0]}, completion {sample_id[1]}" in screen(app)

    asyncio.run(play())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "text", "status"),
    [
        ("s", "99999999999999999999", "3,137 of 3,200"),
        ("slash", "step 33", "1 of 64 · as sampled · only contains='step 33'"),
        ("f", "verdict=rihgt", "did you mean right?"),
    ],
)
def test_what_is_typed_is_found_or_answered(finished_run, key, text, status):
    assert status in played(app_of(finished_run), key, text=text)


def test_a_filter_is_shown_to_be_changed_and_keeps_the_place(finished_run):
    app = app_of(finished_run, SampleFilter(verdict="right"))

    async def play():
        async with app.run_test() as pilot:
            await settled(app, pilot)
            await pilot.press("n", "f")
            await pilot.pause()
            typed = app.query_one("#typed", Input)
            shown = typed.value
            typed.value = ""
            await pilot.press("enter")
            await settled(app, pilot)
            return shown

    assert asyncio.run(play()) == "verdict=right"
    assert app.browser.sample_id == (1, 2) and len(app.browser.matches) == 3200


def test_escape_leaves_a_question_and_letters_are_keys_again(finished_run):
    app = app_of(finished_run)
    played(app, "slash", "n", "escape", "n")
    assert app.browser.sample_id == (1, 2) and app.browser.view.sample_filter == SampleFilter()


def test_without_colour_there_are_marks(finished_run, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    assert "⟦2:" in played(app_of(finished_run))


def test_help_opens_and_closes(finished_run):
    app = app_of(finished_run)

    async def play():
        async with app.run_test() as pilot:
            await pilot.press("question_mark")
            await pilot.pause()
            opened = type(app.screen).__name__
            await pilot.press("q")
            await pilot.pause()
            return opened, len(app.screen_stack)

    assert asyncio.run(play()) == ("HelpPage", 1)


def test_any_size_of_terminal_will_do(finished_run):
    app = app_of(finished_run)

    async def play():
        async with app.run_test(size=(120, 40)) as pilot:
            await settled(app, pilot)
            for size in ((20, 6), (200, 60), (1, 1), (80, 24)):
                await pilot.resize_terminal(*size)
                await pilot.press("n", "pagedown", "space", "up")
                await settled(app, pilot)
            return screen(app)

    assert "step 1, completion" in asyncio.run(play())


def test_the_list_follows_the_reader(finished_run):
    said = played(app_of(finished_run), "G", size=(80, 20)).split("\n")
    assert said[0].split() == ["step", "row", "reward", "completion"]
    assert said[1].split()[:2] == ["50", "60"] and said[5].split()[:2] == ["50", "64"]
    assert "79 and one, step 50" not in said[5] and "<think>7 and one, step 50" in said[5]


def test_space_reads_on_to_the_end_and_then_the_next_one(finished_run):
    app = app_of(finished_run)
    played(app, *["space"] * 6, size=(80, 12))
    assert app.browser.sample_id[1] > 1


@pytest.fixture
def going_on(finished_run, tmp_path):
    """A run with two steps so far, to write into."""
    (tmp_path / "completions").mkdir()
    (tmp_path / "initial_model").symlink_to(finished_run / "initial_model")
    for step in (1, 2):
        shutil.copy(finished_run / "completions" / f"step_{step:05d}.parquet", tmp_path / "completions")
    return tmp_path


def test_new_steps_come_when_they_are_asked_for(going_on, finished_run):
    app = app_of(going_on)

    async def play():
        async with app.run_test() as pilot:
            await settled(app, pilot)
            shutil.copy(finished_run / "completions" / "step_00003.parquet", going_on / "completions")
            (going_on / "completions" / "step_00004.parquet").write_bytes(b"PAR1 half")
            await pilot.press("n", "r")
            await settled(app, pilot)
            return screen(app)

    assert "2 of 192 · as sampled · 1 file could not be read" in asyncio.run(play())


def test_a_file_that_is_gone_is_said_and_nothing_breaks(going_on):
    app = app_of(going_on)

    async def play():
        async with app.run_test() as pilot:
            await settled(app, pilot)
            (going_on / "completions" / "step_00002.parquet").unlink()
            await pilot.press("G")
            await settled(app, pilot)
            return screen(app)

    assert "step_00002.parquet: cannot be read" in asyncio.run(play())


def test_hostile_text_is_shown_and_obeyed_by_nothing(going_on):
    table = pd.read_parquet(going_on / "completions" / "step_00001.parquet")
    size = len(table)
    table["completion"], table["prompt"] = [HOSTILE] * size, [HOSTILE] * size
    table["solution"], table["reason/accuracy"] = [HOSTILE] * size, [HOSTILE] * size
    table["completion_ids"] = [[5]] * size
    table.to_parquet(going_on / "completions" / "step_00001.parquet", index=False)
    said = played(app_of(going_on))
    assert said.count("[red]x[/red] [@click=app.quit]y[/] ␛[2J␛]0;t␇ ␀ <U+202E> <script>") >= 5
    assert not set(said) & {"\x1b", "\0", "\u202e"}


def test_a_run_without_its_model_shows_the_text_and_says_what_is_missing(going_on):
    (going_on / "initial_model").unlink()
    app = app_of(going_on)

    async def play():
        async with app.run_test() as pilot:
            for _ in range(200):
                await pilot.pause(0.01)
                if "copies are not told apart" in screen(app):
                    break
            return screen(app)

    said = asyncio.run(play())
    assert "copies are not told apart" in said and "<think>8 and one, step 1</think>" in said


def test_nothing_found_of_what_was_asked_for_ends_it(going_on):
    app = app_of(going_on, SampleFilter(contains="nowhere"))

    async def play():
        async with app.run_test() as pilot:
            await pilot.pause(0.2)

    asyncio.run(play())
    assert app.return_value is False
