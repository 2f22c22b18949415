"""Reference of tags and labels, by the program's own rules."""

from __future__ import annotations

from generator.markdown import code, escape, table
from generator.program import project
from tfimg.core.levels import LEVEL_MEANINGS, Level
from tfimg.matrix.schema import PLATFORMS, RUNTIME
from tfimg.matrix.spec import ImageSpec, expand_matrix, with_variant
from tfimg.project.project import read_record
from tfimg.recipe.labels import make_build_labels, make_recipe_labels
from tfimg.recipe.layout import list_layer_names
from tfimg.recipe.tags import list_aliases, make_build_tag

DIGEST = f"sha256:{'0123456789abcdef' * 4}"

LAYERS = list_layer_names({"tensorflow": "", "packages": ""})

MEANINGS = {
    "org.opencontainers.image.title": "the image in words",
    "org.opencontainers.image.version": "identifier of the image",
    "org.opencontainers.image.licenses": "licence of the recipe; packages have their own",
    "org.opencontainers.image.base.name": "base image",
    "org.opencontainers.image.base.digest": "digest of the base image",
    "tfimg.base.kind": "`official`, `look-alike` (an image made to be like the official one) or `bootstrapped`",
    "org.opencontainers.image.revision": "git commit of the recipe",
    "tfimg.identifier": "identifier of the image; most commands read it from here",
    "tfimg.tensorflow": "TensorFlow release",
    "tfimg.python": "Python minor",
    "tfimg.device": "`cpu`, `gpu` or `tpu`",
    "tfimg.lock": "digest of the lock: every package with its hash",
    "tfimg.layers": "names of the layers, lowest first",
    "tfimg.recipe": "digest of Dockerfile, lock, build scripts, suite and base",
    "tfimg.snapshot": "address of the dated mirror that Debian packages came from, of builds with `--snapshot`",
    "tfimg.released": "day of the TensorFlow release",
    "tfimg.supported_until": "last day of security fixes for all of its parts, as known at the build",
    "tfimg.version": "tfimg that built it",
}


def tag_examples() -> str:
    """Return the tags of the newest images on their default Python, and of an image on another Python."""
    specs = [spec for spec in project().specs if spec.is_newest and spec.platform == PLATFORMS[0]]
    shown = [spec for spec in specs if spec.is_default_python]
    shown.append(next(spec for spec in specs if not spec.is_default_python))
    return table(("image", "tags that move to newer images", "tag of one build"), map(_tags, shown))


def _tags(spec: ImageSpec) -> tuple[str, str, str]:
    aliases = ", ".join(map(code, list_aliases(spec)))
    return code(spec.identifier), aliases, code(make_build_tag(spec.identifier, DIGEST))


OFFICIAL = "tensorflow/tensorflow"
OFFICIAL_VARIANTS = ("", "-gpu", "-jupyter", "-gpu-jupyter")
"""Ends of the tags of `OFFICIAL` on Docker Hub, which follow a release or `latest`."""


def official_tags() -> str:
    """Return the image that has the alias of each official tag, the newest release first."""
    here = project()
    specs = [spec for spec in here.specs if spec.platform == PLATFORMS[0]]
    images = {
        alias: spec.identifier
        for variant in (RUNTIME, "jupyter")
        for spec in (with_variant(spec, variant, here.matrix.variants) for spec in specs)
        for alias in list_aliases(spec)
    }
    releases = dict.fromkeys(["latest", *(spec.tensorflow for spec in reversed(specs))])
    tags = (f"{release}{variant}" for release in releases for variant in OFFICIAL_VARIANTS)
    rows = ((code(tag), code(tag), code(images[tag])) for tag in tags if tag in images)
    return table((f"tag of {code(OFFICIAL)}", f"tag of {code(here.repository)}", "image"), rows)


def label_examples() -> str:
    """Return every label, with its value in the newest CPU image on its default Python."""
    (spec,) = (
        spec
        for spec in project().specs
        if (spec.is_newest, spec.is_default_python, spec.device, spec.platform) == (True, True, "cpu", PLATFORMS[0])
    )
    labels = make_recipe_labels(spec, lock_digest=DIGEST, layers=LAYERS) | make_build_labels(
        spec,
        base=spec.base.image,
        base_digest=DIGEST,
        base_kind="official",
        recipe=DIGEST,
        revision="0123456789abcdef" * 2,
        version="0.1.0",
        snapshot="https://mirror.example/debian/20261101T000000Z",
    )
    short = {name: value if len(value) <= 50 else f"{value[:20]}…" for name, value in labels.items()}
    return table(
        ("label", "meaning", "for example"),
        ((code(name), escape(MEANINGS[name]), code(value)) for name, value in short.items()),
        ".stack .labels",
    )


def proofs() -> str:
    """Return what the committed records prove of each image for amd64."""
    rows = []
    for spec in (spec for spec in project().specs if spec.platform == PLATFORMS[0]):
        record = read_record(project().workspace, spec.identifier)
        if record and project().status(spec).level != Level.DECLARED:
            base = f"{record.base.kind}, Python {record.versions['python']}" if record.base else "unknown"
            rows.append((code(spec.identifier), escape(base), record.status.level, record.date[:10]))
        else:
            rows.append((code(spec.identifier), "not proven yet", Level.DECLARED, ""))
    for spec in expand_matrix(project().matrix, local_wheels=True):
        if spec.libtpu and spec.identifier not in project().statuses and spec.platform == PLATFORMS[0]:
            reason = f"not proven: the package index has no libtpu {spec.libtpu}"
            rows.append((code(spec.identifier), escape(reason), Level.DECLARED, ""))
    return table(("image", "base", "level", "date"), rows)


def levels() -> str:
    """Return the levels, highest first."""
    return table(("level", "meaning"), ((code(level), escape(LEVEL_MEANINGS[level])) for level in reversed(Level)))
