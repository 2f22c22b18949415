"""Reference of the commands, from the table of groups and the classes of the commands."""

from __future__ import annotations

from collections.abc import Iterator

from generator.markdown import block, code, escape, table
from tfimg.cli.app import GROUPS, describe_command
from tfimg.host.cloud import CLOUDS, Cloud


def command_list() -> str:
    """Return a table of all commands by group."""
    return "\n".join(
        f"## {title}\n\n"
        + table(
            ("command", "purpose"),
            (
                (f"[`tfimg {name}`]({title.lower()}.md#{anchor(name)})", escape(line))
                for name, (_, line) in commands.items()
            ),
            ".stack .even",
        )
        for title, commands in GROUPS.items()
    )


def command_group(title: str) -> str:
    """Return the reference of a group's commands."""
    return "\n".join(map(_command, GROUPS[title]))


def cloud_checklists() -> str:
    """Return what each cloud's command needs, and what a stopped machine costs."""
    return "\n".join(f"### {cloud.title}\n\n" + "".join(_checklist(cloud)) for cloud in CLOUDS.values() if cloud.before)


def _checklist(cloud: Cloud) -> Iterator[str]:
    registry = cloud.registry
    before = {**cloud.before, **(registry.before if registry else {}), "stopped": cloud.note or ""}
    for name, text in sorted(before.items(), key=lambda item: not item[0].isupper()):
        title = code(name) if name.isupper() else name
        if registry and name in registry.before:
            title += f" (an image in {registry.title})"
        for device, line in [("", text)] if isinstance(text, str) else text.items():
            of_device = f" ({device.upper()})" if device else ""
            yield f"- {title}{of_device}: {escape(line.replace('{machine}', 'MACHINE_TYPE'))}\n"


def anchor(name: str) -> str:
    """Return the anchor of a command on the page of its group."""
    return f"tfimg-{name.replace(' ', '-')}"


def _command(name: str) -> str:
    command = describe_command(name)
    sections = "\n".join(
        table((title.lower(), ""), ((code(names), escape(text)) for names, text in rows), ".stack .even .titled")
        for title, rows in command.sections.items()
    )
    return (
        f"## tfimg {name}\n\n{escape(command.summary)}\n\n{block([command.usage], 'text')}\n"
        f"For example:\n\n{block(command.examples, 'sh')}\n{sections}"
    )
