#!/usr/bin/env python3
"""Runs the tests of one file with the interpreter of build/venv. For ctest: exit status 77, which
ctest shows as skipped, when something they need is not installed, with what would install it.

    SLUICE_BINARY=build/dev/apps/sluice tests/client/run.py FILE [PYTEST OPTIONS]
"""

import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
PYTHON = os.path.join(ROOT, "build", "venv", "bin", "python")
MODULES = ("openai", "anthropic", "instructor", "pytest", "prometheus_client")
# Clients that need other packages than the rest have an environment of their own, by test file.
OWN = {"others": "venv-clients", "frameworks": "venv-agents", "libraries": "venv-libraries",
       "evaluation": "venv-lm-eval", "guidellm": "venv-guidellm", "aiperf": "venv-aiperf"}
SKIPPED = 77


def what_is_missing(needs_browser, needs_etcd):
    if not os.access(PYTHON, os.X_OK):
        return "no build/venv; run: make build/venv/client.stamp"
    code = ("import importlib.util as u\n"
            f"print(*[m for m in {MODULES!r} if u.find_spec(m) is None])")
    absent = subprocess.run([PYTHON, "-c", code], capture_output=True, text=True,
                            check=True).stdout.strip()
    if absent:
        return f"no {absent} in build/venv; run: make build/venv/client.stamp"
    programs = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    if needs_browser and programs:
        return f"no {' and no '.join(programs)}; run: tools/install.sh test"
    if needs_etcd and shutil.which("etcd") is None:
        return "no etcd; run: tools/install.sh campaigns"
    return ""


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    name = os.path.basename(sys.argv[1])
    own = OWN.get(name.removesuffix(".py").removesuffix("_test"))
    if own is None:
        python = PYTHON
        missing = what_is_missing("page" in name,
                                  name in ("gateway_group_test.py", "lend_etcd_test.py"))
    else:
        python = os.path.join(ROOT, "build", own, "bin", "python")
        there = os.access(os.path.join(ROOT, "build", own, "stamp"), os.R_OK)
        missing = "" if there else f"no build/{own}; run: make {own}"
    if missing:
        print(f"SKIPPED: {sys.argv[1]}: {missing}")
        sys.exit(SKIPPED)
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    if own is not None:
        environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # those of packages that clients need
        environment["PYTEST_ADDOPTS"] = "-p no:unraisableexception"  # sockets that they leave open
    if "SLUICE_BINARY" in environment:  # as the caller's folder has it
        environment["SLUICE_BINARY"] = os.path.abspath(environment["SLUICE_BINARY"])
    sys.exit(subprocess.run([python, "-m", "pytest", *sys.argv[1:]], cwd=HERE, env=environment,
                            check=False).returncode)


if __name__ == "__main__":
    main()
