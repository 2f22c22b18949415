"""`tfimg render`."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from tfimg.cli.context import Context
from tfimg.cli.options import Command, flag, pattern_arguments


@dataclass(frozen=True)
class Render(Command):
    """Write default Dockerfiles, the matrix's schema and the README's short table.

    Examples:
      tfimg render --check
      tfimg render 2.15.1-cpu-py3.11
    """

    patterns: tuple[str, ...] = pattern_arguments("print the Dockerfiles of these images instead: 2.15, '*-cpu-py3.11'")
    _: KW_ONLY
    check: bool = flag("write nothing; fail if a file is out of date")

    def run(self, context: Context) -> int:
        from tfimg.matrix.schema import matrix_schema_text
        from tfimg.matrix.spec import ImageSpec
        from tfimg.recipe.generated_files import GeneratedFiles
        from tfimg.recipe.plan import render_dockerfile, select_defaults
        from tfimg.recipe.support import insert_table
        from tfimg.validation.record import schema_text

        project, workspace = context.project, context.project.workspace

        def dockerfile(spec: ImageSpec) -> str:
            return render_dockerfile(spec, project.lock(spec), project.templates)

        if self.patterns:
            specs = context.buildable(self.patterns)
            project.locks.require_committed(specs)
            for spec in specs:
                document = {"identifier": spec.identifier, "dockerfile": dockerfile(spec)}
                context.print_result(document, document["dockerfile"].removesuffix("\n"))
            return 0
        files = GeneratedFiles(workspace.root, check=self.check)
        files.add({workspace.schema: matrix_schema_text(), workspace.report_schema: schema_text()})
        defaults = tuple(select_defaults(project.specs))
        workspace.require_locks(spec.identifier for spec in defaults)
        for spec in defaults:
            files.add({workspace.rendered(spec.identifier): dockerfile(spec)})
        files.remove_others(workspace.images / "rendered")
        # An installed package has no README, and a workspace may have its own.
        if workspace.readme.is_file() and (text := insert_table(workspace.readme.read_text(), project.support)):
            files.add({workspace.readme: text})
        files.require_fresh("tfimg render")
        context.print_result(files.to_json(), str(files))
        return 0
