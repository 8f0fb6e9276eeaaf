"""`hub:ORG/NAME[:CONFIG][@SPLIT][#REVISION]` -> the files of a data set of the hub, at one commit.

A file is named `hub:ORG/NAME/FILE#COMMIT`. No code of a data set is run: its card says which files
belong to a configuration and a split, and where it does not, their names do.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from agentlite.core import console
from agentlite.core.errors import UserError, closest
from agentlite.core.row_files import write_json
from agentlite.workspace import hub
from agentlite.workspace.input_files import cache_folder

SCHEME = "hub:"
DATA_SET = re.compile(
    r"hub:(?P<name>[\w.-]+/[\w.-]+)(?::(?P<config>[^@#]+))?(?:@(?P<split>[^#]+))?(?:#(?P<revision>.+))?"
)
FILE = re.compile(r"hub:(?P<name>[\w.-]+/[\w.-]+)/(?P<file>.+)#(?P<commit>[0-9a-f]{40})")
# files of JSON that describe a data set
DESCRIPTIONS = ("dataset_infos.json", "dataset_info.json", "dataset_dict.json", "state.json")
# the split in data/train-00000-of-00002.parquet, my_dev.jsonl, testing.csv; none in contest.json
SPLIT = re.compile(
    r"(?<![a-z])(train|test|validation|valid|val|dev|eval)(?:ing|uation)?(?![a-z])", re.IGNORECASE
)


class DataSet(Struct, frozen=True):
    """What the hub says of a data set at a commit. `files`: sizes in bytes, by name; `configs`: the
    files of each configuration, as its card writes them.
    """

    commit: str
    files: dict[str, int]
    configs: list[dict[str, Any]] = []
    licence: str = ""


class HubFile(NamedTuple):
    name: str  # of the data set
    file: str
    commit: str

    @property
    def path(self) -> Path:
        """In the hub's cache, fetched if it is not there. Raises UserError 5, 8 or 74."""
        return hub.hub_file(f"{self.name}@{self.commit}", self.file, location=SCHEME + self.name)


def hub_file(source: str) -> HubFile | None:
    """The file that a source names; None for a source that is not of the hub."""
    match = FILE.fullmatch(source)
    return HubFile(match["name"], match["file"], match["commit"]) if match else None


def files_of_hub(source: str, suffixes: tuple[str, ...], earlier: Iterable[str]) -> list[str]:
    """The files of a split, train where none is named. `suffixes`: of the files that can be read;
    `earlier`: the sources of the stage that is carried on, whose commit is taken again. Raises
    UserError 2, 5 or 8.
    """
    if hub_file(source):
        return [source]
    match = DATA_SET.fullmatch(source)
    if not match:
        raise UserError(
            "is not the name of a data set.",
            "Write it as hub:ORG/NAME, hub:ORG/NAME:CONFIG@SPLIT or hub:ORG/NAME#REVISION.",
            location=source,
        )
    name, revision = match["name"], match["revision"] or ""
    commits = (file.commit for file in map(hub_file, earlier) if file and file.name == name)
    data = data_set(name, revision or next(commits, ""))
    readable = {
        file
        for file in data.files
        if file.endswith(suffixes) and Path(file).name not in DESCRIPTIONS
    }
    by_split = _by_split(data, readable, match["config"] or "", source)
    if not readable or not by_split:
        fix = f"Its files end in {', '.join(sorted({Path(file).suffix for file in data.files}))}."
        raise UserError("has no file of rows that can be read.", fix, location=source)
    split = match["split"] or ("train" if len(by_split) > 1 else next(iter(by_split)))
    if split not in by_split:
        fix = f"It has {', '.join(by_split)}: {SCHEME}{name}@{next(iter(by_split))}."
        raise UserError(f"has no split {split!r}.", fix, location=source)
    files = sorted(by_split[split])
    size = sum(data.files[file] for file in files) / 1e6
    console.notice(
        f"{source}: {len(files)} files, {size:.1f} MB, of {split} at {data.commit[:8]}; "
        f"licence: {data.licence or 'not named'}"
    )
    return [f"{SCHEME}{name}/{file}#{data.commit}" for file in files]


def licences(sources: Iterable[str]) -> dict[str, str]:
    """As their cards name them: inputs of a plan, of each data set among the sources."""
    return {
        f"licence of {SCHEME}{name}": data_set(name, commit).licence or "not named"
        for name, commit in sorted({(f.name, f.commit) for f in map(hub_file, sources) if f})
    }


def data_set(name: str, revision: str = "") -> DataSet:
    """At a revision or the newest commit; kept for when the hub is away. Raises UserError 5, 8."""
    cache = cache_folder() / "data-sets" / name.replace("/", "--") / f"{revision or 'main'}.json"
    if hub.COMMIT.fullmatch(revision) and cache.exists():  # a commit does not change
        return msgspec.json.decode(cache.read_bytes(), type=DataSet)
    try:
        info = hub.data_set_info(name, revision)
    except UserError:
        if not cache.exists():
            raise
        return msgspec.json.decode(cache.read_bytes(), type=DataSet)
    card = info.card_data.to_dict() if info.card_data else {}
    files = {file.rfilename: file.size or 0 for file in info.siblings or ()}
    data = DataSet(str(info.sha), files, card.get("configs") or [], str(card.get("license") or ""))
    for path in {cache, cache.with_name(f"{data.commit}.json")}:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, data)
    return data


def _by_split(data: DataSet, readable: set[str], config: str, location: str) -> dict[str, set[str]]:
    """The files of each split of a configuration."""
    configs = {str(entry.get("config_name", "default")): entry for entry in data.configs}
    # where none is named: the one called "default", the one marked so, or the only one
    chosen_config = configs.get(config or "default") or next(
        (entry for entry in data.configs if entry.get("default") or len(configs) == 1), None
    )
    if (config and config not in configs) or (configs and not chosen_config):
        problem = f"has no configuration '{config}'." if config else "has several configurations."
        suggestion = closest(config, configs) or min(configs, default="")
        fix = f"Name one of {', '.join(configs)}: hub:ORG/NAME:{suggestion}." if configs else ""
        raise UserError(problem, fix, location=location)
    by_split: dict[str, set[str]] = {}
    if chosen_config and (patterns := chosen_config.get("data_files")):
        for entry in patterns if isinstance(patterns, list) else [patterns]:
            entry = entry if isinstance(entry, dict) else {"path": entry}
            paths = entry["path"] if isinstance(entry["path"], list) else [entry["path"]]
            matches = {file for file in readable for path in paths if _matches(file, path)}
            by_split.setdefault(str(entry.get("split", "train")), set()).update(matches)
    else:
        folder = str(chosen_config.get("data_dir") or "").strip("./") if chosen_config else ""
        for file in readable:
            if file.startswith(f"{folder}/" if folder else ""):
                match = SPLIT.search(file)
                by_split.setdefault(match[1].lower() if match else "train", set()).add(file)
    return {split: files for split, files in by_split.items() if files}


def _matches(file: str, pattern: str) -> bool:
    """As the hub reads patterns: `*` stays in a folder, and `**/` is any folder or none."""
    # re.escape has put a backslash before each star
    regex = re.escape(pattern.removeprefix("./")).replace(r"\*\*/", "(?:.*/)?")
    regex = regex.replace(r"\*\*", ".*").replace(r"\*", "[^/]*").replace(r"\?", "[^/]")
    return bool(re.fullmatch(regex, file))
