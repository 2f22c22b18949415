"""What an image holds, printed as one JSON object on the last line of standard output.

Runs inside the image: the standard library and what the image ships, Python 3.7 syntax. It judges nothing.
"""

import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

try:
    from importlib.metadata import distributions  # novermin
except ImportError:  # Python 3.7, where the locks have the package that it comes from
    from importlib_metadata import distributions

LIBRARY = re.compile(r"lib(cu(da|dnn|blas|fft|rand|solver|sparse|pti)|nccl|nvrtc|nvJitLink|tpu)[\w-]*\.so")
"""Libraries of an accelerator."""


def packages():
    """Version of every distribution by PEP 503 name."""
    found = {}
    for distribution in distributions():
        name = re.sub(r"[-_.]+", "-", distribution.metadata["Name"] or "").lower()
        found.setdefault(name, distribution.version)
    return found


def about():
    """What distributions say of their licence and home, by PEP 503 name."""
    found = {}
    for distribution in distributions():
        metadata = distribution.metadata
        name = re.sub(r"[-_.]+", "-", metadata["Name"] or "").lower()
        told = {"licence": licence(metadata), "homepage": homepage(metadata)}
        found.setdefault(name, {key: value for key, value in told.items() if value})
    return found


def licence(metadata):
    """The licence in the metadata's own words (PEP 639's field, the older one, or classifiers), or None."""
    expression, text = metadata.get("License-Expression"), (metadata.get("License") or "").strip()
    if expression:
        return expression
    if text and "\n" not in text and len(text) <= 100 and text.upper() != "UNKNOWN":  # some put the whole text there
        return text
    beginning = "License :: "
    classifiers = [one for one in metadata.get_all("Classifier") or () if one.startswith(beginning)]
    return " AND ".join(one.rpartition(" :: ")[2] for one in classifiers) or None


def homepage(metadata):
    """Where a distribution is at home, or None."""
    urls = dict(one.split(", ", 1) for one in metadata.get_all("Project-URL") or () if ", " in one)
    named = {label.lower(): url for label, url in urls.items()}
    found = metadata.get("Home-page") or named.get("homepage") or named.get("home")
    return found if found and re.match(r"https?://[^\s]+$", found) else None


def debian(folder="/var/lib/dpkg"):
    """Every installed Debian package: its version, architecture and source."""
    try:
        stanzas = Path(folder, "status").read_text(encoding="utf-8", errors="replace").split("\n\n")
    except OSError:
        return []
    found = []
    for stanza in stanzas:
        fields = dict(re.findall(r"^([\w-]+): (.*)$", stanza, re.MULTILINE))
        if fields.get("Status", "").endswith(" installed"):
            name = fields["Package"]
            # A source of another version is told with it in brackets.
            source, _, version = fields.get("Source", name).partition(" ")
            found.append(
                {
                    "package": name,
                    "version": fields["Version"],
                    "architecture": fields["Architecture"],
                    "source": source,
                    "source_version": version.strip("()") or fields["Version"],
                }
            )
    return found


def system(path="/etc/os-release"):
    """Which Linux it is: os-release(5)."""
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    fields = dict(re.findall(r"^(\w+)=[\"']?([^\"'\n]*)", text, re.MULTILINE))
    told = {"id": fields.get("ID"), "version": fields.get("VERSION_ID"), "name": fields.get("PRETTY_NAME")}
    return {key: value for key, value in told.items() if value}


def libraries():
    """Path of every accelerator library → the distribution that it belongs to, or None."""
    found = {}
    for distribution in distributions():
        for file in distribution.files or ():
            if LIBRARY.match(file.name):
                path = os.path.realpath(str(distribution.locate_file(file)))
                found[path] = distribution.metadata["Name"]
    for line in subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True).stdout.splitlines():
        path = os.path.realpath(line.rpartition("=> ")[2].strip())
        if LIBRARY.match(path.rpartition("/")[2]):
            found.setdefault(path, None)
    return found


def contents():
    """What is installed, as metadata and files tell it."""
    return {
        "packages": packages(),
        "about": about(),
        "debian": debian(),
        "system": system(),
        "libraries": libraries(),
    }


def imported():
    """PEP 503 names of the distributions of which a module is loaded."""
    modules = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    files = {os.path.realpath(file) for file in modules if file}
    found = set()
    for distribution in distributions():
        paths = (str(distribution.locate_file(file)) for file in distribution.files or ())
        if any(path.endswith((".py", ".so")) and os.path.realpath(path) in files for path in paths):
            found.add(re.sub(r"[-_.]+", "-", distribution.metadata["Name"] or "").lower())
    return sorted(found)


def main(arguments):
    """Collect and print."""
    # Before TensorFlow: it imports setuptools, which puts the packages that it brings inside itself on the path.
    found = contents()
    if "--contents-only" not in arguments:
        os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
        importlib.import_module("tensorflow")
        found["imported"] = imported()
    print("\n" + json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])
