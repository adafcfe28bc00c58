"""A judge behind a small server that answers, answers garbage, refuses, breaks and hangs."""

import json
import sqlite3
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from rlvr_vocab.errors import UserError
from rlvr_vocab.rewards.library import judge
from rlvr_vocab.rewards.library.judge import llm_judge

KEY = "sk-notakey0123456789abcdef"


class Server(ThreadingHTTPServer):
    """Says by the completion in a request what becomes of it."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests, self.keys = [], set()
        self.url = f"http://127.0.0.1:{self.server_port}/v1"


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        word = request["messages"][1]["content"].split("=====")[1].strip()
        self.server.requests.append(request)
        self.server.keys.add(self.headers.get("Authorization"))
        times = sum(word in sent["messages"][1]["content"] for sent in self.server.requests)
        match word:
            case "garbage":
                self.say("<html>")
            case "words":
                self.chat("I like it.")
            case "too much":
                self.chat("Score: 11")
            case "busy":
                self.chat("Score: 5") if times > 1 else self.say("busy", 429, {"Retry-After": "0"})
            case "broken":
                self.chat("Score: 6") if times > 2 else self.say("broken", 500)
            case "refused":
                self.say(f"who is {KEY}?", 401)
            case "hangs":
                time.sleep(30)
            case "drips":
                self.say("")
                for _ in range(100):
                    self.wfile.write(b" ")
                    self.wfile.flush()
                    time.sleep(0.1)
            case _:
                self.chat("It is good.\n**Score: 9**")

    def chat(self, text):
        self.say(json.dumps({"choices": [{"message": {"content": text}}]}))

    def say(self, text, status=200, headers=None):
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text.encode())


@pytest.fixture
def ask(tmp_path, monkeypatch):
    """`ask(*completions, **parameters)` with a server's url, model and rubric; `ask.server` is the server."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setattr(judge, "_FIRST_WAIT", 0.01)
    monkeypatch.setattr(judge._Asker, "_sent", 0)
    with Server() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()

        def ask(*completions, **parameters):
            given = {"url": server.url, "model": "m", "rubric": "Is it good?", "cache": str(tmp_path / "judge.sqlite")}
            prompts = ["What?"] * len(completions)
            return llm_judge.explain(prompts=prompts, completions=list(completions), **{**given, **parameters})

        ask.server, ask.cache = server, tmp_path / "judge.sqlite"
        yield ask
        server.shutdown()


def test_what_a_judge_says_is_a_score_from_0_to_1_or_none_with_a_reason(ask):
    scores = ask("fine", "garbage", "words", "too much", "busy", "broken", "refused")
    assert [score.value for score in scores] == [0.9, None, None, None, 0.5, 0.6, None]
    assert [score.reason for score in scores][1:4] == [
        "the judge's server answered with no chat: <html>",
        "the judge gave no score: 'I like it.'",
        "the judge's score 11 is not from 0 to 10",
    ]
    assert scores[-1].reason == "the judge's server answered 401: who is ***?"


def test_a_server_that_stays_broken_is_asked_so_often_and_no_more(ask):
    [score] = ask("broken", retries=1)
    assert (score.value, score.reason, len(ask.server.requests)) == (
        None,
        "the judge's server answered 500: broken",
        2,
    )
    [score] = ask("fine", url="http://127.0.0.1:9/v1", retries=1)
    assert score.value is None and score.reason.startswith("no answer: ")


def test_nothing_waits_beyond_the_deadline(ask):
    begun = time.monotonic()
    scores = ask("hangs", "drips", "fine", deadline=2.0)
    assert time.monotonic() - begun < 4.0
    assert [(score.value, score.timed_out) for score in scores] == [(None, True), (None, True), (0.9, False)]


def test_no_completion_is_judged_twice_and_failures_are_not_kept(ask):
    ask("fine", "words")
    ask("fine", "words", "better")
    assert len(ask.server.requests) == 4
    ask("fine", rubric="Is it short?")
    ask("fine", max_tokens=99)
    ask("fine", model="n")
    ask("fine", solution=["yes"])
    assert len(ask.server.requests) == 8


def test_the_request_is_what_the_protocol_wants_and_the_key_stays_out_of_the_cache(ask):
    ask("fine", scale=(1, 5), solution=["42"])
    [request] = ask.server.requests
    assert (request["model"], request["temperature"]) == ("m", 0)
    system, user = (message["content"] for message in request["messages"])
    assert "Is it good?" in system and "from 1 to 5" in system and "42" in user and "What?" in user
    assert ask.server.keys == {f"Bearer {KEY}"}
    with sqlite3.connect(ask.cache) as database:
        kept = database.execute("SELECT * FROM answers").fetchall()
    assert kept == [] and KEY.encode() not in ask.cache.read_bytes()  # 9 is not from 1 to 5


def test_a_budget_ends_the_asking(ask):
    scores = ask("a", "b", "c", budget=2, concurrency=1)
    assert [score.value for score in scores] == [0.9, 0.9, None]
    assert scores[2].reason == "the budget of 2 requests is spent"


@pytest.mark.parametrize(
    "parameter",
    [{"url": None}, {"model": None}, {"rubric": None}, {"url": "localhost"}, {"scale": [5, 1]}, {"deadline": 0}],
)
def test_a_wrong_parameter_is_refused(ask, parameter):
    with pytest.raises(UserError, match=f"llm_judge: {next(iter(parameter))}"):
        ask("fine", **parameter)
