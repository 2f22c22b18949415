"""What `tfimg compare` prints for people."""

from __future__ import annotations

from tfimg.cli.output.tables import print_rows
from tfimg.core.text import to_plain_text
from tfimg.inspect.comparison import Comparison, describe_part, describe_total, format_percent, list_sections


def print_comparison(comparison: Comparison) -> None:
    """Print the changes between two images, and what could not be compared."""
    for when, image in (("before", comparison.before), ("after ", comparison.after)):
        print(f"{when}  {to_plain_text(image.name)}  {image.digest}")
    if comparison.is_same_image:
        print("\nThey are the same image.")
        return
    for title, changes in list_sections(comparison):
        if changes:
            new = sum(change.before is None for change in changes)
            gone = sum(change.after is None for change in changes)
            counts = {"changed": len(changes) - new - gone, "new": new, "gone": gone}
            print(f"\n{title}: {', '.join(f'{count} {word}' for word, count in counts.items() if count)}")
            rows = [(change.name, change.before or "-", change.after or "-") for change in changes]
            print_rows(("NAME", "BEFORE", "AFTER"), rows, folding=("BEFORE", "AFTER"))
    print(f"\nSize, as it is sent: {describe_total(comparison)}")
    columns = ("PART", "BEFORE", "AFTER", "CHANGE")
    print_rows(columns, map(describe_part, comparison.sizes), right=("BEFORE", "AFTER"))
    if comparison.seconds:
        print("\nTimings")
        timings = [
            (one.check, f"{one.before:.1f} s", f"{one.after:.1f} s", format_percent(one.before, one.after))
            for one in (comparison.seconds, *comparison.timings)
        ]
        print_rows(("CHECK", "BEFORE", "AFTER", "CHANGE"), timings)
    for note in comparison.notes:
        print(f"\n{to_plain_text(note)}")
