"""Who wins where several sources set the same thing, what is refused wherever it stands, and which
values a setting takes.
"""

import itertools
from pathlib import Path

import pytest
from support.examples import sample

from agentlite.config import resolve, this_machine
from agentlite.config.resolve import UserSettings, parse_weights
from agentlite.config.settings import (
    COMMANDS,
    DpoSettings,
    EvalSettings,
    GrpoSettings,
    InMemory,
    PairsSettings,
    SftSettings,
)
from agentlite.core.errors import UserError

# weakest first; each source sets another batch_size
SOURCES = ("profile", "agentlite.yaml", "first", "second", "set", "flag")
VALUES = {name: 11 + number for number, name in enumerate(SOURCES)}
ORIGINS = {
    "profile": "profile mine",
    "agentlite.yaml": "agentlite.yaml",
    "first": "first.yaml",
    "second": "second.yaml",
    "set": "--set sft.batch_size",
    "flag": "--batch-size",
}
SUBSETS = [
    subset for count in range(len(SOURCES) + 1) for subset in itertools.combinations(SOURCES, count)
]


def section_text(value: int, name: str) -> str:
    return f"sft:\n  batch_size: {value}\n  trl: {{shared: {value}, {name}: {value}}}\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, empty, with a folder of profiles of its own, and no GPU."""
    profiles = tmp_path / "profiles"
    profiles.mkdir()
    (profiles / "mine.yaml").write_text(
        section_text(VALUES["profile"], "profile"), encoding="utf-8"
    )
    (profiles / "bare.yaml").write_text("", encoding="utf-8")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(resolve, "config_folder", lambda: profiles)
    monkeypatch.setattr(this_machine, "find_gpu", lambda: None)
    return tmp_path / "here"


def given_by(sources: tuple[str, ...], folder: Path) -> UserSettings:
    for name, file in (
        ("agentlite.yaml", "agentlite.yaml"),
        ("first", "first.yaml"),
        ("second", "second.yaml"),
    ):
        (folder / file).unlink(missing_ok=True)
        if name in sources:
            text = section_text(VALUES[name], name.partition(".")[0])
            (folder / file).write_text(text, encoding="utf-8")
    return UserSettings(
        {"batch_size": str(VALUES["flag"])} if "flag" in sources else {},
        (f"sft.batch_size={VALUES['set']}", f"sft.trl.shared={VALUES['set']}")
        if "set" in sources
        else (),
        tuple(f"{name}.yaml" for name in ("first", "second") if name in sources),
        "mine" if "profile" in sources else "bare",
    )


@pytest.mark.parametrize("planned", [False, True])
@pytest.mark.parametrize("inherited", [False, True])
def test_of_all_sources_the_strongest_one_wins_whichever_of_them_speak(folder, inherited, planned):
    before = {"batch_size": (10, "an earlier stage")} if inherited else None
    by_memory = {"batch_size": (30, "profile auto")} if planned else None
    for sources in SUBSETS:
        layers = resolve.read_layers("sft", given_by(sources, folder))
        resolved = resolve.merge_layers("sft", layers, before, by_memory)
        found, origin = resolved
        strongest = sources[-1] if sources else None
        weakest = (10, "an earlier stage") if inherited else (2, "default")
        expected = (VALUES[strongest], ORIGINS[strongest]) if strongest else weakest
        if planned and strongest in (None, "profile"):  # it stands in for the profile's value
            expected = (30, "profile auto")
        assert (found.batch_size, origin["batch_size"]) == expected, sources
        is_chosen = expected[1] == "default" or expected[1].startswith("profile ")
        assert resolved.was_set("batch_size") is not is_chosen, sources
        cell = resolve.merge_layers("sft", layers, before, by_memory, {"batch_size": (40, "cell")})
        assert (cell.settings.batch_size, cell.origin["batch_size"]) == (40, "cell"), sources
        # mappings are merged: each of the sources adds its name, the strongest has the shared one
        mappings = [name for name in sources if name != "flag"]
        shared = {"shared": VALUES[mappings[-1]]} if mappings else {}
        named = {name.partition(".")[0]: VALUES[name] for name in mappings if name != "set"}
        assert found.trl == {**shared, **named}, sources


