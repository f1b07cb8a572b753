"""Run the recipes for other libraries' training loops, and compare them with their page."""

import os
import re
import runpy
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from PIL import Image

from cosen import AdaptiveCosts
from cosen.networks.timm_import import import_timm

ROOT = Path(__file__).parents[2]
RECIPES = ROOT / "examples" / "recipes"
PAGE = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(?:python|diff)\n(.*?)^```$", PAGE, re.M | re.S)
ALL = sorted(path for path in RECIPES.iterdir() if path.suffix in (".py", ".diff"))

SHIM = "from cosen.networks.timm_import import import_timm\nimport_timm()\n"
"""These libraries import torchvision, which needs this where its operators do not fit torch."""

COSTS = r"AdaptiveCosts\(tau=(\S+), margin=(\S+), steps=(\d+)"

LOOPS = {  # what evaluates the network after training, and epochs of two runs in the same folder
    "pytorch_loop": ("", (10, 10)),
    "lightning_module": (
        "trainer.validate(model, loaders[1])\nprint(model.costs)",
        (5, 5),
    ),
    "transformers_trainer": ("trainer.evaluate()\nprint(costs)", (8, 8)),
    "fastai_learner": (
        "learn.validate()\nlearn.get_preds()\nlearn.lr_find(show_plot=False)\nprint(costs)",
        (5, 10),
    ),
    "skorch_net": ("net.predict(X)\nprint(net.criterion_)", (10, None)),
}
LIBRARIES = {
    "lightning_module": "lightning",
    "transformers_trainer": "accelerate",
    "fastai_learner": "fastai",
    "skorch_net": "skorch",
}

TIMM_OPTIONS = """
--model test_resnet --num-classes 10 --input-size 3 32 32 --val-split val --no-aug --device cpu
--workers 0 --no-prefetcher --batch-size 32 --lr 0.05 --warmup-epochs 0 --eval-metric mean_recall
--output output
"""


def code(path):
    """Return a program without its docstring."""
    return re.sub(r'\A""".*?"""\n\n', "", path.read_text(encoding="utf-8"), flags=re.S)


def run(folder, *arguments):
    """Run Python in a folder; return what it prints."""
    paths = [str(RECIPES), os.environ.get("PYTHONPATH", "")]
    alone = {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env=os.environ | alone | {"HF_HUB_OFFLINE": "1"},
    )
    assert done.returncode == 0, done.stderr[-5000:]
    return done.stdout


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.name)
def test_page_shows_the_recipe(path):
    assert code(path) in BLOCKS, f"docs/recipes.md does not contain the code of {path.name}"


def test_other_blocks_of_the_page_run():
    others = [block for block in BLOCKS if block not in map(code, ALL)]
    assert others
    for block in others:
        exec(compile(block, "docs/recipes.md", "exec"), {})


@pytest.mark.training
@pytest.mark.parametrize("name", LOOPS)
def test_recipe_learns_and_resumes(name, tmp_path):
    library = LIBRARIES.get(name)
    if library and not find_spec(library):
        pytest.skip(f"{library} is not installed: run 'make recipes'")
    evaluate, (first_steps, second_steps) = LOOPS[name]
    program = tmp_path / "program.py"
    shim = SHIM if library in ("lightning", "accelerate", "fastai") else ""
    program.write_text(shim + code(RECIPES / f"{name}.py") + evaluate, encoding="utf-8")

    first = re.findall(COSTS, run(tmp_path, program))
    assert len(set(first)) == 1  # evaluation does not change the costs
    _, margin, steps = first[0]
    assert int(steps) == first_steps
    assert float(margin) > 1  # mean recall above 0.73

    second = re.findall(COSTS, run(tmp_path, program))
    if second_steps == first_steps:  # nothing is left to train
        assert second == first
    elif second_steps:
        assert int(second[0][2]) == second_steps
    else:  # continues from the best epoch
        assert int(second[0][2]) > first_steps


@pytest.mark.processes
@pytest.mark.training
def test_costs_are_equal_in_all_processes(tmp_path):
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    found = re.findall(r"process (\d): " + COSTS, run(tmp_path, *launcher, RECIPES / "ddp_loop.py"))
    (_, *first), (_, *second) = sorted(found)
    assert first == second
    assert float(first[1]) > 1
    assert first[2] == "5"


@pytest.fixture
def timm_folder(tmp_path, monkeypatch):
    """The digits as image files, in the folders that timm expects."""
    monkeypatch.syspath_prepend(str(RECIPES))
    digits = runpy.run_path(str(RECIPES / "rare_digits.py"))
    for split in ("train", "val"):
        for index in digits[f"{split}_indices"].tolist():
            path = tmp_path / "data" / split / str(int(digits["labels"][index])) / f"{index}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            pixels = (digits["images"][index, 0] * 255).byte().numpy()
            Image.fromarray(pixels).resize((32, 32)).save(path)
    return tmp_path / "data"


@pytest.mark.training
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # timm does not close images
def test_timm_task(timm_folder):
    """The lines that change in train.py, with the parts of timm that train.py calls."""
    timm = import_timm()
    if tuple(map(int, timm.__version__.split(".")[:3])) < (1, 0, 27):
        pytest.skip(f"timm {timm.__version__} does not save the state of a task")
    from timm.data import create_dataset, create_loader
    from timm.optim import create_optimizer_v2
    from timm.scheduler import create_scheduler_v2
    from timm.task import resume_task_checkpoint
    from timm.utils import CheckpointSaver

    CostTask = runpy.run_path(str(RECIPES / "timm_task.py"))["CostTask"]
    torch.manual_seed(0)
    datasets = [
        create_dataset("", root=timm_folder, split=split, is_training=split == "train")
        for split in ("train", "val")
    ]
    sizes = {"input_size": (3, 32, 32), "batch_size": 32, "num_workers": 0}
    train, val = (
        create_loader(
            dataset,
            is_training=is_training,
            no_aug=True,
            use_prefetcher=False,
            device="cpu",
            pin_memory=False,
            persistent_workers=False,
            **sizes,
        )
        for dataset, is_training in zip(datasets, (True, False), strict=True)
    )
    labels = torch.tensor([label for _, label in datasets[0].reader.samples])
    assert labels.tolist() == [label for _, label in datasets[0]]

    def make_task():
        network = timm.create_model("test_resnet", num_classes=10)
        return CostTask(network, AdaptiveCosts(torch.bincount(labels), label_smoothing=0.1))

    task = make_task()
    optimizer = create_optimizer_v2(task.get_trainable_module(), opt="sgd", lr=0.05)
    scheduler, epochs = create_scheduler_v2(optimizer, sched="cosine", num_epochs=4)
    saver = CheckpointSaver(
        model=task.get_trainable_module(),
        optimizer=optimizer,
        task=task,
        checkpoint_dir=str(timm_folder),
        recovery_dir=str(timm_folder),
    )
    for epoch in range(epochs):
        task.train()
        for images, target in train:
            optimizer.zero_grad()
            task(images, target)["loss"].backward()
            optimizer.step()
        task.eval()
        with torch.inference_mode():
            for images, target in val:
                task.validation_loss(task.get_eval_model()(images), target)
        step = task.step_costs()
        saver.save_checkpoint(epoch, metric=100 - 100 * step.val_error)
        scheduler.step(epoch + 1)
    assert step.number == epochs
    assert step.val_error < 0.27

    resumed = make_task()
    path = str(timm_folder / "last.pth.tar")
    assert resume_task_checkpoint(resumed, path, log_info=False) == epochs
    assert repr(resumed.criterion) == repr(task.criterion)
    assert resumed.criterion.steps == epochs


@pytest.mark.training
@pytest.mark.skipif(
    "TIMM_TRAIN" not in os.environ,
    reason="timm's train.py is not in its wheel: set TIMM_TRAIN to the path of a copy",
)
def test_timm_train_script(timm_folder, tmp_path):
    """Change timm's own train.py with the page's diff; train, then resume."""
    train = tmp_path / "train.py"
    shutil.copy(os.environ["TIMM_TRAIN"], train)
    subprocess.run(["patch", train, RECIPES / "timm_train.diff"], check=True)
    train.write_text(SHIM + train.read_text(encoding="utf-8"), encoding="utf-8")
    options = TIMM_OPTIONS.split()
    run(tmp_path, train, timm_folder, *options, "--experiment", "first", "--epochs", 3)
    last = tmp_path / "output" / "first" / "last.pth.tar"
    resume = ("--experiment", "second", "--epochs", 5, "--resume", last)
    run(tmp_path, train, timm_folder, *options, *resume)
    for name, steps in (("first", 3), ("second", 5)):
        saved = torch.load(tmp_path / "output" / name / "last.pth.tar", weights_only=False)
        assert saved["task_state"]["costs"]["_extra_state"]["steps"] == steps
    assert saved["metric"] > 73
