"""Secrets are known by the name of their key, by their form and by the environment; nothing else is taken for one."""

import os

import pytest

from rlvr_vocab.secrets import is_secret, variable_with, without_secrets

HUB = "hf_" + "aB3dE5gH7jK9mN1pQ3sT5vW7xY9zA1cD3f"
OPENAI = "sk-proj-" + "a1B2c3D4e5F6g7H8i9J0"
AMAZON = "AKIA" + "IOSFODNN7EXAMPLE"
GITHUB = "ghp_" + "a1B2" * 9
W_AND_B = "0123456789abcdef" * 2 + "01234567"


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    variables = {}
    monkeypatch.setattr(os, "environ", variables)
    return variables


@pytest.mark.parametrize(
    "key",
    [
        *("training.hub_token", "model.model_kwargs.token", "model.model_kwargs.use_auth_token", "token"),
        *("rewards.functions.params.api_key", "rewards.functions.params.openai_api_key", "x.wandb_api_key"),
        *("x.password", "x.db_password", "x.client_secret", "x.secret", "x.aws_secret_access_key", "x.HF_TOKEN"),
    ],
)
def test_a_value_under_the_key_of_a_secret_is_one(key):
    assert is_secret(key, "anything")
    assert is_secret("rewards.functions.params.judge_token", "a1b2c3d4e5f6g7h8")
    assert is_secret(key, 12345678)
    for value in (True, False, None, "", "null", "true"):
        assert not is_secret(key, value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("model.generation_kwargs.max_new_tokens", 1024),
        ("rewards.functions.params.judge_token", "<|judge_1|>"),
        ("training.eos_token", "<|im_end|>"),
        ("x.mask_token", "[MASK]"),
        ("x.tokenizer", "Qwen/Qwen3-0.6B"),
        ("x.secretary", "Anna"),
        ("model.model_kwargs.revision", W_AND_B),  # a commit
        ("dataset.name", "hf_internal_testing/tiny"),
        ("dataset.system_prompt", "Solve the task-based and risk-averse problem, mail me@example.org."),
        ("exp_name", "sk-learn-baseline-on-arithmetic"),
        ("dataset.system_prompt", "Basic mathematics; a bearer certificate. The key: think. Basic GSM8K-style 1?"),
        ("dataset.name", "https://example.org/a.jsonl?monkey=1&page=2"),
        ("x.url", "ssh://git@example.org/x.git"),
    ],
)
def test_other_values_are_none(key, value):
    assert not is_secret(key, value)


@pytest.mark.parametrize("value", [HUB, OPENAI, AMAZON, GITHUB, f"https://me:{OPENAI[3:]}@example.org/x"])
def test_a_secret_is_known_by_its_form_under_any_key_and_inside_a_text(value):
    assert is_secret("dataset.system_prompt", value)
    assert is_secret("dataset.system_prompt", f"log in with {value} first")


BASIC = "dXNlcjpwYXNzd29yZA=="
SHOWN_PARTLY = [
    ("Authorization: Basic {}", BASIC),
    ("{{'Authorization': 'Basic {}'}}", BASIC),
    ("authorization: Bearer {}", "abc.def-123"),
    ("sent basic {} in vain", BASIC),
    ("got Bearer {}, refused", "a1b2c3d4e5f6"),
    ("http://a.b/v1/chat?key={}", "letmein"),
    ("http://a.b/v1?access_token={}", "letmein"),
    ("http://a.b/c?sv=1&sig={}", "letmein%3D"),
    ("http://a.b/c?jwt={}", "letmein"),
    ("http://:{}@a.b/c", "letmein"),
    ("http://{}@a.b/c", "a1B2c3D4e5F6g7H8i9J0k1"),
]


@pytest.mark.parametrize(("text", "secret"), SHOWN_PARTLY)
def test_headers_and_queries_with_a_secret_are_refused_and_shown_without_it(text, secret):
    whole = text.format(secret)
    masked = without_secrets(whole)
    assert secret not in masked and masked[:7] == whole[:7]
    assert is_secret("rewards.functions.params.url", whole)
    assert is_secret("rewards.functions.params.headers.Authorization", f"Basic {secret}")


def test_a_value_of_a_secret_variable_is_a_secret_under_any_key(environment):
    environment |= {"HF_TOKEN": "correct horse battery", "HOME": "folder of somebody", "MY_TOKEN": "short"}
    assert is_secret("exp_name", "correct horse battery")
    assert variable_with("correct horse battery") == "HF_TOKEN"
    assert not is_secret("exp_name", "folder of somebody")
    assert not is_secret("exp_name", "short")


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        *((f"'x={secret}' of https://me:{secret}@a.org/{secret}?a=1", "'x=***' of https://***@a.org/***?a=1")
          for secret in (HUB, OPENAI, AMAZON, GITHUB)),
        ("hub_token=abc api_key='a b c' {'token': 'x1'}", "hub_token=*** api_key='***' {'token': '***'}"),
        ("X-Api-Key: letmein, PRIVATE-TOKEN: letmein", "X-Api-Key: ***, PRIVATE-TOKEN: ***"),
        ("got abcdefgh-and-more, abcdefgh, usr-bin-x", "got ***, ***, usr-bin-x"),  # the longest first
        *[("{'eos_token': 'y'} max_new_tokens=64 token=true, the key: word (https://a.org:80/x) Qwen/Qwen3-0.6B",) * 2],
    ],
)  # fmt: skip
def test_secrets_are_masked_wherever_they_stand_and_nothing_else_is(environment, text, masked):
    environment |= {"A_TOKEN": "abcdefgh", "B_TOKEN": "abcdefgh-and-more", "PATH": "usr-bin-x"}
    assert without_secrets(text) == masked
