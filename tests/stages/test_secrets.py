"""Command lines of recordings, without secrets."""

import pytest

from sdyscope.stages.recorder.secrets import redacted


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("train.py --hf-token abc --steps 3", "train.py --hf-token *** --steps 3"),
        ("train.py --hf_token=abc --steps=3", "train.py --hf_token=*** --steps=3"),
        ("env WANDB_API_KEY=abc python a.py", "env WANDB_API_KEY=*** python a.py"),
        ("a.py --password -v", "a.py --password -v"),
        ("a.py gs://u:pw@host/x http://h:80/y", "a.py gs://u:***@host/x http://h:80/y"),
        ("a.py hf_abcdefghijklmnopqrst", "a.py ***"),
        ("a.py --key=ghp_abcdefghijklmnopqrst,2", "a.py --key=***,2"),
        ("a.py " + "0123456789" * 4, "a.py ***"),
        ("a.py --data s3://b/" + "0123456789" * 4, "a.py --data s3://b/" + "0123456789" * 4),
        ("a.py --tokens-per-batch 4096 --tokenizer gpt2", None),
        ("python -m pkg.train --mesh data=4,model=2 out/secretary.txt", None),
    ],
)
def test_what_looks_like_a_secret_is_hidden(line, kept):
    assert " ".join(redacted(line.split())) == (kept or line)


@pytest.mark.parametrize(
    "word", ["a" * 3_000_000, "--" + "a-" * 1_500_000, "--a=f" + "9" * 3_000_000, "eyJ" * 100_000]
)
def test_long_words_are_kept(word):
    assert redacted([word]) == [word]
