"""The page on backends, run as it is printed, with its example installed as a distribution."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from tests.support.processes import pages

PAGE = "how-to/write-a-backend.md"
EXAMPLE = pages.DOCS / "examples/llm-backend"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of packages that has the example, as pip installs it."""
    folder = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    offline = ["--no-index", "--no-deps", "--no-build-isolation"]
    subprocess.run(
        [*pip, *offline, "--target", folder, EXAMPLE], check=True, capture_output=True, timeout=120
    )
    return folder


def python(site: Path, source: str) -> str:
    """The output of a program that has the folder's packages."""
    done = subprocess.run(
        [sys.executable, "-c", source],
        env={"PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_page_on_backends_is_true(site: Path) -> None:
    blocks = pages.blocks(PAGE, "python")
    assert len(blocks) == 4
    shown, refused, args, found = python(site, "\nprint('###')\n".join(blocks)).split("###\n")
    job = yaml.safe_load(shown)
    assert job["metadata"] == {"name": "math-grpo", "namespace": "team-a"}
    assert job["spec"]["trainer"]["command"] == ["torchrun", "-m", "trl.scripts.grpo"]
    assert job["spec"]["trainer"]["numNodes"] == 2
    assert refused.startswith("trainer_type: TRL 1.16.0 has no PPO trainer; grpo and rloo learn")
    assert "'model.lora_rank=8'" in args
    # The page prints beside each line what it shows.
    said = [line.split("# ", 1)[1] for line in blocks[3].splitlines() if "# " in line]
    assert found.splitlines() == said


def test_the_page_prints_the_examples_entry_point() -> None:
    (printed,) = pages.blocks(PAGE, "toml")
    assert printed in (EXAMPLE / "pyproject.toml").read_text()


def test_the_example_trains(site: Path, tmp_path: Path) -> None:
    """The command that the installed backend renders, run."""
    data = tmp_path / "data"
    data.mkdir()
    rows = ("the apple is red", "the apple is sweet", "a pear is green")
    (data / "train.jsonl").write_text("".join(f"{json.dumps({'text': row})}\n" for row in rows))
    rendered = python(
        site,
        "import json, pathlib\n"
        "from windlass.backends import RenderContext, get_backend\n"
        "config = get_backend('bigram')(min_count=2)\n"
        f"at = pathlib.Path({str(tmp_path)!r})\n"
        "context = RenderContext(\n"
        "    model=at, dataset=at / 'data', output=at / 'out', device='cpu'\n"
        ")\n"
        "print(json.dumps([*config.to_command(context), *config.to_args(context)]))",
    )
    subprocess.run(json.loads(rendered), env={"PYTHONPATH": str(site)}, check=True, timeout=60)
    model = json.loads((tmp_path / "out/model.json").read_text())
    assert model == {"the apple": 2, "apple is": 2}


def test_a_job_of_the_api_is_refused_by_a_backend_that_makes_train_jobs_alone(site: Path) -> None:
    said = python(
        site,
        "from windlass.backends import InvalidConfig, Sizing, get_backend\n"
        "try:\n"
        "    get_backend('bigram').from_openai(method='supervised', hyperparameters={}, seed=1,\n"
        "        sizing=Sizing(examples=1, model_bytes=1), extra={})\n"
        "except InvalidConfig as error:\n"
        "    print(error)",
    )
    assert said == "windlass.backend: 'bigram' makes TrainJobs, and no jobs here\n"


def test_a_second_class_of_its_name_is_refused_naming_both(site: Path) -> None:
    said = python(
        site,
        "import windlass_bigram\n"
        "from windlass.backends import BackendError, register_backend\n"
        "class Other(windlass_bigram.BigramConfig):\n"
        "    pass\n"
        "try:\n"
        "    register_backend(Other)\n"
        "except BackendError as error:\n"
        "    print(error)",
    )
    assert "windlass_bigram.BigramConfig" in said
    assert "__main__.Other" in said


def test_a_base_install_is_enough(site: Path) -> None:
    said = python(
        site,
        "import sys\n"
        "from windlass.backends import BuiltinTrainer, TRLConfig\n"
        "BuiltinTrainer(TRLConfig()).to_train_job('j', runtime='r')\n"
        "extras = ('torch', 'trl', 'transformers', 'grpc', 'pydantic', 'sqlalchemy')\n"
        "print([name for name in extras if name in sys.modules])",
    )
    assert said == "[]\n"
