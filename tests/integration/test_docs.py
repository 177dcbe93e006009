"""The documents say what the program says."""
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_tables_of_keys_and_metrics_are_the_programs_own(driftline):
    done = subprocess.run([sys.executable, ROOT / "mk" / "docs.py", driftline, "--check"],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_links_between_the_documents_lead_somewhere():
    for page in [ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")]:
        for link in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
            if "://" not in link:
                assert (page.parent / link).exists(), f"{page.name}: {link} leads nowhere"


def test_make_targets_that_the_documents_name_exist():
    targets = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True).stdout
    known = set(re.findall(r"make (\S+)", targets))
    for page in [ROOT / "README.md", ROOT / "docs" / "OPERATIONS.md",
                 ROOT / "docs" / "ARCHITECTURE.md"]:
        for target in re.findall(r"(?:`|^ {4})make ([a-z-]+(?:<name>)?)", page.read_text(), re.M):
            family = target.removesuffix("<name>")
            found = any(name.startswith(family) for name in known) if family != target \
                else target in known
            assert found, f"{page.name}: make {target} is no target"
