"""What is said of a completion, and that nothing a model writes can get out of the document it is shown in."""

import dataclasses
import re
from html.parser import HTMLParser

import pytest

from rlvr_vocab.analysis.samples.documents import PIECES
from rlvr_vocab.analysis.samples.filter import CorrectnessReward
from rlvr_vocab.analysis.samples.sample import Sample, SampleReader, count_tokens
from rlvr_vocab.analysis.samples.widgets import list_line, sample_text
from rlvr_vocab.record.completions import CompletionFiles, SampledCompletion
from rlvr_vocab.record.metrics import RewardFact
from rlvr_vocab.record.probe import ToldByProbe
from rlvr_vocab.visible_text import visible_lines
from rlvr_vocab.vocab.marking import Marker, TextSpan
from rlvr_vocab.vocab.tokenizer import load_tokenizer

HOSTILE = (
    "<script>alert(1)</script> \"'><img src=x onerror=alert(1)>\n",
    "nul \0 bell \a escape \x1b[2J\x1b]0;title\x07 return \r end\n",
    "right to left \u202e gpj.exe \u2066 zero \u200b width\ufeff\n",
    "```\n````\n~~~~\n# heading\n--- step 1, completion 1\nreward: 99\n",
    "\\input{/etc/passwd} \\end{document} 50% of $x_1^2$ & #1 ~ {}`'\"--<<\n",
    "[red]markup[/red] [@click=quit()]x[/] {{ 7 * 7 }} {0} {title} %s\n",
    "日本語 🙂 café " + "x" * 300,
)
CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200b\ufeff]")


def sample_of(text, spans=None):
    """A sample every field of which is hostile."""
    own = SampledCompletion(3, 2, text, text, text, 0.5, -1.25, {"accuracy": 0.5}, {"accuracy": text}, [], [])
    return Sample(own, spans or (TextSpan(text, 0), TextSpan(text, 1), TextSpan(text, 9)), None, False, {})


def written(form, samples):
    return "".join(PIECES[form](samples, "2 completions of out/run: contains='<b>'", None))


def test_the_facts_of_a_completion(finished_run):
    marker = Marker.from_folder(finished_run / "initial_model")
    rewards = (RewardFact("accuracy", 2.0, False), RewardFact("speed", 1.0, True))
    reader = SampleReader(rewards, CorrectnessReward("accuracy", 1.0), marker)
    files = CompletionFiles(finished_run / "completions")
    facts = dict(reader.sample(files.read_row(10, 1)).facts())
    assert facts["reward"] == "1.1, right (advantage +1.000)" and facts["gold answer"] == "1"
    assert facts["accuracy"] == "1 × 2: equal" and facts["speed"] == "0.1 × adaptive weight"
    counted = r"\d+: \d+ thinking \(\d+ of them reasoning tokens\), \d+ answering; ended by itself"
    assert re.fullmatch(counted, facts["tokens"])
    wrong = dict(reader.sample(files.read_row(10, 8)).facts())
    assert wrong["reward"].startswith("0.1, wrong") and wrong["accuracy"] == "0 × 2: different: 0 is not it"
    unmarked = dataclasses.replace(reader, marker=None).sample(files.read_row(10, 1))
    assert "tokens" not in dict(unmarked.facts()) and [each.copy_index for each in unmarked.spans] == [0]


def test_choices_that_were_not_chance_are_marked_and_summed(model_folder):
    marker, tokenizer = Marker.from_folder(model_folder), load_tokenizer(model_folder)
    a, b = (tokenizer.encode(letter)[0] for letter in "ab")
    own = SampledCompletion(*(1, 1, "", "aba", "", 0.0, 0.0), completion_ids=[a, b, a], choice_bits=[0.01, 1.5, 0.05])
    sample = SampleReader((), None, marker).sample(own)
    assert dict(sample.facts())["choices of ids"] == "1.56 bits from chance, 0.1 or more at 1 token"
    assert written("text", [sample]).endswith("    a⟪b⟫a\n")
    assert 'a<span class="chosen" title="standard, chosen">b</span>a' in written("html", [sample])
    text = sample_text(sample, colour=True)
    underlined = [text.plain[span.start : span.end] for span in text.spans if "underline" in str(span.style)]
    assert underlined == ["chosen, not by chance", "b"]
    before = SampleReader((), None, marker).sample(dataclasses.replace(own, choice_bits=()))
    assert "choices of ids" not in dict(before.facts()) and [each.text for each in before.spans] == ["aba"]