@pytest.mark.parametrize("file", ["agentlite.yaml", "other.yaml", "profile"])
@pytest.mark.parametrize("command", sample(3, [*COMMANDS]))
def test_a_typo_in_any_section_of_a_file_is_refused_by_every_command(folder, file, command):
    path = folder.parent / "profiles" / "bad.yaml" if file == "profile" else folder / file
    given = UserSettings(
        {"sources": "x"} if command == "prep" else {},
        files=("other.yaml",) if file == "other.yaml" else (),
        profile="bad" if file == "profile" else "bare",
    )
    for section in COMMANDS:
        path.write_text(f"{section}:\n  seed: 1\n  sede: 1\n", encoding="utf-8")
        message = rf"no setting '{section}\.sede'. Did you mean '{section}\.seed'\?"
        with pytest.raises(UserError, match=message) as refused:
            resolve.resolve(command, given)
        assert refused.value.exit_code == 2
        assert refused.value.location.endswith(path.name)
        path.write_text(f"{section}:\n  seed: 1\n", encoding="utf-8")
        assert resolve.resolve(command, given).settings.seed == (section == command)


SECRETS = ["hub_token", "push_to_hub_token", "token", "use_auth_token"]


@pytest.mark.parametrize(
    ("key", "value"), [*((key, "hf_x") for key in SECRETS), ("env_key", "hf_x" + "a" * 30)]
)
@pytest.mark.parametrize("mapping", ["trl", "peft"])
def test_no_secret_gets_into_a_plan(folder, key, value, mapping):
    with pytest.raises(UserError, match="a secret is not a setting") as refused:
        resolve.resolve("sft", UserSettings(sets=(f"sft.{mapping}.{key}={value}",), profile="bare"))
    assert refused.value.location == f"sft.{mapping}.{key}"
    assert "hf_x" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "weights"),
    [
        ("a=1", {"a": 1.0}),
        (" a = .5 , b=0,", {"a": 0.5, "b": 0.0}),
        ("", {}),
        ("a=-2e-1", {"a": -0.2}),
        ("a=x", "could not convert string to float: 'x'"),
        ("a", "could not convert string to float: 'None'"),
        ("a=1,a=2", "'a' appears twice"),
        ("a=1,b=1, a =1", "'a' appears twice"),
        ('{"a": 0.5, "b": 1}', {"a": 0.5, "b": 1.0}),
        (" {}", {}),
        ('{"a": "x"}', "could not convert string to float: 'x'"),
        ('{"a": null}', "could not convert string to float: 'None'"),
        ('{"a": {"b": 1}}', "could not convert string to float"),
        ('{"a": 1, "a": 2}', "'a' appears twice"),
        ('{"a": 1', "is no list of weights"),
    ],
)
def test_weights_are_names_with_numbers_each_once(text, weights):
    if isinstance(weights, dict):
        assert parse_weights(text, "--weights") == weights
    else:
        with pytest.raises(UserError, match=weights) as refused:
            parse_weights(text, "--weights")
        assert refused.value.location == "--weights" and refused.value.fix


@pytest.mark.parametrize(
    ("settings", "gpu", "expected"),
    [
        (SftSettings(batch_size=3), True, InMemory(rows=3)),
        (SftSettings(batch_size=3, packing=True), False, InMemory(rows=3)),
        # 8192 tokens are four rows of 2048
        (SftSettings(batch_size=3, packing=True), True, InMemory(rows=4, packed=True)),
        (
            SftSettings(packing=True, batch_tokens=10, max_length=20),
            True,
            InMemory(rows=1, packed=True),
        ),
        (PairsSettings(batch_size=3, num_samples=5), True, InMemory(prompts=3, samples=5)),
        (DpoSettings(batch_size=3), True, InMemory(rows=6, reference=True)),
        (DpoSettings(batch_size=3, reference_free=True), True, InMemory(rows=6)),
        # 6 answers, 2 times a step: three prompts of four answers each
        (
            GrpoSettings(batch_size=6, gradient_accumulation=2, group_size=4),
            True,
            InMemory(rows=6, reference=True, prompts=3, samples=4),
        ),
        (
            GrpoSettings(batch_size=1, gradient_accumulation=1, group_size=4),
            True,
            InMemory(rows=1, reference=True, prompts=1, samples=4),
        ),
        (EvalSettings(batch_size=7), True, InMemory(prompts=7, samples=1, greedy=True)),
        (
            EvalSettings(batch_size=7, num_samples=3),
            True,
            InMemory(prompts=7, samples=3, greedy=True),
        ),
    ],
)
def test_what_a_stage_holds_in_memory_at_once(settings, gpu, expected):
    assert settings.in_memory(gpu) == expected
