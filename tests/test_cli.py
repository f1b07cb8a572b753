"""The command as a user would type it, in a process of its own."""

import subprocess
import sys

import cosen


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cosen", *arguments], capture_output=True, text=True, check=False
    )


def test_help_says_what_it_is_for():
    done = run("--help")
    assert done.returncode == 0
    assert "imbalanced image classification" in done.stdout


def test_version():
    done = run("--version")
    assert done.stdout == f"cosen {cosen.__version__}\n"


def test_a_wrong_option_is_one_sentence_and_no_traceback():
    done = run("--no-such-option")
    assert done.returncode == 2
    assert "--no-such-option" in done.stderr
    assert "Traceback" not in done.stderr


def test_help_loads_nothing_heavy():
    program = (
        "import sys; sys.argv = ['cosen', '--help']\n"
        "from cosen.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'numpy', 'sklearn', 'PIL'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
