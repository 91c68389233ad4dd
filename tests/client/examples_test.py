"""Each file of examples/ does with its command what its first lines say."""

import importlib.util
import json
import os
import subprocess
import sys

import pytest

from gateway_test import ask, gateway
from serving import BINARY, ROOT

EXAMPLES = os.path.join(ROOT, "examples")


def sluice(*words):
    done = subprocess.run([BINARY, *words], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def simulate(functions, cluster):
    report = json.loads(sluice("simulate", "--functions", functions, "--cluster", cluster,
                               "--json"))
    assert report[0]["calls"] > 0
    assert report[0]["answered"] == report[0]["calls"]


def read_functions(path, folder):
    with gateway(path, usage=folder / "usage.db") as server:
        assert ask(server, "a", "poet").status == 200


def read_prices(path, folder):
    with gateway(os.path.join(EXAMPLES, "functions.toml"), "--prices", path,
                 usage=folder / "usage.db") as server:
        assert ask(server, "b", "demo").status == 200


def read_cores(path, _):
    """With the functions file that its comment names."""
    simulate("examples/functions.toml", path)


def read_l40s(path, folder):
    """Its comment names no functions file; one needs only the names of its backbones."""
    functions = folder / "functions.toml"
    functions.write_text("".join(
        f'[[backbone]]\nname = "{name}"\ndirectory = "x"\ntenants = ["t"]\n'
        for name in ("llama2-7b", "llama2-13b")) +
        f'[[tenant]]\nname = "t"\nkey_sha256 = "{64 * "a"}"\n')
    simulate(str(functions), path)


def read_servers(path, _):
    assert json.loads(sluice("place", path, "--json", "--time-limit", "0.1"))


def read_program(path, _):
    done = subprocess.run([sys.executable, path, "--help"], capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0 and "usage: " in done.stdout, done


def read_ray_program(path, folder):
    if importlib.util.find_spec("ray") is not None:
        read_program(path, folder)
        return
    with open(path, encoding="utf-8") as stream:
        compile(stream.read(), path, "exec")


def read_module(path, _):
    spec = importlib.util.spec_from_file_location("example", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.Lender


def read_requirements(path, _):
    with open(path, encoding="utf-8") as stream:
        assert any(line.startswith("ray==") for line in stream)


# The first lines name the first; the second reads the file.
FILES = {
    "cluster-128.json": ("", read_servers),  # JSON has no comments
    "cluster-demo-cores.toml": ("sluice simulate --functions examples/functions.toml", read_cores),
    "cluster-l40s.toml": ("sluice simulate --functions", read_l40s),
    "functions.toml": ("sluice gateway --config", read_functions),
    "lending/image_server.py": ("examples/lending/image_server.py", read_program),
    "lending/sluice_lend.py": ("Lender(", read_module),
    "prices.toml": ("sluice gateway --prices", read_prices),
    "ray/requirements.txt": ("", read_requirements),
    "ray/sluice_ray.py": ("examples/ray/sluice_ray.py", read_ray_program),
}


def test_each_file_is_tested():
    found = {os.path.relpath(os.path.join(folder, name), EXAMPLES)
             for folder, _, names in os.walk(EXAMPLES) for name in names
             if not name.endswith(".pyc")}
    assert found == set(FILES)


@pytest.mark.parametrize("name", FILES)
def test_its_command_reads_it(name, tmp_path):
    path = os.path.join(EXAMPLES, name)
    command, read = FILES[name]
    with open(path, encoding="utf-8") as stream:
        assert command in "".join(stream.readlines()[:10])
    read(path, tmp_path)
