"""What version 0.1 no longer has, and what to do instead. A row goes with the release after the one that removed it."""

from __future__ import annotations

COMMANDS: dict[str, str] = {
    "renew": "`tfimg publish --renew IMAGE` validates published images again.",
    **{name: f"It is called `tfimg matrix {name}`." for name in ("sync", "check", "lock", "render", "audit", "record")},
    "scan-secrets": "`tfimg publish` searches for values of this machine, trivy and gitleaks for tokens of any kind.",
    "bare": "`pip download --no-deps --require-hashes -d DIR` takes the wheels of an image's lock (images/locks), and "
    "`python3 images/on_host/run.py IDENTIFIER --wheels DIR` proves them: `run.py --help` has the commands.",
    "report": "`tfimg explain FILE.json` shows a report, and writes it in another form with --report FILE.html.",
    "schema": "A checkout has the schemas, as `tfimg matrix render` writes them: images/matrix.schema.json and "
    "images/report.schema.json.",
    "bake": "`tfimg matrix render IDENTIFIER` prints the Dockerfile of an image, from which `docker buildx build` "
    "builds it.",
    "reproduce": "`tfimg build --recorded N` builds images again and compares them with their record. To compare two "
    "builds, use `tfimg build --no-cache` with two names of --repository, and `tfimg compare --local`.",
}
"""Removed command → the sentences that say what to do instead."""

OPTIONS: dict[tuple[str, str], str] = {
    ("history", "--published"): "`tfimg verify IMAGE --json` says what the record of one image proves today.",
    ("rollback", "--platform"): "Name an image of that platform with `--to DIGEST`; of both platforms, repeat `--to`.",
    (
        "matrix check",
        "--built",
    ): "`tfimg validate IMAGE` proves it inside: checks `libraries.versions` and `environment.*`.",
    ("matrix audit", "--advisories"): "OSV's service is asked; --osv URL names a mirror of it.",
    ("build", "--affected"): "`tfimg build '2.15*' --record` leaves images alone whose record is of their lock.",
    ("matrix lock", "--advisories"): "OSV's service is asked; --osv URL names a mirror of it.",
    ("publish", "--fixes"): "Withdraw what was replaced: `tfimg withdraw REPOSITORY@DIGEST --advisory ID`.",
    ("plan", "--behind-base"): "`tfimg build --renew-base` builds images on today's Debian packages.",
    ("", "--flavor"): "It is called --variant.",
    ("plan", "--layers"): "`tfimg inspect` shows the layers of an image, and `tfimg compare` what two images share.",
}
"""Command (none: of every command) and its removed option → the sentences that say what to do instead."""