def test_a_document_says_what_a_probe_has_found(model_folder):
    probe = ToldByProbe("carries meaning", "The <choices> tell.")
    for form in ("text", "md"):
        assert "probe: The <choices> tell.\n" in "".join(PIECES[form]([], "none", probe))
        assert "probe: " not in written(form, [])
    page = "".join(PIECES["html"]([], "none", probe))
    assert "The &lt;choices&gt; tell." in page
    assert 'id="probe"' not in written("html", [])


def test_a_function_without_a_score_says_so():
    own = SampledCompletion(1, 1, "", "", "", 0.0, 0.0, {"accuracy": None})
    facts = dict(SampleReader((), CorrectnessReward("accuracy", 1.0)).sample(own).facts())
    assert facts["accuracy"] == "no score" and facts["reward"] == "0 (advantage +0.000)"


def test_tokens_are_counted_in_the_region_in_which_they_were_chosen(model_folder):
    layout = Marker.from_folder(model_folder).layout
    counts = count_tokens([9, layout.think_open_id], [5, layout.standard_size, layout.think_close_id, 9], layout)
    assert (counts.thinking, counts.reasoning, counts.answering) == (3, 1, 1)
    assert count_tokens([layout.think_open_id, *layout.turn_ids], [5, 9], layout).thinking == 0


def test_a_completion_that_does_not_end_with_an_end_was_cut_off(model_folder):
    layout = Marker.from_folder(model_folder).layout
    end = next(each for each in layout.control_ids if each not in (layout.think_open_id, layout.think_close_id))
    assert count_tokens([], [5, end], layout).ended
    assert not any(count_tokens([], ids, layout).ended for ids in ([5], [end, 5], [layout.think_close_id], []))


@pytest.mark.parametrize("form", ["text", "html", "md"])
def test_no_document_holds_a_character_that_a_screen_obeys(form):
    assert not CONTROL.search(written(form, [sample_of(text) for text in HOSTILE]))


class Page(HTMLParser):
    """The tags of a page, and the text of each of its prompts."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.prompts, self.in_prompt = [], [], False
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, *sorted(name for name, _ in attrs)))
        self.in_prompt = ("class", "prompt") in attrs
        if self.in_prompt:
            self.prompts.append("")

    def handle_endtag(self, tag):
        self.in_prompt = False

    def handle_data(self, data):
        if self.in_prompt:
            self.prompts[-1] += data


def test_html_has_only_our_tags_and_all_of_the_text():
    harmless = Page(written("html", [sample_of("harmless")] * len(HOSTILE)))
    hostile = Page(written("html", [sample_of(text) for text in HOSTILE]))
    assert hostile.tags == harmless.tags
    assert hostile.prompts == [visible_lines(text) for text in HOSTILE]
    assert not {"src", "onerror"} & {name for _, *names in hostile.tags for name in names}


def test_markdown_fences_hold_what_is_in_them():
    lines, blocks, fence = written("md", [sample_of(text) for text in HOSTILE]).split("\n"), 0, None
    for line in lines:
        run = re.match(r"`{3,}", line)
        if fence is None and run:
            fence, blocks = run[0], blocks + 1
        elif fence is None:
            assert re.fullmatch(r"|# Completions|## Step 3, completion 2|Prompt:|Completion:", line), line
        elif run and len(run[0]) >= len(fence) and not line.strip("` "):
            fence = None
    assert fence is None and blocks == 1 + 3 * len(HOSTILE)


def test_text_indents_what_is_not_ours():
    lines = written("text", [sample_of(text) for text in HOSTILE]).split("\n")
    assert [line for line in lines if line.startswith("---")] == ["--- step 3, completion 2"] * len(HOSTILE)
    assert sum(line.startswith("reward:") for line in lines) == len(HOSTILE)


def test_the_screen_shows_no_markup_of_the_model_and_every_copy_in_a_colour_of_its_own():
    text = sample_text(sample_of(HOSTILE[5]), colour=True)
    assert text.plain.count("[red]markup[/red]") == 6  # verdict reason, gold answer, prompt, three spans
    styles = {str(span.style) for span in text.spans}
    assert {"bold magenta", "bold yellow"} <= styles and not any("red" in style for style in styles)
    marked = sample_text(sample_of("x"), colour=False).plain
    assert marked.endswith("x⟦x⟧⟦9:x⟧") and "copy 1" in marked


def test_a_line_of_the_list():
    assert list_line((12, 3), 0.5, 1, "<think>") == "    12    3      0.5 ✓  <think>"
