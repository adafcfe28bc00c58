"""Pages through the completions of a run in the terminal, by keyboard alone."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import ClassVar, Literal

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import Input, Static
from textual.worker import get_current_worker

from rlvr_vocab.analysis.samples.browser import Browser, View
from rlvr_vocab.analysis.samples.filter import read_filter, read_steps
from rlvr_vocab.analysis.samples.sample import SampleReader
from rlvr_vocab.analysis.samples.search import Matches, SampleId, Search, search_all
from rlvr_vocab.analysis.samples.widgets import (
    SHORT_HELP,
    HelpPage,
    SampleList,
    read_first_lines,
    sample_text,
    status_line,
)
from rlvr_vocab.errors import UserError
from rlvr_vocab.record.completions import CompletionFiles
from rlvr_vocab.vocab.marking import Marker

# What is done at once before the rest is left to a thread: short enough not to be noticed.
_AT_ONCE_SECONDS = 0.02
_SECONDS_BETWEEN_MESSAGES = 0.15

Question = Literal["step", "contains", "filter"]
_HINTS: dict[Question, str] = {
    "step": "step to go to",
    "contains": "text that completions hold; empty: all",
    "filter": "verdict=wrong min_reward=0.5 problem=apples step=10:50 contains=wait; empty: all",
}


class SamplesApp(App[bool]):
    """Returns False where nothing was found of what the command line asked for.

    Args:
        view: what the command line asked for.
        load_marker: loads the marker of the run; called in a thread, since a large tokenizer takes a second.
    """

    AUTO_FOCUS = None
    CSS = """
    SampleList { height: 30%; min-height: 2 }
    #page { height: 1fr; border-top: solid ansi_bright_black; scrollbar-size-vertical: 1 }
    #status, #keys { height: 1; text-wrap: nowrap; text-overflow: ellipsis }
    #status { text-style: reverse }
    #keys { text-style: dim }
    #typed { display: none; height: 1; border: none; padding: 0 }
    """
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n,right", "move(1)"),
        Binding("p,left", "move(-1)"),
        Binding("down,j", "scroll_lines(1)"),
        Binding("up,k", "scroll_lines(-1)"),
        Binding("pagedown", "scroll_pages(1)"),
        Binding("pageup,b", "scroll_pages(-1)"),
        Binding("space", "read_on"),
        Binding("g,home", "move_to(0)"),
        Binding("G,end", "move_to(-1)"),
        Binding("right_square_bracket", "move_step(1)"),
        Binding("left_square_bracket", "move_step(-1)"),
        Binding("s", "ask('step')"),
        Binding("slash", "ask('contains')"),
        Binding("f", "ask('filter')"),
        Binding("o", "next_order"),
        Binding("c", "compare"),
        Binding("r", "look_again"),
        Binding("question_mark", "help"),
        Binding("escape", "leave"),
        Binding("q", "quit"),
        Binding("ctrl+c", "quit", priority=True),
    ]

    def __init__(
        self, files: CompletionFiles, view: View, reader: SampleReader, load_marker: Callable[[], Marker]
    ) -> None:
        super().__init__(ansi_color=True)
        self.files, self.reader = files, reader
        self.browser = Browser(files, view, reader.correctness)
        self._load_marker = load_marker
        self._shown: SampleId | None = None
        self._question: Question = "filter"
        self._is_first_view = True
        self._note = ""
        self._in_colour = "NO_COLOR" not in os.environ

    def compose(self) -> ComposeResult:
        yield SampleList()
        with VerticalScroll(id="page", can_focus=False):
            yield Static(id="text", markup=False)
        yield Static(id="status", markup=False)
        yield Input(id="typed", compact=True)
        yield Static(SHORT_HELP, id="keys", markup=False)

    def on_mount(self) -> None:
        self._run_search(self.browser.search)
        # No worker: whoever quits before it is loaded need not wait for it.
        threading.Thread(target=self._load, daemon=True).start()

    def on_resize(self) -> None:
        self.call_after_refresh(self._show_list)

    # --- searching: at once where that is quick, the rest in a thread that sends what it finds ---

    def _run_search(self, search: Search) -> None:
        deadline = time.monotonic() + _AT_ONCE_SECONDS
        for _ in search_all(search):
            if time.monotonic() > deadline:
                break
        self._take(search, search.found())
        if search.steps_left:
            self.run_worker(partial(self._continue_search, search), thread=True, group="search", exclusive=True)

    def _continue_search(self, search: Search) -> None:
        worker, last_message = get_current_worker(), time.monotonic()
        for _ in search_all(search):
            if worker.is_cancelled:
                return
            if time.monotonic() - last_message > _SECONDS_BETWEEN_MESSAGES:
                self.call_later(self._take, search, search.found())
                last_message = time.monotonic()
        self.call_later(self._take, search, search.found())

    def _take(self, search: Search, matches: Matches) -> None:
        if search is not self.browser.search:
            return  # another one has begun since
        self.browser.take(matches)
        if not search.steps_left and not len(matches) and self._is_first_view:
            self.exit(False)
        self._show()

    def _show_view(self, view: View, wanted: SampleId | None = None) -> None:
        self._is_first_view = False
        self._run_search(self.browser.start_search(view, wanted))

    # --- showing ---

    def _show(self) -> None:
        if self.browser.sample_id != self._shown:
            self._note = ""
            self._show_page()
        self.call_after_refresh(self._show_list)
        self._show_status()

    def _show_page(self) -> None:
        sample_id = self._shown = self.browser.sample_id
        text = Text()
        try:
            if sample_id is not None:
                text = sample_text(self.reader.sample(self.files.read_row(*sample_id)), colour=self._in_colour)
        except UserError as error:
            self._note = str(error)
        self.query_one("#text", Static).update(text)
        self.query_one("#page").scroll_home(animate=False)

    def _show_list(self) -> None:
        pane = self.query_one(SampleList)
        deadline = time.monotonic() + _AT_ONCE_SECONDS
        missing = pane.show_around(self.browser.matches, self.browser.index)
        while missing and time.monotonic() < deadline:
            step = missing.pop(0)
            pane.keep_lines(step, read_first_lines(self.files, step))
        pane.draw()
        if missing:
            self.run_worker(partial(self._read_lines, missing), thread=True, group="first lines", exclusive=True)

    def _read_lines(self, steps: Sequence[int]) -> None:
        worker = get_current_worker()
        for step in steps:
            if worker.is_cancelled:
                return
            self.call_later(self._keep_lines, step, read_first_lines(self.files, step))

    def _keep_lines(self, step: int, lines: Sequence[str]) -> None:
        pane = self.query_one(SampleList)
        pane.keep_lines(step, lines)
        pane.draw()

    def _show_status(self) -> None:
        self.query_one("#status", Static).update(status_line(self.browser, self._note))

    # --- the marker, loaded in a thread ---

    def _load(self) -> None:
        try:
            self.call_later(self._set_marker, self._load_marker())
        except UserError as error:
            self.call_later(self._set_marker, None, f"copies are not told apart: {error}")

    def _set_marker(self, marker: Marker | None, note: str = "") -> None:
        self.reader = replace(self.reader, marker=marker)
        self._show_page()
        self._note = note
        self._show_status()

    # --- keys ---

    def action_move(self, by: int) -> None:
        self.browser.move(by)
        self._show()

    def action_move_to(self, index: int) -> None:
        self.browser.move_to(index)
        self._show()

    def action_move_step(self, direction: int) -> None:
        self.browser.move_step(direction)
        self._show()

    def action_scroll_lines(self, lines: int) -> None:
        self.query_one("#page").scroll_relative(y=lines, animate=False)

    def action_scroll_pages(self, pages: int) -> None:
        page = self.query_one("#page")
        page.scroll_relative(y=pages * max(1, page.scrollable_content_region.height - 1), animate=False)

    def action_read_on(self) -> None:
        page = self.query_one("#page")
        if page.scroll_offset.y >= page.max_scroll_y:
            self.action_move(1)
        else:
            self.action_scroll_pages(1)

    def action_next_order(self) -> None:
        self._show_view(self.browser.reordered())

    def action_compare(self) -> None:
        try:
            search = self.browser.toggle_compare()
        except UserError as error:
            self._say(str(error))
            return
        if search is not None:
            self._is_first_view = False
            self._run_search(search)

    def action_look_again(self) -> None:
        self.files.refresh()
        self.query_one(SampleList).forget_lines()
        self._shown = None
        self._show_view(self.browser.view, self.browser.sample_id)

    def action_help(self) -> None:
        self.push_screen(HelpPage())

    # --- questions, answered in the line below the status ---

    def action_ask(self, question: Question) -> None:
        self._question = question
        typed, sample_filter = self.query_one("#typed", Input), self.browser.view.sample_filter
        typed.value = {"step": "", "contains": sample_filter.contains or "", "filter": sample_filter.as_typed}[question]
        typed.placeholder = _HINTS[question]
        typed.display = True
        typed.focus()

    def action_leave(self) -> None:
        typed = self.query_one("#typed", Input)
        typed.display = False
        self.set_focus(None)

    def on_input_submitted(self, message: Input.Submitted) -> None:
        self.action_leave()
        try:
            self._answer(message.value.strip())
        except UserError as error:
            self._say(str(error))

    def _answer(self, typed: str) -> None:
        sample_filter = self.browser.view.sample_filter
        if self._question == "contains":
            self._show_view(
                self.browser.filtered(replace(sample_filter, contains=typed or None)), self.browser.sample_id
            )
        elif self._question == "filter":
            self._show_view(self.browser.filtered(read_filter(typed)), self.browser.sample_id)
        elif typed:
            first, _ = read_steps(typed)
            self.browser.go_to_step(int(first))
            self._show()

    def _say(self, note: str) -> None:
        self._note = note
        self._show_status()
