"""What docs/ci.md shows can be used, and what it lists is all there is."""

import re
from pathlib import Path

import yaml

from sdyscope.ci import find_config, read_config, rule_words
from sdyscope.ci.read import TargetTable, keys_at

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "ci.md").read_text()


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_the_configuration_can_be_read(tmp_path):
    (text,) = blocks("toml")
    file = tmp_path / "pyproject.toml"
    file.write_text(text)
    config = read_config(file)
    assert [target.name for target in config.targets] == ["train", "eval"]


def test_every_key_is_listed():
    section = PAGE.split("### A target")[1].split("### Budgets")[0]
    listed = re.findall(r"^\| (`.*?`) \|", section, re.MULTILINE)
    known = keys_at(TargetTable, ("targets", "mlp"))
    assert {word.strip("`") for row in listed for word in row.split(", ")} == set(known)


def test_every_rule_of_its_own_is_listed():
    names = re.findall(r"`([a-z-]+)`", PAGE.split("## Rules of its own")[1].split("Those of")[0])
    assert all(rule_words(name)[0] != name.replace("-", " ").capitalize() + "." for name in names)
    assert len(names) == 12


def test_the_workflow_is_yaml_and_runs_it():
    (text,) = blocks("yaml")
    workflow = yaml.safe_load(text)
    steps = workflow["jobs"]["shardings"]["steps"]
    (command,) = [step["run"] for step in steps if step.get("run", "").startswith("sdyscope ci")]
    assert {"--junit", "--sarif"} <= set(command.split())


def test_this_repository_uses_it():
    config = read_config(find_config(ROOT))
    assert config.file == ROOT / "pyproject.toml"
    assert all(target.snapshot.path.exists() for target in config.targets)
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    assert any(step.get("run", "").startswith("sdyscope ci") for step in steps)
    assert 'sdyscope" ci' in (ROOT / ".ci" / "run").read_text()
