"""Secrets in recorded command lines."""

import pytest

from sdyscope.stages.recorder.hiding import HIDDEN, without_secrets


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["--token", "abc"], ["--token", HIDDEN]),
        (["--hf-token=abc"], [f"--hf-token={HIDDEN}"]),
        (["--wandb_api_key=abc"], [f"--wandb_api_key={HIDDEN}"]),
        (["env", "WANDB_API_KEY=abc"], ["env", f"WANDB_API_KEY={HIDDEN}"]),
        (["AWS_SECRET_ACCESS_KEY=a/b+c"], [f"AWS_SECRET_ACCESS_KEY={HIDDEN}"]),
        (["--password", "abc", "x"], ["--password", HIDDEN, "x"]),
        (["x", "hf_abcdefghij"], ["x", HIDDEN]),
        (["gs://u:pw@host/x"], [f"gs://{HIDDEN}@host/x"]),
        (["-c", "login(token='abc')"], ["-c", f"login(token='{HIDDEN}')"]),
    ],
)
def test_what_looks_like_a_secret_is_hidden(words, shown):
    assert without_secrets(words) == shown


@pytest.mark.parametrize(
    "words",
    [
        ["python", "train.py", "--tokens=4096", "--max-tokens", "512", "--tokenizer=gpt2"],
        ["--mesh", "data=4,model=2", "--key", "params", "--seed=0", "--author", "x"],
        ["--vocab_tokens=50257", "-m", "package.module", "https://host:80/a"],
    ],
)
def test_other_words_are_kept(words):
    assert without_secrets(words) == words
