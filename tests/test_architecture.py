"""Each part of the package imports only parts above it in this list."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import cosen

ROOT = Path(cosen.__file__).parent
LAYERS = [
    "errors",
    "files",
    "downloads",
    "memory",
    "functional",
    "losses",
    "costs",
    "networks",
    "data",
    "methods",
    "training",
    "inference",
    "comparing",
    "devices",
    "report",
    "serving",
    "sklearn",
    "runs",
    "api",
    "cli",
    "paper",
    "__main__",
]
FILES = sorted(ROOT.rglob("*.py"))


def layer_of(module: str) -> str:
    return module.split(".")[1] if "." in module else "__init__"


def imported_modules(path: Path) -> set[str]:
    """Modules of cosen that a file imports, anywhere in the file."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found.add(node.module)
            found.update(f"{node.module}.{name.name}" for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level:
            raise AssertionError(f"{path}: import absolutely, so that the layers can be read")
        elif isinstance(node, ast.Import):
            found.update(name.name for name in node.names)
    known = {*LAYERS}
    return {name for name in found if name.startswith("cosen.") and name.split(".")[1] in known}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_downward(path):
    own = path.relative_to(ROOT).parts[0].removesuffix(".py")
    if own == "__init__":
        return  # the public names, loaded on first use
    assert own in LAYERS, f"add {own} to the layers, and to the map in CONTRIBUTING.md"
    for module in imported_modules(path):
        layer = layer_of(module)
        assert LAYERS.index(layer) <= LAYERS.index(own), f"{path} imports {module}"


def test_functional_knows_torch_alone():
    for path in (ROOT / "functional").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names = [name.name for name in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module]
            else:
                continue
            for name in names:
                top = name.split(".")[0]
                assert top in {"torch", "cosen"} or top in sys.stdlib_module_names, (path, name)


def test_importing_cosen_is_cheap():
    program = (
        "import sys, cosen; "
        "heavy = {'torch', 'numpy', 'sklearn', 'rich', 'typer', 'PIL'} & set(sys.modules); "
        "assert not heavy, heavy; "
        "import cosen.api, cosen.data.named; cosen.data.named.load_named('digits'); "
        "heavy = {'sklearn', 'scipy', 'lightning_fabric', 'torch._dynamo', 'timm', 'kornia'}; "
        "heavy &= set(sys.modules); "
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_public_names():
    """The contract with users: a change here is a change of the public API."""
    assert sorted(cosen.__all__) == sorted(
        [
            *("train", "compare", "inspect", "load", "Run", "Study", "__version__"),
            *("AdaptiveCosts", "CostLearner", "CostStep", "Objective", "CosenClassifier"),
            *("CosenError", "DataError", "InputError", "RunError"),
            *("CostSensitiveCrossEntropyLoss", "CostSensitiveHingeLoss", "CostSensitiveMSELoss"),
            *("BalancedSoftmaxLoss", "ClassBalancedLoss", "FocalLoss", "LDAMLoss"),
            "SmoothOneSidedRegressionLoss",
            *("comparing", "costs", "data", "errors", "functional", "inference", "losses"),
            *("methods", "networks", "paper", "report", "serving", "sklearn", "training"),
        ]
    )
    for name in cosen.__all__:
        assert getattr(cosen, name) is not None
    assert set(cosen.__all__) <= set(dir(cosen))
    assert not hasattr(cosen, "no_such_name")


def test_the_map_names_every_part():
    text = (ROOT.parent.parent / "CONTRIBUTING.md").read_text()
    for path in ROOT.iterdir():
        if path.suffix == ".py" or (path / "__init__.py").exists():
            assert path.name in text, f"the map in CONTRIBUTING.md lacks {path.name}"
