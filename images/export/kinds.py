"""What a file or folder is: a SavedModel, a Keras model, a frozen graph, or nothing that can be exported."""

import json
import tempfile
import zipfile
from pathlib import Path

from refusal import Refused

SAVE = (
    "Export from the code that builds the model: `model.save(...)`, or `tf.saved_model.save(model, FOLDER, "
    "signatures=...)`."
)


def find_kind(path):  # noqa: C901 - one rule for each kind
    """Return saved_model, keras, h5 or graph, and the path to load. Raises `Refused` for anything else."""
    path = Path(path)
    if path.is_dir():
        if (path / "saved_model.pb").exists() or (path / "saved_model.pbtxt").exists():
            return "saved_model", path
        if (path / "checkpoint").exists() or list(path.glob("*.index")):
            raise Refused("The folder has checkpoints: variables without the graph that uses them.", SAVE)
        inner = [one.name for one in sorted(path.iterdir()) if (one / "saved_model.pb").exists()]
        if inner:
            raise Refused(
                f"The folder is no SavedModel, but holds some: {', '.join(inner[:5])}.", "Name one of these folders."
            )
        raise Refused("The folder has no saved_model.pb, so that it is no SavedModel.", SAVE)
    name = path.name.lower()
    if name == "saved_model.pb":
        return "saved_model", path.parent
    with path.open("rb") as file:
        start = file.read(8)
    if not start:
        raise Refused("The file is empty.", "Copy it again, or save the model again.")
    if name.endswith((".index", ".ckpt")) or ".data-0000" in name:
        raise Refused("The file is part of a checkpoint: variables without the graph that uses them.", SAVE)
    if start == b"\x89HDF\r\n\x1a\n":
        return "h5", _require_model(path)
    if start[:4] == b"PK\x03\x04" and zipfile.is_zipfile(path):
        names = zipfile.ZipFile(path).namelist()
        if "config.json" in names and "metadata.json" in names:
            return "keras", _named(path, ".keras")
        if any(one.endswith("saved_model.pb") for one in names):
            raise Refused("The file is an archive of a SavedModel.", "Unpack it, and name its folder.")
        raise Refused("The ZIP file has no config.json, so that it is no Keras model.", SAVE)
    if name.endswith((".pb", ".pbtxt")):
        return "graph", path
    if name.endswith((".keras", ".h5", ".hdf5")):
        raise Refused(
            f"The name ends in {path.suffix}, and the file is no such model: it is damaged or cut off.",
            "Copy it again, or save the model again.",
        )
    raise Refused(
        f"{path.suffix or 'The file'} is no format of a model that can be read here: a SavedModel, .keras, .h5 or a "
        "frozen graph (.pb).",
        SAVE,
    )


def _require_model(path):
    import h5py

    try:
        with h5py.File(path, "r") as file:
            has_model = "model_config" in file.attrs
    except OSError as error:
        raise Refused(f"The HDF5 file is damaged: {error}", "Copy it again, or save the model again.") from None
    if not has_model:
        raise Refused("The file has weights without a model (no model_config).", SAVE)
    return _named(path, ".h5")


def _named(path, ending):
    """Return a path to the file with the ending by which Keras chooses how to read it."""
    if path.name.lower().endswith((".hdf5", ending) if ending == ".h5" else ending):
        return path
    link = Path(tempfile.mkdtemp(), f"model{ending}")
    link.symlink_to(path)
    return link


def keras_version(path, kind):
    """Return the version of Keras that wrote a file; empty if it does not say."""
    if kind == "keras":
        with zipfile.ZipFile(path) as archive:
            return json.loads(archive.read("metadata.json")).get("keras_version", "")
    import h5py

    with h5py.File(path, "r") as file:
        found = file.attrs.get("keras_version", "")
    return found.decode() if isinstance(found, bytes) else str(found)
